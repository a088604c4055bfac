// Copies of boxes of a tensor and the barriers of phases that count their bytes: where a box comes, that broken rules
// are reported or give wrong numbers, and which calls of attention load so.
#include <doctest/doctest.h>

#include <string>
#include <tuple>

#include "cuda/attention/attention_tensor_core.h"
#include "cuda/attention/attention_wgmma.cuh"
#include "cuda/core/bulk_copy.cuh"
#include "ops/core/warnings.h"
#include "tests/gpu/support/attention_case.h"
#include "tests/support/processes.h"

using namespace eddy;
using namespace eddy::cuda;
using namespace eddy::detail;
using namespace eddy::gpu_test;

namespace {

constexpr int kBoxRows = 16, kSteps = 6, kPlaces = 2;  // boxes of 16 rows of 64 numbers, through two places

struct Boxes {
  TensorMap map;
  float* to;
};

// A map of the rows of a matrix, of which the GPU's memory has a copy.
Boxes boxes_of(const Tensor& matrix, const Tensor& to) {
  const auto map = map_of(
      {matrix.raw_data(), {matrix.dim(1), 1, matrix.dim(0), 1}, {0, matrix.dim(1), 0}, {64, 1, kBoxRows, 1}});
  REQUIRE(map);
  return {*map, static_cast<float*>(to.raw_data())};
}

// Writes the box from row -1 and column 32 on, by one thread.
void box_kernel(Boxes args) {
  bf16* const tile = first_tile();
  auto* const barrier = reinterpret_cast<PhaseBarrier*>(tile + kBoxRows * 64);
  if (threadIdx.x == 0) {
    init_barrier(barrier, 1);
    publish_barriers();
    arrive_expecting(barrier, 2 * kBoxRows * 64);
    start_box_copy(tile, &args.map, {32, 0, -1, 0}, barrier);
  }
  __syncthreads();
  wait_phase(barrier, 0);
  for (int i = static_cast<int>(threadIdx.x); i < kBoxRows * 64; i += 32) {
    // The drawing of the swizzle of 128 bytes, by hand: row r has piece c of 8 numbers at place c XOR r % 8.
    const int row = i / 64, column = i % 64;
    args.to[i] = static_cast<float>(tile[64 * row + (column / 8 ^ row % 8) * 8 + column % 8]);
  }
}

enum class Broken {
  nothing,
  no_wait_for_full,
  other_parity,
  too_few_bytes,
  too_many_bytes,
  no_arrival_at_empty,
  no_wait_for_empty,
  twice_at_empty,
  not_published,
};

// A warp loads boxes, the other one adds up their numbers.
template <Broken Rule>
void boxes_kernel(Boxes args) {
  bf16* const tiles = first_tile();
  auto* const full = reinterpret_cast<PhaseBarrier*>(tiles + kPlaces * kBoxRows * 64);
  PhaseBarrier* const empty = full + kPlaces;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kPlaces; ++i) {
      init_barrier(full + i, 1);
      init_barrier(empty + i, 1);
    }
    if (Rule != Broken::not_published) publish_barriers();
  }
  __syncthreads();
  const int wrong = Rule == Broken::too_few_bytes ? -16 : Rule == Broken::too_many_bytes ? 16 : 0;
  if (warp() == 1) {
    for (int step = 0; step < kSteps; ++step) {
      const int place = step % kPlaces, phase = step / kPlaces % 2;
      if (Rule != Broken::no_wait_for_empty) wait_phase(empty + place, phase ^ 1);
      if (lane() != 0) continue;
      arrive_expecting(full + place, 2 * kBoxRows * 64 + wrong);
      start_box_copy(tiles + place * kBoxRows * 64, &args.map, {0, 0, step * kBoxRows, 0}, full + place);
    }
    return;
  }
  float sum = 0;
  for (int step = 0; step < kSteps; ++step) {
    const int place = step % kPlaces, phase = step / kPlaces % 2;
    if (Rule != Broken::no_wait_for_full)
      wait_phase(full + place, Rule == Broken::other_parity ? phase ^ 1 : phase);
    for (int i = lane(); i < kBoxRows * 64; i += 32)
      sum += static_cast<float>(tiles[place * kBoxRows * 64 + i]);
    __syncwarp();
    if (lane() == 0 && Rule != Broken::no_arrival_at_empty) arrive(empty + place);
    if (lane() == 0 && Rule == Broken::twice_at_empty) arrive(empty + place);
  }
  args.to[lane()] = sum;
}

