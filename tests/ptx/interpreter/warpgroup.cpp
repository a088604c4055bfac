// The asynchronous products of a warpgroup, wgmma.m64nNk16 of bf16 with f32 sums.
//
// A product is computed where it starts. From there to the wait of its group no thread may touch its sums,
// write the registers of A, or write what it reads of shared memory. Registers that it reads must be written
// before the last wgmma.fence.
// source: PTX ISA 9.0, "Asynchronous Warpgroup Level Matrix Instructions"; the canonical layouts of operands in
// shared memory from "Matrix Descriptor" and "Strides": 8 rows of 64 or 128 bytes make a pattern, whose pieces
// of 16 bytes are swizzled by the row's number.
#include <fmt/format.h>

#include <algorithm>

#include "tests/ptx/interpreter/exchange.h"
#include "tests/ptx/interpreter/rounded.h"

namespace ptx {
namespace {

constexpr int kWarps = 4;  // of a warpgroup

Warpgroup& group_of(Warp& first) {
  return first.block->warpgroups[static_cast<std::size_t>(first.index / kWarps)];
}

template <class F>
void each_warp(Warp& first, F&& f) {
  for (int i = 0; i < kWarps; ++i) f((&first)[i], i);
}

std::uint64_t same_everywhere(Warp& first, int place) {
  const std::uint64_t value = first.at<std::uint64_t>(place)[0];
  each_warp(first, [&](Warp& warp, int) {
    for (int lane = 0; lane < kWarp; ++lane)
      if (warp.at<std::uint64_t>(place)[lane] != value)
        fail(warp, lane, "descriptors differ within a warpgroup");
  });
  return value;
}

// Reads an operand in shared memory: [rows][16], where k is along 16. `transposed`: rows are contiguous.
class Operand {
 public:
  Operand(Warp& first, std::uint64_t descriptor, bool transposed)
      : first_(first),
        start_(field(descriptor, 0, 14) << 4),
        leading_(field(descriptor, 16, 14) << 4),
        stride_(field(descriptor, 32, 14) << 4),
        transposed_(transposed) {
    const std::uint64_t swizzle = field(descriptor, 62, 2);
    if (swizzle != 1 && swizzle != 2)
      fail(first, 0, fmt::format("descriptor {:x}: a swizzle of neither 128 nor 64 bytes", descriptor));
    span_ = swizzle == 1 ? 128 : 64;
    if (field(descriptor, 49, 3) != 0 || (descriptor & kZeros) != 0)
      fail(first, 0, fmt::format("descriptor {:x}: bits that must be 0", descriptor));
  }

  float read(std::uint64_t row, std::uint64_t k, ProductGroup& group) const {
    std::uint64_t address = start_;
    if (transposed_)
      address += row % (span_ / 2) * 2 + row / (span_ / 2) * leading_ + k % 8 * span_ + k / 8 * stride_;
    else
      address += row % 8 * span_ + row / 8 * stride_ + 2 * k;
    address ^= (address >> 7 & (span_ / 16 - 1)) << 4;
    group.halves.push_back(first_.block->shared.begin_product(first_, address));
    std::uint16_t half;
    __builtin_memcpy(&half, first_.block->shared.at(address), 2);
    return from_bf16(half);
  }

