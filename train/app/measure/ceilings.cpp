// Measures products and memory. The copy on the CPU is the C library's memcpy for each chunk; the triad is the
// sum of two tensors.
#include "train/app/measure/ceilings.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>

#include "autograd/tape.h"
#include "ops/backends.h"
#include "ops/pointwise/pointwise.h"
#include "ops/product/blas.h"
#include "ops/product/gemm.h"
#include "ops/product/packed_gemm.h"
#include "tensor/base/format.h"
#include "tensor/threads/thread_pool.h"
#include "train/app/measure/bench.h"
#include "train/plan/environment.h"
#include "train/words/human_text.h"

namespace eddy::app {
using namespace training;
namespace {

// Elements of a chunk: small enough that a chunk of all arrays stays in a second-level cache, large enough
// that handing it to a thread costs nothing.
constexpr std::int64_t kChunk = 1 << 16;

// Copies by all threads on the CPU.
void copy_in_parallel(const Tensor& to, const Tensor& from) {
  const std::int64_t n = to.elements();
  // The chunk is small enough to spread small arrays over all threads.
  const std::int64_t grain = std::clamp<std::int64_t>((n + thread_count() - 1) / thread_count(), 1, kChunk);
  float* const a = to.mutable_data<float>();
  const float* const b = from.data<float>();
  parallel_for(n, grain, [&](std::int64_t begin, std::int64_t end) {
    std::memcpy(a + begin, b + begin, static_cast<std::size_t>(end - begin) * sizeof(float));
  });
}

Bandwidth measure_bandwidth(std::int64_t bytes, double seconds, Device device) {
  const bool on_cpu = device == kCpu;
  // Small arrays get many passes for each reading of the clock; measure_on does so on a GPU.
  const std::int64_t passes = on_cpu ? std::clamp<std::int64_t>((std::int64_t{64} << 20) / bytes, 1, 64) : 1;
  const auto array = [&](int arrays) {
    const auto floats = bytes / arrays / static_cast<std::int64_t>(sizeof(float));
    return Tensor::full({std::max<std::int64_t>(1, floats)}, 1.5, Dtype::f32, device);
  };
  const auto rate_of = [&](std::int64_t moved, const std::function<void()>& pass) {
    const Timing time = measure_on(
        device,
        [&] {
          for (std::int64_t i = 0; i < passes; ++i) pass();
        },
        seconds / 2, 5);
    const double total = static_cast<double>(moved * passes) * 1e-9;
    return Rate{total / time.best, total / time.median};
  };
  Bandwidth result;
  result.bytes = bytes;
  {
    const Tensor to = array(2), from = array(2);
    result.copy =
        rate_of(2 * to.bytes(), [&] { on_cpu ? copy_in_parallel(to, from) : raw::copy_into(to, from); });
  }
  const Tensor left = array(3), right = array(3);
  const NoGrad no_grad;
  result.triad = rate_of(3 * left.bytes(), [&] { static_cast<void>(add(left, right)); });
  return result;
}

nlohmann::json rate_json(const Rate& rate) {
  return {{"best", rate.best}, {"median", rate.median}};
}

}  // namespace

// Products between two readings of the clock on a GPU: a single one would measure its launch.
constexpr int kGpuProducts = 10;

ProductProbe::ProductProbe(std::int64_t size, Device device, Dtype dtype, MatmulPrecision precision)
    : size_(size), precision_(precision) {
  if (size < 1) fail<ValueError>("bench: a product of {} rows (at least 1)", size);
  const bool on_cpu = device == kCpu;
  a_ = on_cpu ? Tensor::full({size, size}, 0.5) : repeated_normal({size, size}, "probe.a", dtype, device);
  b_ = on_cpu ? Tensor::full({size, size}, 0.25) : repeated_normal({size, size}, "probe.b", dtype, device);
  c_ = Tensor::zeros({size, size}, on_cpu ? Dtype::f32 : dtype, device);
}

detail::GemmArgs ProductProbe::product() const {
  detail::GemmArgs args{};
  args.dtype = a_.dtype();
  args.m = args.n = args.k = args.lda = args.ldb = args.ldc = size_;
  args.a = a_.raw_data();
  args.b = b_.raw_data();
  args.c = c_.raw_data();
  return args;
}

double ProductProbe::gflops(int products, double seconds) const {
  const auto rows = static_cast<double>(size_);
  return products * 2 * rows * rows * rows / std::max(seconds, 1e-9) * 1e-9;
}

double ProductProbe::run(MatmulPrecision precision) const {
  detail::GemmArgs args = product();
  args.precision = precision;
  const Device device = a_.device();
  const int products = device == kCpu ? 1 : kGpuProducts;
  synchronize(device);
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < products; ++i) detail::gemm_slot(device, args);
  synchronize(device);
  return gflops(products, seconds_between(start));
}

double ProductProbe::run_blas() const {
  install_backends();  // sets OpenBLAS to one thread
  const detail::GemmArgs args = product();
  const Clock::time_point start = Clock::now();
  detail::multiply_by_blas(args, size_, size_, args.a, args.b, args.c);
  return gflops(1, seconds_between(start));
}

