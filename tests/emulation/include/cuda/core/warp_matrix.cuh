// Replaces cuda/core/warp_matrix.cuh: a warp's matrix instructions and asynchronous copies, by exchanges
// between its threads. The layouts are those of the PTX ISA; test_warp_matrix.cpp checks them against another
// description. The target of a copy holds NaN from its start until finish_copies, which reveals a kernel that
// reads it too early, or starts a copy onto data that is still read.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tensor/base/dtype.h"

namespace eddy::cuda {

namespace emulated {

// What a lane passes to an exchange: its instruction and the operands.
struct Operands {
  std::uint32_t instruction;
  std::uint32_t a[4], b[2];
  const bf16* row;
};
static_assert(sizeof(Operands) <= emulation::kLaneBytes);

class Warp {
 public:
  explicit Warp(const Operands& mine) : all_(emulation::exchange(&mine, sizeof mine)) {
    static_assert(offsetof(Operands, instruction) == 0);
    for (std::size_t lane = 0; lane < 32; ++lane) {
      std::uint32_t instruction;  // alone: a copy of all operands would take longer
      std::memcpy(&instruction, all_ + lane * emulation::kLaneBytes, sizeof instruction);
      if (instruction != mine.instruction) emulation::stop("lanes at different matrix instructions");
    }
  }
  Operands of(int lane) const {
    Operands operands;
    std::memcpy(&operands, all_ + static_cast<std::size_t>(lane) * emulation::kLaneBytes, sizeof operands);
    return operands;
  }

 private:
  const unsigned char* all_;
};

inline float half_of(std::uint32_t both, int upper) {
  bf16 x;
  x.bits = static_cast<std::uint16_t>(upper != 0 ? both >> 16 : both);
  return x;
}
inline std::uint32_t join(bf16 low, bf16 high) {
  return static_cast<std::uint32_t>(high.bits) << 16 | low.bits;
}

// A number of TF32: f32 without its last 13 bits. A NaN may have any.
inline float tf32_of(std::uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  if (x == x && (bits & 0x1fffu) != 0) emulation::stop("an operand of a product of TF32 was not rounded");
  return x;
}

inline void load(std::uint32_t (&to)[4], const void* row, bool transposed) {
  if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0) emulation::stop("a row of a matrix is not aligned");
  const Warp warp({transposed ? 2u : 1u, {}, {}, static_cast<const bf16*>(row)});
  const int lane = static_cast<int>(threadIdx.x % 32), group = lane / 4, place = lane % 4 * 2;
  for (int matrix = 0; matrix < 4; ++matrix) {
    const auto at = [&](int r, int column) { return warp.of(8 * matrix + r).row[column]; };
    to[matrix] = transposed ? join(at(place, group), at(place + 1, group))
                            : join(at(group, place), at(group, place + 1));
  }
}

struct Copy {
  void* to;
  const void* from;
  unsigned block;
};
// What each place of resident blocks has of its own.
template <class T>
T& of_place() {
  static std::vector<T> all(emulation::kMostBlocks);
  return all[static_cast<std::size_t>(emulation::place_of_block())];
}

// The copies that a thread has started and not finished.
struct Copies {
  std::vector<Copy> of_thread[1024];
};
inline std::vector<Copy>& copies() {
  return of_place<Copies>().of_thread[threadIdx.x];
}

// Addresses in shared memory start here: a multiple of 16 and of nothing larger, as kernels must expect.
constexpr std::int64_t kSharedStart = 1040;

// Threads that have finished copies and not published them to asynchronous products. A new block has none.
struct Unpublished {
  unsigned block = 0;
  int count = 0;
  bool threads[1024] = {};
};
inline Unpublished& unpublished() {
  Unpublished& current = of_place<Unpublished>();
  if (current.block != emulation::block_count()) {
    current = Unpublished{};
    current.block = emulation::block_count();
  }
  return current;
}
inline void mark_published(bool is) {
  Unpublished& all = unpublished();
  bool& waits = all.threads[threadIdx.x];
  all.count += static_cast<int>(!is) - static_cast<int>(waits);
  waits = !is;
}

}  // namespace emulated

