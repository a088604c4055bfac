// The emulated matrix instructions of a warp, tested against a second description of their operands: the
// strides of (threads, values) that CUTLASS's CuTe gives for the products m16n8k16 of bf16 and m16n8k8 of TF32
// (cute/atom/mma_traits_sm80.hpp). Also: the operands that attention loads from tiles, against plain loops.
#include <doctest/doctest.h>

#include <cmath>

#include "cuda/attention/attention_tensor_core.cuh"
#include "tests/emulation/matrices.h"
#include "tests/gpu/support/gpu_test.h"
#include "tests/support/spec_check.h"

using namespace eddy;
using namespace eddy::cuda;
using namespace eddy::gpu_test;

namespace {

// A thread is (t, g) = (lane % 4, lane / 4); its values are (i, j, k) by bits from the lowest. The offsets,
// by columns:
//
//   A [m, k]   32 t + g + 16 i + 8 j + 128 k
//   B [n, k]   16 t + g + 8 i + 64 j
//   C [m, n]   32 t + g + 16 i + 8 j
void product_kernel(Matrices args) {
  const int t = lane() % 4, g = lane() / 4;
  const auto value = [](const float* from, int place, int rows, int columns) {
    return from[place % rows * columns + place / rows];
  };
  std::uint32_t a[4], b[2];
  for (int j = 0; j < 2; ++j) {
    for (int k = 0; k < 2; ++k) {
      const int place = 32 * t + g + 8 * j + 128 * k;
      a[j + 2 * k] = pack(value(args.a, place, 16, 16), value(args.a, place + 16, 16, 16));
    }
    const int place = 16 * t + g + 64 * j;
    b[j] = pack(value(args.b, place, 8, 16), value(args.b, place + 8, 8, 16));
  }
  float c[4] = {};
  multiply_matrices(c, a, b[0], b[1]);
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2; ++j) {
      const int place = 32 * t + g + 16 * i + 8 * j;
      args.c[place % 16 * 8 + place / 16] = c[i + 2 * j];
    }
}

// The same of TF32; values are (i, j). C is that of bf16.
//
//   A [m, k]   16 t + g + 8 i + 64 j
//   B [n, k]   8 t + g + 32 i
void tf32_product_kernel(Matrices args) {
  const int t = lane() % 4, g = lane() / 4;
  std::uint32_t a[4], b[2];
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 2; ++j) {
      const int place = 16 * t + g + 8 * i + 64 * j;
      a[i + 2 * j] = round_tf32(args.a[place % 16 * 8 + place / 16]);
    }
    const int place = 8 * t + g + 32 * i;
    b[i] = round_tf32(args.b[place % 8 * 8 + place / 8]);
  }
  float c[4] = {};
  multiply_tf32(c, a, b[0], b[1]);
  for (int pair = 0; pair < 4; ++pair) args.c[pair_row(pair) * 8 + pair_column(pair)] = c[pair];
}

// C [16, 32] = A B of TF32 from tiles in shared memory, of A [16, 32] by rows and B [32, 32], whose rows are columns of
// the product; then, with Mixes, of A from accumulators and B as it lies.
template <bool Mixes>
void tf32_tiles_kernel(Matrices args) {
  float* const left = shared_memory();
  float* const right = left + 16 * tensor_row<float>(32);
  for (int i = lane(); i < 32 * 32; i += 32) {
    const int row = i / 32, column = i % 32;
    if (row < 16) left[row * tensor_row<float>(32) + column] = args.a[i];
    right[(Mixes ? row : column) * tensor_row<float>(32) + (Mixes ? column : row)] = args.b[i];
  }
  __syncwarp();
  float c[4][4] = {};
  if constexpr (Mixes) {
    float weights[4][4];
    for (int pair = 0; pair < 16; ++pair)
      weights[pair / 4][pair % 4] = args.a[pair_row(pair) * 32 + pair_column(pair)];
    add_row_mixes<32, 32>(weights, right, c);
    for (int half = 0; half < 2; ++half)
      for (int j = 0; j < 8; ++j)
        args.c[(own_row() + 8 * half) * 32 + ResultColumns<float>::first(0) + j] =
            ResultColumns<float>::at(c, half, 0, j);
  } else {
    add_row_products<32, 32>(ReadRows<32, float>{left}, right, c);
    for (int pair = 0; pair < 16; ++pair)
      args.c[pair_row(pair) * 32 + pair_column(pair)] = c[pair / 4][pair % 4];
  }
}

// C [16, 16] = A B with A [16, 16] and B [16, 16], each loaded from shared memory as stored or transposed.
template <bool LeftTransposed, bool RightAcross>
void tiles_kernel(Matrices args) {
  bf16* const left = reinterpret_cast<bf16*>(shared_memory());
  bf16* const right = left + 16 * tensor_row(32);
  for (int i = lane(); i < 16 * 16; i += 32) {
    const int row = i / 16, column = i % 16;
    left[(LeftTransposed ? column : row) * tensor_row(32) + (LeftTransposed ? row : column)] =
        bf16(args.a[i]);
    right[(RightAcross ? row : column) * tensor_row(32) + (RightAcross ? column : row)] = bf16(args.b[i]);
  }
  __syncwarp();
  std::uint32_t a[4], b[4];
  if constexpr (LeftTransposed)
    load_left_transposed<32>(a, left);
  else
    load_left<32>(a, left);
  if constexpr (RightAcross)
    load_right_across<32>(b, right);
  else
    load_right<32>(b, right);
  float c[2][4] = {};
  multiply_matrices(c[0], a, b[0], b[1]);
  multiply_matrices(c[1], a, b[2], b[3]);
  for (int pair = 0; pair < 8; ++pair)
    args.c[pair_row(pair) * 16 + pair_column(pair)] = c[pair / 4][pair % 4];
}

