// Gathering and telling between ranks, by exchanges of pairs.
#include "train/ranks/ranks.h"

#include <cstring>

#include "tensor/base/error.h"
#include "tensor/base/format.h"

namespace eddy::training {

Peers& Ranks::peers() {
  fail<DeviceError>("ranks: {} exchanges memory of a GPU (this build moves bytes of the CPU)", name(rank()));
}

std::vector<std::byte> all_gather(Ranks& ranks, std::span<const std::byte> local) {
  const auto size = static_cast<std::size_t>(ranks.size()), rank = static_cast<std::size_t>(ranks.rank());
  std::vector<std::byte> all(size * local.size());
  if (local.empty()) return all;
  std::memcpy(all.data() + rank * local.size(), local.data(), local.size());
  // After each level a rank has the bytes of its subtree.
  for (std::size_t width = 1; width < size; width *= 2) {
    const std::size_t mine = rank / width * width, theirs = mine ^ width, bytes = width * local.size();
    ranks.exchange(static_cast<int>(rank ^ width), std::span(all).subspan(mine * local.size(), bytes),
                   std::span(all).subspan(theirs * local.size(), bytes));
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

}  // namespace eddy::training