// The sum of all numbers, which is kSteps * 16 * 64 ones.
template <Broken Rule>
double sum_of_boxes() {
  const Tensor ones = to_gpu(raw::cast(Tensor::full({kSteps * kBoxRows, 64}, 1), Dtype::bf16)),
               sums = Tensor::full({32}, 0, Dtype::f32, gpu());
  launch_shared("test_bulk_copies", boxes_kernel<Rule>, 1, 64, 8 << 10, boxes_of(ones, sums));
  double sum = 0;
  for (const float part : to_cpu(sums).template to_vector<float>()) sum += part;
  return sum;
}
constexpr double kRight = kSteps * kBoxRows * 64;
template <Broken Rule>
std::string report_of_boxes() {
  cuda::synchronize();
  return test::report_of([] {
    if (!(sum_of_boxes<Rule>() == kRight)) emulation::stop("a wrong sum");
  });
}
bool says(const std::string& report, const char* what) {
  return report.find(what) != std::string::npos;
}

}  // namespace

TEST_SUITE("device") {
  TEST_CASE("a box comes with its swizzle, and with zeros for what lies outside of the tensor") {
    const Tensor matrix = raw::cast(raw::cast(sample_normal({12, 80}, "matrix"), Dtype::bf16), Dtype::f32);
    const Tensor on_gpu = to_gpu(raw::cast(matrix, Dtype::bf16)),
                 box = Tensor::full({kBoxRows, 64}, 0, Dtype::f32, gpu());
    launch_shared("test_bulk_copies", box_kernel, 1, 32, 8 << 10, boxes_of(on_gpu, box));
    const Tensor got = to_cpu(box);
    for (std::int64_t row = 0; row < kBoxRows; ++row)
      for (std::int64_t column = 0; column < 64; ++column) {
        const bool inside = row > 0 && row - 1 < 12 && 32 + column < 80;
        CHECK(got.data<float>()[row * 64 + column] ==
              (inside ? matrix.data<float>()[(row - 1) * 80 + 32 + column] : 0.0f));
      }
  }

  TEST_CASE("a tensor that the copy unit cannot read has no map") {
    const Tensor x = Tensor::zeros({64, 64}, Dtype::bf16, gpu());
    const auto has_map = [&](std::int64_t offset, std::int64_t stride, std::int64_t rows) {
      const auto* const start = static_cast<const bf16*>(x.raw_data()) + offset;
      return map_of({start, {64, 1, rows, 1}, {0, stride, 0}, {64, 1, 16, 1}}).has_value();
    };
    CHECK(has_map(0, 64, 64));
    CHECK(has_map(8, 72, 7));
    CHECK_FALSE(has_map(1, 64, 8));   // the start
    CHECK_FALSE(has_map(0, 68, 8));   // a stride
    CHECK_FALSE(has_map(0, 0, 8));    // a row repeated
    CHECK_FALSE(has_map(0, -64, 8));  // rows in reverse
    CHECK_FALSE(has_map(0, 64, 0));   // no rows
  }

  TEST_CASE("boxes pass from a warp that loads to one that reads, and broken rules are found") {
    for (int launch = 0; launch < 8; ++launch) CHECK(sum_of_boxes<Broken::nothing>() == kRight);
    CHECK(report_of_boxes<Broken::no_wait_for_full>() != "ended well");
    CHECK(report_of_boxes<Broken::other_parity>() != "ended well");
    CHECK(report_of_boxes<Broken::no_wait_for_empty>() != "ended well");
    CHECK(report_of_boxes<Broken::twice_at_empty>() != "ended well");
    CHECK(says(report_of_boxes<Broken::too_few_bytes>(), "bytes that no arrival announced"));
    CHECK(says(report_of_boxes<Broken::too_many_bytes>(), "for a phase or a turn"));
    CHECK(says(report_of_boxes<Broken::no_arrival_at_empty>(), "for a phase or a turn"));
    CHECK(says(report_of_boxes<Broken::not_published>(), "before its thread published it"));
  }

  TEST_CASE("attention with loads by TMA has the same bits however many blocks share its items") {
    const std::int64_t batch = 2, time = 200, heads = 3, size = 128;
    const auto tensor = [&](const char* name) {
      return to_gpu(raw::cast(sample_normal({batch, time, heads, size}, name), Dtype::bf16));
    };
    const Tensor q = tensor("q"), k = tensor("k"), v = tensor("v");
    Tensors first;
    for (const int blocks : {1, 2, 5, 12, 100}) {  // of 12 items
      const Tensor y = Tensor::full(q.shape(), 7, Dtype::bf16, gpu()),
                   log_sum = Tensor::full({batch, heads, time}, 7, Dtype::f32, gpu());
      AttentionArgs args{};
      args.dtype = Dtype::bf16;
      args.batch = batch;
      args.queries = args.keys = time;
      args.heads = args.kv_heads = heads;
      args.head_size = size;
      args.most = time - 1;
      args.scale = 0.1;
      args.keep_scale = 1;
      args.q = q.raw_data();
      args.k = k.raw_data();
      args.v = v.raw_data();
      args.q_strides.batch = time * heads * size;
      args.q_strides.time = heads * size;
      args.q_strides.head = size;
      args.k_strides = args.v_strides = args.q_strides;
      args.output = y.raw_data();
      args.log_sum = log_sum.raw_data();
      REQUIRE(wgmma_tma_forward(args, blocks));
      const Tensors got = to_cpu(Tensors{y, log_sum});
      if (first.empty()) first = got;
      for (std::size_t i = 0; i < got.size(); ++i)
        spec_check::expect_none(
            spec_check::bit_difference(fmt::format("{} blocks", blocks), got[i], first[i]));
    }
  }

  TEST_CASE("attention loads by TMA where that is chosen and takes the call, and says where it does not") {
    const std::int64_t one = 1;
    const AttentionCase taken{1, 20, 20, 1, 1, 128, 0, kFar, false, false, false, false};
    AttentionCase with_positions = taken, small = taken;
    with_positions.positions = true;
    small.head_size = 64;
    for (const auto& [c, gap, loads, told] : {std::tuple{taken, 0, true, false},
                                              {taken, 3, false, true},
                                              {with_positions, 0, false, true},
                                              {small, 0, false, false}}) {
      CAPTURE(c.text());
      const std::int64_t size = c.head_size;
      const auto rows = [&, wide = size + gap](const char* name) {
        return raw::narrow(to_gpu(raw::cast(sample_normal({one, c.queries, one, wide}, name), Dtype::bf16)),
                           -1, gap, size);
      };
      const Tensor q = rows("q"), k = rows("k"), v = rows("v");
      AttentionOptions options;
      options.causal = true;
      if (c.positions) options.positions = to_gpu(raw::cast(sample_normal({c.keys, size}, "p"), Dtype::f32));
      const auto run = [&](const char* wide, std::int64_t& launches) {
        constexpr const char* kName = "attention with wgmma and TMA";
        set_gpu_kernels(std::string("attention=wgmma,wide_attention=") + wide);
        cuda::synchronize();
        const std::int64_t before = emulation::launches()[kName];
        const Tensor y = to_cpu(attention_bthd(q, k, v, options));
        launches = emulation::launches()[kName] - before;
        return y;
      };
      std::int64_t without = 0, with = 0;
      const Tensor want = run("plain", without), got = run("tma", with);
      CHECK(without == 0);
      CHECK((with == 1) == loads);
      CHECK(take_warnings().empty() == !told);
      spec_check::expect_none(spec_check::bit_difference("y", got, want));
      reset_warnings();
    }
  }
}
