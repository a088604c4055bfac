// The emulated products of a warpgroup, tested against other descriptions of their operands than the one they
// were written from: the layouts of the PTX ISA's worked examples, the strides of (threads, values) that
// CUTLASS's CuTe gives for a product of 64 x N (cute/atom/mma_traits_sm90_gmma.hpp), and plain loops. Also:
// the tiles and descriptors of the attention kernels, and that broken rules are reported.
#include <doctest/doctest.h>

#include <string>

#include "cuda/attention/attention_tensor_core.h"
#include "cuda/attention/attention_wgmma.cuh"
#include "ops/backends.h"
#include "ops/core/warnings.h"
#include "tests/emulation/matrices.h"
#include "tests/gpu/support/gpu_test.h"
#include "tests/support/processes.h"

using namespace eddy;
using namespace eddy::cuda;
using namespace eddy::gpu_test;

namespace {

Tensor run(void (*kernel)(Matrices), const Tensor& a, const Tensor& b, const Shape& shape,
           int threads = 128) {
  const Tensor gpu_a = to_gpu(a), gpu_b = to_gpu(b), c = Tensor::full(shape, 0, Dtype::f32, gpu());
  launch_shared("test_warpgroup_matrix", kernel, 1, threads, 160 << 10,
                Matrices{static_cast<const float*>(gpu_a.raw_data()),
                         static_cast<const float*>(gpu_b.raw_data()), static_cast<float*>(c.raw_data())});
  return to_cpu(c);
}

// ---- layouts, by hand

// The place of 16-byte piece c of row r, in a pattern of 8 rows of `span` bytes, from the drawings of the
// swizzled layouts: the tables' rows are r. With 64 bytes two rows share one line of the drawing.
const int kPlaces128[8][8] = {{0, 1, 2, 3, 4, 5, 6, 7}, {1, 0, 3, 2, 5, 4, 7, 6}, {2, 3, 0, 1, 6, 7, 4, 5},
                              {3, 2, 1, 0, 7, 6, 5, 4}, {4, 5, 6, 7, 0, 1, 2, 3}, {5, 4, 7, 6, 1, 0, 3, 2},
                              {6, 7, 4, 5, 2, 3, 0, 1}, {7, 6, 5, 4, 3, 2, 1, 0}};
const int kPlaces64[8][4] = {{0, 1, 2, 3}, {0, 1, 2, 3}, {1, 0, 3, 2}, {1, 0, 3, 2},
                             {2, 3, 0, 1}, {2, 3, 0, 1}, {3, 2, 1, 0}, {3, 2, 1, 0}};

// Returns where number `column` of row `row` is, in a pattern of consecutive rows.
template <int Span>
int place_of(int row, int column) {
  const int place = Span == 128 ? kPlaces128[row % 8][column / 8] : kPlaces64[row % 8][column / 8];
  return row * Span / 2 + place * 8 + column % 8;
}

// A [64, 16] B [16, N], where N is the numbers of a row of the swizzle. A has rows of 16 in the first columns
// of its pattern, or, with Across and not in registers, 16 rows of 64. B has its columns as rows, as A, or, with
// Across, 16 rows of N. Fragments have the strides
// of CuTe: thread ((t, g, w), value (i, j, n)) has C at the column-major offset
//
//   128 t + g + 16 w + 64 i + 8 j + 512 n
template <int Span, bool Across, bool Held>
void product_kernel(Matrices args) {
  constexpr int N = Span / 2;
  bf16* const left = first_tile();
  bf16* const right = left + 64 * N;
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < 64 * 16; i += 128)
    left[Across && !Held ? place_of<Span>(i % 16, i / 16) : place_of<Span>(i / 16, i % 16)] = bf16(args.a[i]);
  for (int i = thread; i < 16 * N; i += 128) {
    const int k = i / N, n = i % N;
    right[Across ? place_of<Span>(k, n) : place_of<Span>(n, k)] = bf16(args.b[i]);
  }
  publish_shared();
  __syncthreads();
  const auto address = [](const bf16* tile) { return static_cast<std::uint64_t>(shared_address(tile)) >> 4; };
  const std::uint64_t kMode = static_cast<std::uint64_t>(Span == 128 ? 1 : 2) << 62,
                      kStride = static_cast<std::uint64_t>(8 * Span / 16) << 32, kOne = 1 << 16;
  const int t = thread % 4, g = thread / 4 % 8, w = thread / 32;
  float c[N / 8][4] = {};
  std::uint32_t a[4];
  for (int j = 0; j < 2; ++j)
    for (int n = 0; n < 2; ++n) {
      const auto number = [&](int i) {
        const int place = 128 * t + g + 16 * w + 64 * i + 8 * j + 512 * n;
        return args.a[place % 64 * 16 + place / 64];
      };
      a[j + 2 * n] = pack(number(0), number(1));
    }
  order_registers();
  if constexpr (Held)
    multiply_warpgroup<N, Across>(c, a, address(right) | kOne | kStride | kMode, false);
  else
    multiply_warpgroup<N, Across>(c, address(left) | kOne | kStride | kMode,
                                  address(right) | kOne | kStride | kMode, false);
  commit_products();
  wait_products<0>(c);
  for (int n = 0; n < N / 8; ++n)
    for (int j = 0; j < 2; ++j)
      for (int i = 0; i < 2; ++i) {
        const int place = 128 * t + g + 16 * w + 64 * i + 8 * j + 512 * n;
        args.c[place % 64 * N + place / 64] = c[n][i + 2 * j];
      }
}