inline void multiply_matrices(float (&sums)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                              std::uint32_t b1) {
  const emulated::Warp warp({3, {a[0], a[1], a[2], a[3]}, {b0, b1}, nullptr});
  const int lane = static_cast<int>(threadIdx.x % 32);
  // The two rows of A and the two columns of B whose products are this lane's.
  float rows[2][16], columns[2][16];
  for (int half = 0; half < 2; ++half)
    for (int place = 0; place < 4; ++place) {
      const emulated::Operands left = warp.of(lane / 4 * 4 + place),
                               right = warp.of((lane % 4 * 2 + half) * 4 + place);
      for (int upper = 0; upper < 2; ++upper)
        for (int k = 0; k < 2; ++k) {
          const int at = 8 * upper + 2 * place + k;
          rows[half][at] = emulated::half_of(left.a[half + 2 * upper], k);
          columns[half][at] = emulated::half_of(right.b[upper], k);
        }
    }
  for (int i = 0; i < 4; ++i) {
    float sum = sums[i];
    for (int k = 0; k < 16; ++k) sum += rows[i / 2][k] * columns[i % 2][k];
    sums[i] = sum;
  }
}

inline void multiply_tf32(float (&sums)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  const emulated::Warp warp({4, {a[0], a[1], a[2], a[3]}, {b0, b1}, nullptr});
  const int lane = static_cast<int>(threadIdx.x % 32);
  float rows[2][8], columns[2][8];
  for (int half = 0; half < 2; ++half)
    for (int place = 0; place < 4; ++place) {
      const emulated::Operands left = warp.of(lane / 4 * 4 + place),
                               right = warp.of((lane % 4 * 2 + half) * 4 + place);
      for (int upper = 0; upper < 2; ++upper) {
        rows[half][4 * upper + place] = emulated::tf32_of(left.a[half + 2 * upper]);
        columns[half][4 * upper + place] = emulated::tf32_of(right.b[upper]);
      }
    }
  for (int i = 0; i < 4; ++i) {
    float sum = sums[i];
    for (int k = 0; k < 8; ++k) sum += rows[i / 2][k] * columns[i % 2][k];
    sums[i] = sum;
  }
}
inline std::uint32_t round_tf32(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  if (x != x) return 0x7fffffffu;
  return (bits & 0x7f800000u) == 0x7f800000u ? bits : (bits + 0x1000u) & 0xffffe000u;
}

inline void load_matrices(std::uint32_t (&to)[4], const void* row) {
  emulated::load(to, row, false);
}
inline void load_matrices_transposed(std::uint32_t (&to)[4], const bf16* row) {
  emulated::load(to, row, true);
}

inline void start_copy(void* to, const void* from, bool there) {
  if (reinterpret_cast<std::uintptr_t>(to) % 16 != 0 || reinterpret_cast<std::uintptr_t>(from) % 16 != 0)
    emulation::stop("a copy in the background is not aligned");
  std::memset(to, 0xff, 16);
  emulated::copies().push_back({to, there ? from : nullptr, blockIdx.x});
}
inline void finish_copies() {
  for (const emulated::Copy& copy : emulated::copies()) {
    if (copy.block != blockIdx.x) emulation::stop("a copy was not finished by block %u", copy.block);
    if (copy.from != nullptr)
      std::memcpy(copy.to, copy.from, 16);
    else
      std::memset(copy.to, 0, 16);
  }
  if (!emulated::copies().empty()) emulated::mark_published(false);
  emulated::copies().clear();
}

inline unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(static_cast<const char*>(pointer) -
                               static_cast<const char*>(emulation::shared_memory()) + emulated::kSharedStart);
}

inline std::uint32_t pack(float low, float high) {
  return emulated::join(bf16(low), bf16(high));
}

inline float fast_exp2(float x) {
  const float y = exp2f(x);
  return y < 0x1p-126f ? 0.0f : y;
}

template <class T>
void store_whole(void* to, const T& value) {
  static_assert(sizeof(T) == 16);
  *static_cast<T*>(to) = value;
}

}  // namespace eddy::cuda