 private:
  static constexpr std::uint64_t kZeros =
      std::uint64_t{0x7} << 46 | std::uint64_t{0x3ff} << 52 | std::uint64_t{3} << 14 | std::uint64_t{3} << 30;
  static std::uint64_t field(std::uint64_t bits, int from, int count) {
    return bits >> from & ((std::uint64_t{1} << count) - 1);
  }
  Warp& first_;
  std::uint64_t start_, leading_, stride_, span_ = 0;
  bool transposed_;
};

void need_written_before_fence(Warp& first, const std::vector<int>& places) {
  each_warp(first, [&](Warp& warp, int) {
    for (const int place : places)
      if (warp.written[static_cast<std::size_t>(place / 32)] > warp.fenced)
        fail(warp, 0, "a register of a product was written after the last wgmma.fence");
  });
}

void mark(Warp& first, const ProductGroup& group) {
  each_warp(first, [&](Warp& warp, int) {
    for (const int place : group.left) warp.flying[static_cast<std::size_t>(place / 32)] |= 1;
    for (const int place : group.sums) warp.flying[static_cast<std::size_t>(place / 32)] |= 2;
  });
}

// The registers of the groups that are left.
void mark_all(Warp& first) {
  each_warp(first, [&](Warp& warp, int) { std::fill(warp.flying.begin(), warp.flying.end(), 0); });
  Warpgroup& group = group_of(first);
  for (const ProductGroup& products : group.committed) mark(first, products);
  mark(first, group.open);
}

}  // namespace

void watch_registers(Warp& warp, const Instruction& instruction) {
  ++warp.tick;
  // Products of one shape may follow each other with the same sums.
  const bool product = instruction.run == &start_product;
  for (const int place : instruction.from)
    if (!product && (warp.flying[static_cast<std::size_t>(place / 32)] & 2) != 0)
      fail(warp, 0, "a sum is read while its product runs: no wgmma.wait_group before it");
  for (const int place : instruction.to) {
    if (place < 0 || product) continue;
    const auto index = static_cast<std::size_t>(place / 32);
    if (warp.flying[index] != 0) fail(warp, 0, "a register is written while a product uses it");
    warp.written[index] = warp.tick;
  }
}

void publish_shared(Warp& warp, const Instruction&, Mask mask) {
  warp.block->shared.publish(warp, mask);
}

void order_registers(Warp& first, const Instruction&, Mask) {
  group_of(first).opened = true;
  each_warp(first, [](Warp& warp, int) { warp.fenced = warp.tick; });
}

void commit_products(Warp& first, const Instruction&, Mask) {
  Warpgroup& group = group_of(first);
  group.committed.push_back(std::move(group.open));
  group.open = {};
  group.opened = false;
}

void wait_for_products(Warp& first, const Instruction& instruction, Mask) {
  Warpgroup& group = group_of(first);
  while (group.committed.size() > static_cast<std::size_t>(instruction.offset)) {
    first.block->shared.end_product(first, group.committed.front().halves);
    group.committed.erase(group.committed.begin());
  }
  mark_all(first);
}

void start_product(Warp& first, const Instruction& instruction, Mask) {
  Warpgroup& group = group_of(first);
  const bool a_in_registers = (instruction.option & 1) != 0, transposed = (instruction.option & 2) != 0,
             a_transposed = (instruction.option & 4) != 0;
  const std::size_t after_a = a_in_registers ? 4 : 1;
  const std::vector<int> left(instruction.from.begin(), instruction.from.begin() + (a_in_registers ? 4 : 0));
  const bool add = lanes_of(first, instruction.from[after_a + 1]) != 0;
  if (!group.opened) fail(first, 0, "a product without wgmma.fence before it");
  need_written_before_fence(first, left);
  if (add) need_written_before_fence(first, instruction.to);

  const int columns = 2 * static_cast<int>(instruction.to.size());
  static thread_local float a[64][16], b[16][256];
  ProductGroup& open = group.open;
  if (a_in_registers) {  // as mma's, rows 16 w + q and + 8 of warp w
    each_warp(first, [&](Warp& warp, int w) {
      for (std::size_t i = 0; i < 4; ++i)
        for (int lane = 0; lane < kWarp; ++lane)
          for (int half = 0; half < 2; ++half)
            a[16 * w + lane / 4 + 8 * static_cast<int>(i % 2)]
             [2 * (lane % 4) + 8 * static_cast<int>(i / 2) + half] =
                 from_bf16(static_cast<std::uint16_t>(warp.at<std::uint32_t>(left[i])[lane] >> 16 * half));
    });
  } else {
    const Operand operand(first, same_everywhere(first, instruction.from[0]), a_transposed);
    for (unsigned row = 0; row < 64; ++row)
      for (unsigned k = 0; k < 16; ++k) a[row][k] = operand.read(row, k, open);
  }
  const Operand operand(first, same_everywhere(first, instruction.from[after_a]), transposed);
  for (unsigned column = 0; column < static_cast<unsigned>(columns); ++column)
    for (unsigned k = 0; k < 16; ++k) b[k][column] = operand.read(column, k, open);

  each_warp(first, [&](Warp& warp, int w) {
    for (std::size_t i = 0; i < instruction.to.size(); ++i) {
      float* const sums = warp.at<float>(instruction.to[i]);
      for (int lane = 0; lane < kWarp; ++lane) {
        const int row = 16 * w + lane / 4 + 8 * static_cast<int>(i % 4 / 2);
        const int column = 8 * static_cast<int>(i / 4) + 2 * (lane % 4) + static_cast<int>(i % 2);
        double sum = add ? double{sums[lane]} : 0.0;
        for (int k = 0; k < 16; ++k) sum += double{a[row][k]} * double{b[k][column]};
        sums[lane] = static_cast<float>(sum);
      }
    }
  });
  open.left.insert(open.left.end(), left.begin(), left.end());
  open.sums.insert(open.sums.end(), instruction.to.begin(), instruction.to.end());
  mark(first, open);
}

}  // namespace ptx