// c is 1 where the target of a copy holds NaN before finish_copies and the right number after it.
void copies_kernel(Matrices args) {
  bf16* const place = reinterpret_cast<bf16*>(shared_memory()) + 8 * lane();
  const bf16* const from = reinterpret_cast<const bf16*>(args.a);
  for (int e = 0; e < 8; ++e) place[e] = bf16(1.0f);
  start_copy(place, from + 8 * lane(), lane() % 2 == 0);
  bool right = true;
  for (int e = 0; e < 8; ++e) right = right && std::isnan(static_cast<float>(place[e]));
  finish_copies();
  for (int e = 0; e < 8; ++e)
    right = right && static_cast<float>(place[e]) ==
                         (lane() % 2 == 0 ? static_cast<float>(from[8 * lane() + e]) : 0.0f);
  args.c[lane()] = right ? 1.0f : 0.0f;
}

// Warp 0 writes a row that warp 1 reads, after as many exchanges as every warp makes.
template <bool Waits>
void two_warps_kernel(Matrices args) {
  float* const row = shared_memory();
  const auto exchange_often = [] {
    for (int i = 0; i < 50; ++i) __syncwarp();
  };
  exchange_often();
  if (warp() == 0) row[lane()] = args.a[lane()];
  if (Waits) __syncthreads();
  exchange_often();
  if (warp() == 1) args.c[lane()] = row[lane()];
}

Tensor run(void (*kernel)(Matrices), const Tensor& a, const Tensor& b, const Shape& shape, int threads = 32,
           int shared_bytes = 4096) {
  const Tensor gpu_a = to_gpu(a), gpu_b = to_gpu(b), c = Tensor::full(shape, 0, Dtype::f32, gpu());
  launch_shared("test_warp_matrix", kernel, 1, threads, shared_bytes,
                Matrices{static_cast<const float*>(gpu_a.raw_data()),
                         static_cast<const float*>(gpu_b.raw_data()), static_cast<float*>(c.raw_data())});
  return to_cpu(c);
}

}  // namespace

TEST_SUITE("device") {
  TEST_CASE("the emulated product of a warp has its operands where strides of threads and values put them") {
    const Tensor a = whole({16, 16}, 1), b = whole({8, 16}, 2);
    CHECK(wrong_entries(a, b, true, run(product_kernel, a, b, {16, 8})) == 0);
  }

  TEST_CASE("the emulated product of TF32 has its operands where strides put them, and tiles give the same") {
    const Tensor a = whole({16, 8}, 1), b = whole({8, 8}, 2);
    CHECK(wrong_entries(a, b, true, run(tf32_product_kernel, a, b, {16, 8})) == 0);
    const Tensor rows = whole({16, 32}, 3), others = whole({32, 32}, 4);
    CHECK(wrong_entries(rows, others, false,
                        run(tf32_tiles_kernel<false>, rows, others, {16, 32}, 32, 8192)) == 0);
    CHECK(wrong_entries(rows, others, false,
                        run(tf32_tiles_kernel<true>, rows, others, {16, 32}, 32, 8192)) == 0);
  }

  TEST_CASE("operands read from tiles as they are and transposed give the product of the tiles") {
    const Tensor a = whole({16, 16}, 3), b = whole({16, 16}, 4);
    CHECK(wrong_entries(a, b, false, run(tiles_kernel<false, false>, a, b, {16, 16})) == 0);
    CHECK(wrong_entries(a, b, false, run(tiles_kernel<false, true>, a, b, {16, 16})) == 0);
    CHECK(wrong_entries(a, b, false, run(tiles_kernel<true, false>, a, b, {16, 16})) == 0);
    CHECK(wrong_entries(a, b, false, run(tiles_kernel<true, true>, a, b, {16, 16})) == 0);
  }

  TEST_CASE("an emulated asynchronous copy shows NaN until it is finished and zeros where nothing is") {
    const Tensor numbers = raw::cast(whole({256}, 5), Dtype::bf16);
    const Tensor right = run(copies_kernel, numbers, numbers, {32});
    for (int lane = 0; lane < 32; ++lane) CHECK(right.data<float>()[lane] == 1.0f);
  }

  TEST_CASE("an emulated warp may run ahead of another so that a missing barrier shows") {
    const Tensor numbers = whole({32}, 6);
    int wrong = 0, wrong_without = 0;
    for (int launch = 0; launch < 30; ++launch) {
      wrong +=
          !spec_check::bit_difference("c", run(two_warps_kernel<true>, numbers, numbers, {32}, 64), numbers)
               .empty();
      wrong_without +=
          !spec_check::bit_difference("c", run(two_warps_kernel<false>, numbers, numbers, {32}, 64), numbers)
               .empty();
    }
    CHECK(wrong == 0);
    CHECK(wrong_without > 0);
  }
}