// ---- the tiles of attention C [128, 64] = A [128, H] B [64, H]^T, or with Across C [128, H] = A [128, 64] B
// [64, H], by the functions of the attention kernels, with 256 threads.
constexpr int kBlockRows = Block<2>::kRows;
template <int H, bool Across, bool Held>
void tiles_kernel(Matrices args) {
  constexpr int kInner = Across ? 64 : H, kColumns = Across ? H : 64;
  bf16* const left = first_tile();
  bf16* const right = left + kBlockRows * kInner;
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < kBlockRows * kInner; i += Block<2>::kThreads) {
    const int row = i / kInner, column = i % kInner;
    piece_of<kInner, kBlockRows>(left, row, column / 8)[column % 8] = bf16(args.a[i]);
  }
  for (int i = thread; i < 64 * H; i += Block<2>::kThreads)
    piece_of<H, 64>(right, i / H, i % H / 8)[i % 8] = bf16(args.b[i]);
  publish_shared();
  __syncthreads();
  float c[kColumns / 8][4] = {};
  const SwizzledRows<kInner, kBlockRows> rows{left, warp() * 16};
  RegisterRows<kInner> held(rows);
  if constexpr (Across) {
    Rounded<64> weights;
    for (int k = 0; k < 4; ++k) held.load(k, weights.parts[k]);
    start_row_mixes<H, 64>(weights, right, c);
    commit_products();
    wait_products<0>(c);
  } else {
    if constexpr (Held)
      start_row_products<H>(held, right, c);
    else
      start_row_products<H>(rows, right, c);
    commit_products();
    wait_products<0>(c);
  }
  for (int pair = 0; pair < kColumns / 2; ++pair)
    args.c[(warp() * 16 + pair_row(pair)) * kColumns + pair_column(pair)] = c[pair / 4][pair % 4];
}

// ---- rules

enum class Fault {
  none,
  read_before_the_wait,   // gives NaN
  overwritten_too_early,  // gives wrong numbers whenever a product runs late
  not_ordered,
  left_changed,
  not_published,
  other_descriptor,
};

template <Fault Broken>
void rules_kernel(Matrices args) {
  bf16* const right = first_tile();
  bf16* const source = reinterpret_cast<bf16*>(args.c) + 64 * 128;  // zeros
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < 64 * 64; i += 128) right[i] = bf16(1.0f);
  start_copy(right + 8 * (64 * 8 + thread), source, true);
  finish_copies();
  if (Broken != Fault::not_published) publish_shared();
  __syncthreads();
  float c[8][4] = {};
  std::uint32_t a[4];
  for (std::uint32_t& both : a) both = pack(1, 1);
  if (Broken != Fault::not_ordered) order_registers();
  const bf16* const from = Broken == Fault::other_descriptor && thread >= 96 ? right + 64 * 16 : right;
  multiply_warpgroup<64, true>(c, a, AcrossOperand<64, 64>(from).rows(0), false);
  commit_products();
  if (Broken == Fault::left_changed) a[1] = 0;
  if (Broken == Fault::read_before_the_wait) args.c[thread] = c[0][0];
  if (Broken == Fault::overwritten_too_early) {
    __syncthreads();
    right[thread] = bf16(5.0f);
    __syncthreads();
  }
  wait_products<0>(c);
  if (Broken != Fault::read_before_the_wait) args.c[thread] = c[0][0];
}

template <Fault Broken>
Tensor run_rules() {
  const Tensor one = whole({1, 1}, 0);
  return run(rules_kernel<Broken>, one, one, {128, 128});
}
// A kernel of 128 threads; the right result is 16.
template <Fault Broken>
int wrong_of_rules() {
  const Tensor c = run_rules<Broken>();
  int wrong = 0;
  for (int i = 0; i < 128; ++i) wrong += !(c.data<float>()[i] == 16.0f);
  return wrong;
}

// Returns what is printed before the process ends.
template <Fault Broken>
std::string report() {
  cuda::synchronize();
  const std::string text = test::report_of(run_rules<Broken>);
  return text == "ended well" ? "" : text;
}

}  // namespace

