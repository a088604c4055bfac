// Replaces cuda/core/warpgroup_matrix.cuh: the asynchronous products of a warpgroup. Written from the PTX
// ISA's text on matrix descriptors, canonical layouts and fragments of wgmma.m64nNk16, and not from the
// functions that make the descriptors; test_warpgroup_matrix.cpp checks it against another description.
//
// A product may happen at any time between its start and its wait. So half of them, chosen at random, happen
// at the start and half at the wait: operands that arrive too late or are overwritten too early give wrong
// numbers. From its start until its wait the sums of a product are NaN. The program stops where
//   - registers are given to a product without order_registers since the last wait, or change during it,
//   - a thread of the block has finished copies and not published them,
//   - warps of a warpgroup start different products, or a block ends with products that were not waited for.
#pragma once

#include <cmath>
#include <compare>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <set>
#include <vector>

#include "tests/emulation/include/cuda/core/warp_matrix.cuh"

namespace eddy::cuda {

namespace emulated {

// ---- operands in shared memory

// The block's dynamic shared memory, looked up once for many numbers.
class SharedMemory {
 public:
  bf16 read(std::uint64_t address) const {
    const std::int64_t at = static_cast<std::int64_t>(address) - kSharedStart;
    if (at < 0 || at + 2 > bytes_)
      emulation::stop("a product reads address %lld of shared memory", static_cast<long long>(address));
    bf16 x;
    std::memcpy(static_cast<void*>(&x), start_ + at, 2);
    return x;
  }

 private:
  const char* start_ = static_cast<const char*>(emulation::shared_memory());
  std::int64_t bytes_ = emulation::shared_bytes();
};

// One operand, with numbers (mn, k): mn along the sums, k along what is summed over.
class SharedMatrix {
 public:
  SharedMatrix(std::uint64_t descriptor, bool k_major)
      : start_(field(descriptor, 0, 14) << 4),
        leading_(field(descriptor, 16, 14) << 4),
        stride_(field(descriptor, 32, 14) << 4),
        k_major_(k_major) {
    if (field(descriptor, 49, 3) != 0) emulation::stop("a descriptor with a base offset");
    switch (field(descriptor, 62, 2)) {
      case 1:
        span_ = 128;
        break;
      case 2:
        span_ = 64;
        break;
      default:
        emulation::stop("a descriptor whose swizzle is neither 128 nor 64 bytes");
    }
  }
  // In units of 8 elements of 16 bits, 16 bytes: T = 8. The swizzle's span of bytes is contiguous along the
  // leading dimension; 8 such rows make a pattern.
  bf16 at(std::uint64_t mn, std::uint64_t k) const {
    const std::uint64_t wide = span_ / 2;  // elements of a row of the pattern
    std::uint64_t address = start_;
    if (k_major_)  // ((8, m), (T, 2)) : ((wide, SBO), (1, T))
      address += mn % 8 * span_ + mn / 8 * stride_ + 2 * k;
    else  // ((T, wide / T, m), (8, 2)) : ((1, T, LBO), (wide, SBO))
      address += 2 * (mn % wide) + mn / wide * leading_ + k % 8 * span_ + k / 8 * stride_;
    const std::uint64_t rows = address >> 7 & (span_ / 16 - 1);  // bits 7, 8 and, of 128 bytes, 9
    return memory_.read(address ^ rows << 4);
  }

 private:
  static std::uint64_t field(std::uint64_t bits, int from, int count) {
    return bits >> from & ((std::uint64_t{1} << count) - 1);
  }
  SharedMemory memory_;
  std::uint64_t start_, leading_, stride_, span_ = 0;
  bool k_major_;
};

// What a product sees of a descriptor besides the address.
struct OperandKind {
  std::uint64_t fields;
  bool k_major;

