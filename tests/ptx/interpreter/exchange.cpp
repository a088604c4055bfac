#include "tests/ptx/interpreter/exchange.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "tests/ptx/interpreter/arithmetic.h"
#include "tests/ptx/interpreter/rounded.h"

namespace ptx {
namespace {

void need_full_mask(Warp& warp, int place) {
  const std::uint32_t* const masks = warp.at<std::uint32_t>(place);
  for (int lane = 0; lane < kWarp; ++lane)
    if (masks[lane] != kAllLanes)
      fail(warp, lane, fmt::format("the mask {:x} leaves out lanes", masks[lane]));
}

float half_of(std::uint32_t pair, int index) {
  return from_bf16(static_cast<std::uint16_t>(pair >> 16 * index));
}

}  // namespace

// The lane's segment is what `clamp` says in bits 8 to 12; its last lane is in bits 0 to 4.
void exchange_lanes(Warp& warp, const Instruction& instruction, Mask mask) {
  need_full_mask(warp, instruction.from[3]);
  const std::uint32_t* const value = warp.at<std::uint32_t>(instruction.from[0]);
  const std::uint32_t* const by = warp.at<std::uint32_t>(instruction.from[1]);
  const std::uint32_t* const clamp = warp.at<std::uint32_t>(instruction.from[2]);
  std::uint32_t results[kWarp];
  bool valid[kWarp];
  for (int lane = 0; lane < kWarp; ++lane) {
    const int segment = static_cast<int>(clamp[lane] >> 8 & 31), last = static_cast<int>(clamp[lane] & 31);
    const int count = static_cast<int>(by[lane] & 31), first = lane & segment;
    const int most = first | (last & ~segment);
    int other = lane;
    switch (instruction.option) {
      case kUp:
        other = lane - count;
        valid[lane] = other >= most;
        break;
      case kDown:
        other = lane + count;
        valid[lane] = other <= most;
        break;
      case kButterfly:
        other = lane ^ count;
        valid[lane] = other <= most;
        break;
      default:
        other = first | (count & ~segment);
        valid[lane] = other <= most;
    }
    results[lane] = value[valid[lane] ? other : lane];
  }
  put(warp, instruction.to[0], results, mask);
  if (instruction.to.size() > 1) put(warp, instruction.to[1], valid, mask);
}

void vote(Warp& warp, const Instruction& instruction, Mask mask) {
  need_full_mask(warp, instruction.from[1]);
  const Mask votes = lanes_of(warp, instruction.from[0]);
  if (instruction.option == kBallot) {
    std::uint32_t results[kWarp];
    std::fill_n(results, kWarp, votes);
    return put(warp, instruction.to[0], results, mask);
  }
  bool results[kWarp];
  std::fill_n(results, kWarp, instruction.option == kAll ? votes == kAllLanes : votes != 0);
  put(warp, instruction.to[0], results, mask);
}

void order_warp(Warp& warp, const Instruction& instruction, Mask) {
  need_full_mask(warp, instruction.from[0]);
  ++warp.order;
}

// Lane 8 i + r has the address of row r of matrix i. Lane l gets elements 2 (l % 4) and the next of row l / 4.
void load_matrices(Warp& warp, const Instruction& instruction, Mask mask) {
  std::uint16_t rows[kWarp][8];
  const std::uint32_t* const base = warp.at<std::uint32_t>(instruction.from[0]);
  const std::uint64_t* const wide = warp.at<std::uint64_t>(instruction.from[0]);
  for (int lane = 0; lane < kWarp; ++lane) {
    const std::uint64_t address =
        (instruction.wide_address ? wide[lane] : base[lane]) + static_cast<std::uint64_t>(instruction.offset);
    warp.block->shared.read(warp, lane, address, 16);
    std::memcpy(rows[lane], warp.block->shared.at(address), 16);
  }
  for (int i = 0; i < 4; ++i) {
    std::uint32_t results[kWarp];
    for (int lane = 0; lane < kWarp; ++lane) {
      const int row = lane / 4, column = 2 * (lane % 4);
      const auto element = [&](int r, int c) {
        return std::uint32_t{instruction.option == 1 ? rows[8 * i + c][r] : rows[8 * i + r][c]};
      };
      results[lane] = element(row, column) | element(row, column + 1) << 16;
    }
    put(warp, instruction.to[static_cast<std::size_t>(i)], results, mask);
  }
}

namespace {

// D = A [16, Inner] B + C. Lane l has q = l / 4 and t = l % 4; C's and D's number i: row q + 8 (i / 2), column
// 2 t + i % 2.
template <int Inner>
void multiply_into(Warp& warp, const Instruction& instruction, Mask mask, const float (&a)[16][Inner],
                   const float (&b)[Inner][8]) {
  double sums[16][8];
  for (std::size_t i = 0; i < 4; ++i) {
    const float* const c = warp.at<float>(instruction.from[6 + i]);
    for (int lane = 0; lane < kWarp; ++lane)
      sums[lane / 4 + 8 * (i / 2)][2 * (lane % 4) + static_cast<int>(i % 2)] = c[lane];
  }
  // Products of bf16 and of TF32 are exact in f64, and so is nearly each sum: one rounding, at the end.
  for (int row = 0; row < 16; ++row)
    for (int k = 0; k < Inner; ++k)
      for (int column = 0; column < 8; ++column)
        sums[row][column] += double{a[row][k]} * double{b[k][column]};
  for (std::size_t i = 0; i < 4; ++i) {
    float results[kWarp];
    for (int lane = 0; lane < kWarp; ++lane)
      results[lane] =
          static_cast<float>(sums[lane / 4 + 8 * (i / 2)][2 * (lane % 4) + static_cast<int>(i % 2)]);
    put(warp, instruction.to[i], results, mask);
  }
}

// A NaN may have any bits.
float tf32_of(Warp& warp, int lane, float x) {
  if (x == x && to_tf32(x) != std::bit_cast<std::uint32_t>(x))
    fail(warp, lane, fmt::format("{} is an operand in TF32 and was not rounded", x));
  return x;
}

}  // namespace

// A's register i: rows q + 8 (i % 2), columns 2 t + 8 (i / 2) and the next; B's: rows 2 t + 8 i and the next, column q.
void multiply(Warp& warp, const Instruction& instruction, Mask mask) {
  float a[16][16], b[16][8];
  for (std::size_t i = 0; i < 4; ++i) {
    const std::uint32_t* const pairs = warp.at<std::uint32_t>(instruction.from[i]);
    for (int lane = 0; lane < kWarp; ++lane)
      for (int half = 0; half < 2; ++half)
        a[lane / 4 + 8 * (i % 2)][2 * (lane % 4) + 8 * static_cast<int>(i / 2) + half] =
            half_of(pairs[lane], half);
  }
  for (std::size_t i = 0; i < 2; ++i) {
    const std::uint32_t* const pairs = warp.at<std::uint32_t>(instruction.from[4 + i]);
    for (int lane = 0; lane < kWarp; ++lane)
      for (int half = 0; half < 2; ++half)
        b[2 * (lane % 4) + 8 * static_cast<int>(i) + half][lane / 4] = half_of(pairs[lane], half);
  }
  multiply_into(warp, instruction, mask, a, b);
}

// A's register i: row q + 8 (i % 2), column t + 4 (i / 2); B's: row t + 4 i, column q.
void multiply_tf32(Warp& warp, const Instruction& instruction, Mask mask) {
  float a[16][8], b[8][8];
  for (std::size_t i = 0; i < 4; ++i) {
    const float* const numbers = warp.at<float>(instruction.from[i]);
    for (int lane = 0; lane < kWarp; ++lane)
      a[lane / 4 + 8 * (i % 2)][lane % 4 + 4 * static_cast<int>(i / 2)] = tf32_of(warp, lane, numbers[lane]);
  }
  for (std::size_t i = 0; i < 2; ++i) {
    const float* const numbers = warp.at<float>(instruction.from[4 + i]);
    for (int lane = 0; lane < kWarp; ++lane)
      b[lane % 4 + 4 * static_cast<int>(i)][lane / 4] = tf32_of(warp, lane, numbers[lane]);
  }
  multiply_into(warp, instruction, mask, a, b);
}

}  // namespace ptx
