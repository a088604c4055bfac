// Gathering and adding between ranks, by exchanges of pairs.
#include "train/ranks/ranks.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "tensor/base/error.h"
#include "tensor/base/format.h"

namespace eddy {
namespace {

std::span<std::byte> bytes_of_tensor(const Tensor& x) {
  return {static_cast<std::byte*>(x.raw_data()), static_cast<std::size_t>(x.bytes())};
}

// Whether one of the ranks of a subtree is present: those whose numbers agree with `rank` above the lowest `level` bits.
bool subtree_present(const std::vector<bool>& present, int rank, int level) {
  const auto begin = static_cast<std::size_t>(rank) >> level << level;
  for (std::size_t i = begin; i < begin + (std::size_t{1} << level); ++i)
    if (present[i]) return true;
  return false;
}

}  // namespace

std::vector<std::byte> gather_all(Ranks& ranks, std::span<const std::byte> own) {
  const auto size = static_cast<std::size_t>(ranks.size()), rank = static_cast<std::size_t>(ranks.rank());
  std::vector<std::byte> all(size * own.size());
  if (own.empty()) return all;
  std::memcpy(all.data() + rank * own.size(), own.data(), own.size());
  // After each level a rank has the bytes of its subtree.
  for (std::size_t width = 1; width < size; width *= 2) {
    const std::size_t mine = rank / width * width, theirs = mine ^ width, bytes = width * own.size();
    ranks.exchange(static_cast<int>(rank ^ width), std::span(all).subspan(mine * own.size(), bytes),
                   std::span(all).subspan(theirs * own.size(), bytes));
  }
  return all;
}

void broadcast(Ranks& ranks, std::span<std::byte> bytes) {
  const int rank = ranks.rank(), size = ranks.size();
  // At each level the ranks below `width` have the bytes.
  for (int width = 1; width < size; width *= 2) {
    if (rank < width) ranks.send(rank + width, bytes);
    if (rank >= width && rank < 2 * width) ranks.receive(rank - width, bytes);
  }
}

void add_all(Ranks& ranks, const Tensor& x, const std::vector<bool>& present) {
  const int size = ranks.size(), rank = ranks.rank(), levels = std::countr_zero(static_cast<unsigned>(size));
  if (std::ssize(present) != size)
    fail<ValueError>("add_all: {} marks for {} ranks (one for each)", present.size(), size);
  if (!subtree_present(present, 0, levels)) return;
  const Tensor flat = raw::reshape(x, {x.elements()});
  // What this rank still adds, and what it was before each level.
  std::int64_t begin = 0, count = flat.elements();
  std::vector<std::pair<std::int64_t, std::int64_t>> before;
  for (int level = 0; level < levels; ++level) {
    const int other = rank ^ (1 << level);
    before.emplace_back(begin, count);
    const std::int64_t half = count / 2;
    const bool keeps_lower = rank < other;
    const Tensor lower = raw::narrow(flat, 0, begin, half),
                 upper = raw::narrow(flat, 0, begin + half, count - half);
    const Tensor& mine = keeps_lower ? lower : upper;
    const Tensor& theirs = keeps_lower ? upper : lower;
    const bool have = subtree_present(present, rank, level), get = subtree_present(present, other, level);
    if (get && have) {
      const Tensor received = Tensor::empty(mine.shape(), x.dtype(), kCpu);
      ranks.exchange(other, bytes_of_tensor(theirs), bytes_of_tensor(received));
      raw::add_into(mine, received);  // a + b and b + a have the same bits
    } else if (get) {
      ranks.receive(other, bytes_of_tensor(mine));
    } else if (have) {
      ranks.send(other, bytes_of_tensor(theirs));
    }
    begin += keeps_lower ? 0 : half;
    count = mine.elements();
  }
  for (int level = levels - 1; level >= 0; --level) {
    const auto [whole_begin, whole_count] = before[static_cast<std::size_t>(level)];
    const std::int64_t half = whole_count / 2;
    const bool has_lower = begin == whole_begin && (rank & (1 << level)) == 0;
    const Tensor lower = raw::narrow(flat, 0, whole_begin, half),
                 upper = raw::narrow(flat, 0, whole_begin + half, whole_count - half);
    ranks.exchange(rank ^ (1 << level), bytes_of_tensor(has_lower ? lower : upper),
                   bytes_of_tensor(has_lower ? upper : lower));
    begin = whole_begin;
    count = whole_count;
  }
}

}  // namespace eddy