TEST_SUITE("device") {
  TEST_CASE("the emulated product of a warpgroup has its operands where drawings and strides put them") {
    const Tensor a = whole({64, 16}, 1), b64 = whole({16, 64}, 2), b32 = whole({16, 32}, 3);
    CHECK(wrong_entries(a, b64, false, run(product_kernel<128, false, false>, a, b64, {64, 64})) == 0);
    CHECK(wrong_entries(a, b64, false, run(product_kernel<128, false, true>, a, b64, {64, 64})) == 0);
    CHECK(wrong_entries(a, b64, false, run(product_kernel<128, true, true>, a, b64, {64, 64})) == 0);
    CHECK(wrong_entries(a, b64, false, run(product_kernel<128, true, false>, a, b64, {64, 64})) == 0);
    CHECK(wrong_entries(a, b32, false, run(product_kernel<64, false, false>, a, b32, {64, 32})) == 0);
    CHECK(wrong_entries(a, b32, false, run(product_kernel<64, true, true>, a, b32, {64, 32})) == 0);
  }

  TEST_CASE("tiles of attention give the products of their matrices by rows and across") {
    const Tensor a32 = whole({128, 32}, 4), a64 = whole({128, 64}, 5), a128 = whole({128, 128}, 6);
    const Tensor b32 = whole({64, 32}, 7), b64 = whole({64, 64}, 8), b128 = whole({64, 128}, 9);
    CHECK(wrong_entries(a32, b32, true, run(tiles_kernel<32, false, false>, a32, b32, {128, 64}, 256)) == 0);
    CHECK(wrong_entries(a32, b32, true, run(tiles_kernel<32, false, true>, a32, b32, {128, 64}, 256)) == 0);
    CHECK(wrong_entries(a64, b64, true, run(tiles_kernel<64, false, false>, a64, b64, {128, 64}, 256)) == 0);
    CHECK(wrong_entries(a64, b64, true, run(tiles_kernel<64, false, true>, a64, b64, {128, 64}, 256)) == 0);
    CHECK(wrong_entries(a128, b128, true, run(tiles_kernel<128, false, false>, a128, b128, {128, 64}, 256)) ==
          0);
    CHECK(wrong_entries(a128, b128, true, run(tiles_kernel<128, false, true>, a128, b128, {128, 64}, 256)) ==
          0);
    CHECK(wrong_entries(a64, b32, false, run(tiles_kernel<32, true, true>, a64, b32, {128, 32}, 256)) == 0);
    CHECK(wrong_entries(a64, b64, false, run(tiles_kernel<64, true, true>, a64, b64, {128, 64}, 256)) == 0);
    CHECK(wrong_entries(a64, b128, false, run(tiles_kernel<128, true, true>, a64, b128, {128, 128}, 256)) ==
          0);
  }

  TEST_CASE("sums read before the wait and tiles overwritten before it give wrong numbers") {
    int wrong = 0, wrong_overwritten = 0;
    for (int launch = 0; launch < 8; ++launch) {
      wrong += wrong_of_rules<Fault::none>();
      wrong_overwritten += wrong_of_rules<Fault::overwritten_too_early>();
    }
    CHECK(wrong == 0);
    CHECK(wrong_overwritten > 0);
    CHECK(wrong_of_rules<Fault::read_before_the_wait>() == 128);
  }

  TEST_CASE("products of a warpgroup that break a rule are reported") {
    CHECK(report<Fault::none>().empty());
    CHECK(report<Fault::not_ordered>().find("without order_registers") != std::string::npos);
    CHECK(report<Fault::left_changed>().find("changed before its product was waited for") !=
          std::string::npos);
    CHECK(report<Fault::not_published>().find("not published before a product") != std::string::npos);
    CHECK(report<Fault::other_descriptor>().find("start different products") != std::string::npos);
  }

  TEST_CASE("the kernel of attention is chosen by type, sizes and GPU unless one is asked for") {
    AttentionArgs args{};
    args.dtype = Dtype::bf16;
    args.head_size = 64;
    args.queries = 65;
    const auto kernel = [&args](const char* choice) {
      set_gpu_kernels(choice);
      return attention_kernel(args);
    };
    CHECK(kernel("plain") == Kernel::plain);
    CHECK(kernel("attention=mma") == Kernel::mma);
    CHECK(kernel("attention=wgmma") == Kernel::wgmma);
    CHECK(kernel("auto") == Kernel::wgmma);
    args.queries = 64;
    CHECK(kernel("auto") == Kernel::mma);
    CHECK(kernel("attention=wgmma") == Kernel::wgmma);
    args.head_size = 40;
    CHECK(kernel("auto") == Kernel::plain);
    CHECK(take_warnings().empty());
    CHECK(kernel("attention=wgmma") == Kernel::plain);
    CHECK(take_warnings().size() == 1);
  }
}