double run_instruction(MatmulPrecision precision) {
  const auto multiply = detail::packed_gemm_kernels(precision).f32.multiply_registers;
  constexpr std::int64_t kFirstRounds = 1 << 8;
  constexpr double kSeconds = 2e-3;
  const Clock::time_point first = Clock::now();
  static_cast<void>(multiply(kFirstRounds));
  const double of_first = std::max(seconds_between(first), 1e-7);
  const auto rounds =
      std::max<std::int64_t>(1, static_cast<std::int64_t>(kFirstRounds * kSeconds / of_first));
  std::vector<double> rates(static_cast<std::size_t>(thread_count()), 0.0);
  parallel_team(thread_count(), [&](int rank, int, TeamBarrier& barrier) {
    barrier.arrive_and_wait();
    const Clock::time_point start = Clock::now();
    const auto multiply_adds = static_cast<double>(multiply(rounds));
    rates[static_cast<std::size_t>(rank)] = 2 * multiply_adds / std::max(seconds_between(start), 1e-9) * 1e-9;
  });
  return std::accumulate(rates.begin(), rates.end(), 0.0);
}

double Ceilings::bandwidth_for(double bytes) const {
  for (const Bandwidth& level : memory)
    if (bytes <= static_cast<double>(level.bytes)) return level.best();
  return memory.empty() ? 0 : memory.back().best();
}

double Ceilings::least_seconds(double flops, double bytes) const {
  const double bandwidth = bandwidth_for(bytes);
  return std::max(product.best > 0 ? flops / product.best * 1e-9 : 0,
                  bandwidth > 0 ? bytes / bandwidth * 1e-9 : 0);
}

Ceilings measure_ceilings(double seconds, const CeilingSizes& sizes, Device device,
                          MatmulPrecision precision) {
  Ceilings result;
  result.device = device;
  result.threads = thread_count();
  const bool on_cpu = device == kCpu;
  std::vector<std::int64_t> levels = sizes.bytes;
  for (const std::int64_t bytes : sizes.bytes_per_thread)
    if (on_cpu) levels.push_back(bytes * result.threads);
  std::sort(levels.begin(), levels.end());
  for (const std::int64_t bytes : levels)
    if (bytes < 1) fail<ValueError>("bench: arrays of {} bytes (at least 1)", bytes);

  const ProductProbe probe(sizes.product, device, Dtype::f32, precision);
  std::vector<double> shared, single, rounded, instruction, rounded_instruction;
  static_cast<void>(probe.run());  // warm-up: touches the pages and the buffers of the library
  const Clock::time_point start = Clock::now();
  do {  // in turns, so that a burst of other load on the machine affects both
    shared.push_back(1 / probe.run());
    if (on_cpu) single.push_back(1 / probe.run_blas());
    if (on_cpu) instruction.push_back(1 / run_instruction());
    if (on_cpu && rounds_to_bf16(MatmulPrecision::bf16)) {
      rounded.push_back(1 / probe.run(MatmulPrecision::bf16));
      rounded_instruction.push_back(1 / run_instruction(MatmulPrecision::bf16));
    }
  } while (shared.size() < 3 || seconds_between(start) < seconds / 2);
  const auto rate_of = [](const std::vector<double>& times) {
    if (times.empty()) return Rate{};
    const Timing time = timing_of(times);
    return Rate{1 / time.best, 1 / time.median};
  };
  result.product = rate_of(shared);
  result.product_one_blas = rate_of(single);
  result.rounded_product = rate_of(rounded);
  result.instruction = rate_of(instruction);
  result.rounded_instruction = rate_of(rounded_instruction);

  for (const std::int64_t bytes : levels)
    result.memory.push_back(
        measure_bandwidth(bytes, seconds / 2 / static_cast<double>(levels.size()), device));
  return result;
}

MeasuredTable table_of(const Ceilings& ceilings) {
  MeasuredTable table;
  table.columns = {{"", "ceiling"}, {"", "best"}, {"", "median"}, {"", "unit"}};
  const auto row = [&table](const std::string& name, const Rate& rate, const char* unit) {
    table.add({name, rate.best, rate.median, unit});
  };
  if (ceilings.device == kCpu) {
    row(fmt::format("f32 product, {} {}", ceilings.threads, plural(ceilings.threads, "thread")),
        ceilings.product, "GFLOP/s");
    row("f32 instruction alone, the same threads", ceilings.instruction, "GFLOP/s");
    row(fmt::format("f32 product, {} alone, 1 thread", blas_name()), ceilings.product_one_blas, "GFLOP/s");
    if (ceilings.rounded_product.best > 0) {
      row("bf16 product, the same threads", ceilings.rounded_product, "GFLOP/s");
      row("bf16 instruction alone, the same threads", ceilings.rounded_instruction, "GFLOP/s");
    }
  } else {
    row(fmt::format("f32 product, {}", to_string(ceilings.device)), ceilings.product, "GFLOP/s");
  }
  for (const Bandwidth& level : ceilings.memory) {
    row(fmt::format("copy, {} in all", human_bytes(level.bytes)), level.copy, "GB/s");
    row(fmt::format("triad, {} in all", human_bytes(level.bytes)), level.triad, "GB/s");
  }
  if (ceilings.device == kCpu)
    if (const std::string why = slow_matmul_reason(); !why.empty()) table.notes = {"slow products: " + why};
  return table;
}

nlohmann::json to_json(const Ceilings& ceilings) {
  nlohmann::json memory = nlohmann::json::array();
  for (const Bandwidth& level : ceilings.memory)
    memory.push_back(
        {{"bytes", level.bytes}, {"copy_gbs", rate_json(level.copy)}, {"triad_gbs", rate_json(level.triad)}});
  return {{"device", to_string(ceilings.device)},
          {"threads", ceilings.threads},
          {"product_gflops", rate_json(ceilings.product)},
          {"product_one_thread_blas_gflops", rate_json(ceilings.product_one_blas)},
          {"instruction_gflops", rate_json(ceilings.instruction)},
          {"bf16_product_gflops", rate_json(ceilings.rounded_product)},
          {"bf16_instruction_gflops", rate_json(ceilings.rounded_instruction)},
          {"memory", memory}};
}

}  // namespace eddy::app