  static OperandKind of(std::uint64_t descriptor, bool k_major) { return {descriptor >> 14, k_major}; }
  auto operator<=>(const OperandKind&) const = default;
};
// Those of all products so far.
inline std::set<OperandKind>& operand_kinds() {
  static std::set<OperandKind> kinds;
  return kinds;
}

// ---- asynchronous products

struct Product {
  std::uint64_t left, right;  // descriptors; left is not used if A is in registers
  int columns;
  bool from_registers, left_across, across, add;

  bool operator==(const Product&) const = default;
};

// A thread's part of a product: rows 16 w + g and + 8, columns 8 n + 2 t and + 1.
struct Part {
  Product product;
  float* sums;                 // [columns / 8][4]
  const std::uint32_t* place;  // the thread's registers of A
  std::uint32_t own[4];
  std::uint32_t rows[2][4][2];  // of A in registers: [row half][t][column half], of the lanes with row g
};

inline void compute(const Part& part, std::vector<float>& sums) {
  float left[2][16];
  if (part.product.from_registers) {
    for (int half = 0; half < 2; ++half)
      for (std::size_t k = 0; k < 16; ++k)
        left[half][k] = half_of(part.rows[half][k % 8 / 2][k / 8], static_cast<int>(k % 2));
  } else {
    const SharedMatrix matrix(part.product.left, !part.product.left_across);
    const std::uint64_t row = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
    for (std::uint64_t half = 0; half < 2; ++half)
      for (std::uint64_t k = 0; k < 16; ++k) left[half][k] = matrix.at(row + 8 * half, k);
  }
  const SharedMatrix matrix(part.product.right, !part.product.across);
  const auto columns = static_cast<std::uint64_t>(part.product.columns);
  for (std::uint64_t n = 0; n < columns / 8; ++n)
    for (std::uint64_t odd = 0; odd < 2; ++odd) {
      float right[16];
      for (std::uint64_t k = 0; k < 16; ++k) right[k] = matrix.at(8 * n + threadIdx.x % 4 * 2 + odd, k);
      for (std::uint64_t half = 0; half < 2; ++half) {
        const std::size_t at = 4 * n + 2 * half + odd;
        float sum = part.product.add ? sums[at] : 0;
        for (std::size_t k = 0; k < 16; ++k) sum += left[half][k] * right[k];
        sums[at] = sum;
      }
    }
}

// Sums of products in flight: their true values.
struct Sums {
  std::vector<float> numbers;
  int under_way = 0;
  bool early = false;
};

struct Thread {
  unsigned block = 0;
  bool ordered = false;
  std::size_t started = 0;
  std::vector<Part> open;
  std::deque<std::vector<Part>> groups;
  std::map<float*, Sums> sums;
};

// What a block's warpgroups have started, recorded by the first warp to do so; a new block starts empty.
struct Block {
  unsigned number = 0;
  std::vector<Product> started[8];
  std::uint32_t random = 1;
};

struct Threads {
  std::vector<Thread> threads = std::vector<Thread>(1024);
};
inline Thread& background() {
  Thread& mine = of_place<Threads>().threads[threadIdx.x];
  if (mine.block != emulation::block_count()) {
    if (!mine.sums.empty() || !mine.open.empty()) emulation::stop("a block ended before its products");
    mine = Thread{};
    mine.block = emulation::block_count();
  }
  return mine;
}
inline Block& block() {
  Block& current = of_place<Block>();
  if (current.number != emulation::block_count()) {
    const std::uint32_t random = current.random;
    current = Block{};
    current.number = emulation::block_count();
    current.random = random;
  }
  return current;
}

inline void start(const Product& product, float* sums, const std::uint32_t* left) {
  Thread& mine = background();
  // Operands has room for the values that the lanes must agree on, and for A.
  Operands operands{4u + (product.from_registers ? 1u : 0u), {}, {}, nullptr};
  if (left != nullptr) std::memcpy(operands.a, left, sizeof operands.a);
  const Warp warp(operands);
  if (unpublished().count != 0) emulation::stop("a copy was finished and not published before a product");
  std::vector<Product>& group = block().started[threadIdx.x / 128];
  if (mine.started == group.size()) {
    group.push_back(product);
    operand_kinds().insert(OperandKind::of(product.right, !product.across));
    if (!product.from_registers) operand_kinds().insert(OperandKind::of(product.left, !product.left_across));
  }
  if (!(group[mine.started++] == product)) emulation::stop("warps of a warpgroup start different products");

  Part part{product, sums, left, {}, {}};
  if (left != nullptr) {
    std::memcpy(part.own, left, sizeof part.own);
    const int g = static_cast<int>(threadIdx.x % 32) / 4;
    for (int half = 0; half < 2; ++half)
      for (int t = 0; t < 4; ++t)
        for (int upper = 0; upper < 2; ++upper)
          part.rows[half][t][upper] = warp.of(4 * g + t).a[half + 2 * upper];
  }
  const auto count = static_cast<std::size_t>(product.columns / 2);
  const auto [found, is_new] = mine.sums.try_emplace(sums);
  Sums& state = found->second;
  if (!mine.ordered && (is_new || left != nullptr))
    emulation::stop("a product without order_registers before");
  if (is_new) {
    state.numbers.assign(sums, sums + count);
    Block& here = block();
    here.random = here.random * 1664525u + 1013904223u;
    state.early = here.random >> 31 != 0;
    for (std::size_t i = 0; i < count; ++i) sums[i] = NAN;
  }
  if (state.numbers.size() != count) emulation::stop("products of different shapes share sums");
  ++state.under_way;
  if (state.early) compute(part, state.numbers);
  mine.open.push_back(part);
}

inline void finish(Thread& mine, const Part& part) {
  if (part.place != nullptr && std::memcmp(part.place, part.own, sizeof part.own) != 0)
    emulation::stop("a left operand in registers changed before its product was waited for");
  Sums& state = mine.sums.at(part.sums);
  if (!state.early) compute(part, state.numbers);
  if (--state.under_way > 0) return;
  std::memcpy(part.sums, state.numbers.data(), state.numbers.size() * sizeof(float));
  mine.sums.erase(part.sums);
}

}  // namespace emulated

inline void publish_shared() {
  emulated::mark_published(true);
}
template <class... Registers>
void order_registers(Registers&...) {
  emulated::background().ordered = true;
}
inline void commit_products() {
  emulated::Thread& mine = emulated::background();
  mine.groups.push_back(std::move(mine.open));
  mine.open.clear();
}

template <int Pending>
void wait_products() {
  emulated::Thread& mine = emulated::background();
  while (mine.groups.size() > Pending) {
    for (const emulated::Part& part : mine.groups.front()) emulated::finish(mine, part);
    mine.groups.pop_front();
  }
  mine.ordered = false;
}
template <int Pending, int Tiles>
void wait_products(float (&sums)[Tiles][4]) {
  wait_products<Pending>();
  const emulated::Thread& mine = emulated::background();
  if (mine.sums.count(&sums[0][0]) != 0) emulation::stop("the wait does not reach the sums it is for");
}

template <class Registers>
void hold_registers(Registers&) {}

template <int Registers>
void give_registers_back() {}
template <int Registers>
void take_registers() {}

template <int N, bool AcrossLeft = false, bool AcrossRight = AcrossLeft>
void multiply_warpgroup(float (&sums)[N / 8][4], std::uint64_t left, std::uint64_t right, bool add) {
  emulated::start({left, right, N, false, AcrossLeft, AcrossRight, add}, &sums[0][0], nullptr);
}
template <int N, bool Across>
void multiply_warpgroup(float (&sums)[N / 8][4], const std::uint32_t (&left)[4], std::uint64_t right,
                        bool add) {
  emulated::start({0, right, N, true, false, Across, add}, &sums[0][0], left);
}

}  // namespace eddy::cuda
