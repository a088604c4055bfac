#include "tests/ptx/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "tests/ptx/interpreter/rounded.h"

namespace ptx {
namespace {

// Of the largest number within kAround bytes. f32: some hundred roundings of 2^-24, and expf's few ulp in scores
// of up to 50. bf16: one rounding of 2^-8 may fall to the other side, and what was computed from such a number.
// A float beside bf16: sums of many numbers, a few of which were rounded to bf16 the other way; 2^-13 was seen. In a
// kernel with all steps of a recurrence such a number is read step after step, also alone, as a row's largest: 2^-8 of
// it. Of products of TF32: a factor that was rounded the other way, 2^-10 of a term that may be all of the sum, and
// another.
constexpr double kFloatBound = 0x1p-14, kFloatBesideHalfBound = 0x1p-11, kFloatOfChainBound = 0x1p-7,
                 kTf32Bound = 0x1p-9, kHalfBound = 0x1p-6, kDoubleBound = 0x1p-26;
constexpr std::size_t kAround = 4096;

template <class T>
T number_at(std::span<const unsigned char> bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

double value_at(std::span<const unsigned char> bytes, std::size_t at, Type type) {
  if (type == Type::f32) return double{number_at<float>(bytes, at)};
  if (type == Type::f64) return number_at<double>(bytes, at);
  return double{from_bf16(number_at<std::uint16_t>(bytes, at))};
}

struct Format {
  Type type;
  std::size_t bytes;
  double bound;
};
// What may stand where this type was stored: a word of 4 bytes is an f32 or two bf16.
std::vector<Format> formats_of(Type stored, double float_bound) {
  const Format f32{Type::f32, 4, float_bound}, half{Type::u16, 2, kHalfBound};
  switch (stored) {
    case Type::f32:
      return {f32};
    case Type::f64:
      return {{Type::f64, 8, kDoubleBound}};
    case Type::u16:
      return {half};
    case Type::u32:
      return {half, f32};
    default:
      return {{stored, 1, 0}};
  }
}

// The largest finite number of a kind near a place.
double scale_near(std::span<const unsigned char> bytes, std::size_t at, const Format& format) {
  const std::size_t first = at > kAround ? (at - kAround) + (kAround % format.bytes) : at % format.bytes;
  double scale = 0;
  for (std::size_t i = first; i + format.bytes <= std::min(bytes.size(), at + kAround); i += format.bytes) {
    const double size = std::fabs(value_at(bytes, i, format.type));
    if (std::isfinite(size)) scale = std::max(scale, size);
  }
  return scale;
}

// The difference of a number in units of its bound, and how it reads.
struct NumberDifference {
  double excess = std::numeric_limits<double>::infinity();
  std::string values;
};
NumberDifference number_difference(std::span<const unsigned char> want, std::span<const unsigned char> have,
                                   std::size_t start, const Format& format) {
  NumberDifference difference;
  if (format.bound == 0 || start + format.bytes > want.size()) {
    difference.values = fmt::format("byte {:02x} for {:02x}", have[start], want[start]);
    return difference;
  }
  const double a = value_at(want, start, format.type), b = value_at(have, start, format.type);
  difference.values = fmt::format("{} for {}", b, a);
  if (std::isnan(a) && std::isnan(b))
    difference.excess = 0;
  else if (std::isfinite(a) && std::isfinite(b))
    difference.excess = std::fabs(a - b) / (format.bound * std::max(scale_near(want, start, format), 1e-300));
  return difference;
}

// The greatest difference of the numbers of this format in the `bytes` from `start` on.
NumberDifference greatest_difference(std::span<const unsigned char> want, std::span<const unsigned char> have,
                                     std::size_t start, std::size_t bytes, const Format& format) {
  NumberDifference greatest{0, ""};
  for (std::size_t at = start; at < std::min(start + bytes, want.size()); at += format.bytes) {
    const std::size_t end = std::min(at + format.bytes, want.size());
    if (std::equal(want.begin() + at, want.begin() + end, have.begin() + at)) continue;
    const NumberDifference one = number_difference(want, have, at, format);
    if (one.excess >= greatest.excess) greatest = one;
  }
  return greatest;
}

}  // namespace

Difference compare(const RecordedLaunch& launch, GlobalMemory& after, const Program& program) {
  Difference difference;
  const auto has = [&](const char* op) {
    return std::any_of(program.statements.begin(), program.statements.end(),
                       [op](const Statement& s) { return s.op.starts_with(op); });
  };
  // Block recurrences walk all windows; sums of attention's fused backward pass from block to block.
  const bool chain = has("ld.acquire.gpu") ||
                     program.function->name.find("block_forward_kernel") != std::string::npos ||
                     program.function->name.find("block_backward_kernel") != std::string::npos;
  const double float_bound = has("cvt.rna.tf32")   ? kTf32Bound
                             : !has("cvt.rn.bf16") ? kFloatBound
                             : chain               ? kFloatOfChainBound
                                                   : kFloatBesideHalfBound;
  for (const Piece& piece : launch.pieces) {
    const GlobalMemory::Range& range = *after.find(piece.start, piece.after.size());
    const std::size_t offset = piece.start - range.start;
    const std::span<const unsigned char> want(piece.after);
    const std::span<const unsigned char> have(range.bytes.data() + offset, piece.after.size());
    for (std::size_t at = 0; at < want.size(); ++at) {
      if (want[at] == have[at] || after.released.contains((piece.start + at) / 4 * 4)) continue;
      const auto stored = static_cast<Type>(std::uint32_t{range.stamps[(offset + at) / 2].type});
      const bool ours = range.stamps[(offset + at) / 2].writer != 0;
      const std::vector<Format> formats =
          ours ? formats_of(stored, float_bound) : std::vector<Format>{{Type::u8, 1, 0}};
      const std::size_t bytes = std::max(formats.front().bytes, formats.back().bytes),
                        start = at / bytes * bytes;
      NumberDifference least = greatest_difference(want, have, start, bytes, formats.front());
      if (formats.size() > 1) {
        const NumberDifference other = greatest_difference(want, have, start, bytes, formats.back());
        if (other.excess < least.excess) least = other;
      }
      at = start + bytes - 1;
      if (least.excess < difference.worst && !difference.where.empty()) continue;
      difference.worst = least.excess;
      difference.where = fmt::format("{} of {} bytes stored as {}: {}", after.describe(piece.start + start),
                                     bytes, ours ? static_cast<int>(stored) : -1, least.values);
    }
  }
  return difference;
}

}  // namespace ptx
