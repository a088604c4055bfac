// Which of cuBLASLt's proposals a product takes (ops/core/product_algorithms.h), and how long each of them takes.
//
// A line of ProductAlgorithms is a shape, the members of ProductKey, and an algorithm, the words of
// cublasLtMatmulAlgo_t, which the same version of the library takes back (cublasLt.h):
//
//   m,n,k,lda,ldb,ldc,batch,stride_a,stride_b,stride_c,flags,align_a,align_b,align_c,align_bias: word,word,... (hex)
#include "ops/core/product_algorithms.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "cuda/runtime/context.h"
#include "cuda/runtime/device.h"
#include "cuda/runtime/graph.h"
#include "cuda/runtime/product_plans.cuh"
#include "cuda/runtime/stream.cuh"
#include "ops/backends.h"
#include "tensor/base/format.h"

namespace eddy::cuda {
namespace {

using Algorithm = cublasLtMatmulAlgo_t;
using Algorithms = std::unordered_map<ProductKey, Algorithm, ProductKeyHash>;

constexpr std::size_t kSizes = sizeof(ProductKey) / sizeof(std::int64_t),
                      kWords = sizeof(Algorithm) / sizeof(std::uint64_t);

// Guarded by the mutex of the library.
struct Choices {
  Algorithms taken;                   // in force
  bool timing = false;                // ProductTiming is alive
  Algorithms known;                   // to it
  std::size_t timed = 0, others = 0;  // shapes that it timed; those that take another than the first proposal
  double first_ms = 0, taken_ms = 0;  // of one call of each
};
Choices& choices() {
  static Choices* const only = new Choices;
  return *only;
}

bool takes_timed() {
  return kernel_choice(KernelOp::algorithms).kernel == Kernel::timed;
}

// ---- as lines ----------------------------------------------------------------------------------------------

std::string line_of(const ProductKey& key, const Algorithm& algorithm) {
  std::int64_t sizes[kSizes];
  std::uint64_t words[kWords];
  std::memcpy(sizes, &key, sizeof key);
  std::memcpy(words, &algorithm, sizeof algorithm);
  std::string line;
  for (const std::int64_t size : sizes) line += fmt::format("{}{}", line.empty() ? "" : ",", size);
  for (std::size_t i = 0; i < kWords; ++i) line += fmt::format("{}{:x}", i == 0 ? ": " : ",", words[i]);
  return line;
}

// Reads numbers with commas between them; returns whether the text is as many and nothing else.
template <class Number>
bool read_numbers(std::string_view text, int base, std::span<Number> numbers) {
  const char *at = text.data(), *const end = at + text.size();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0 && (at == end || *at++ != ',')) return false;
    const auto [next, error] = std::from_chars(at, end, numbers[i], base);
    if (error != std::errc()) return false;
    at = next;
  }
  return at == end;
}

// errors: DeviceError.
std::pair<ProductKey, Algorithm> read_line(std::string_view line) {
  const std::size_t colon = std::min(line.find(": "), line.size());
  std::int64_t sizes[kSizes];
  std::uint64_t words[kWords];
  std::pair<ProductKey, Algorithm> result;
  const bool is_one = colon < line.size() && read_numbers<std::int64_t>(line.substr(0, colon), 10, sizes) &&
                      read_numbers<std::uint64_t>(line.substr(colon + 2), 16, words);
  if (is_one) {
    std::memcpy(&result.first, sizes, sizeof result.first);
    std::memcpy(&result.second, words, sizeof result.second);
  }
  if (!is_one || result.first.m < 1 || result.first.n < 1 || result.first.k < 1 ||
      (result.first.flags & ~kAllProductFlags) != 0)
    fail<DeviceError>("product algorithms: '{}' is no shape and its algorithm", line);
  return result;
}

ProductAlgorithms lines_of(const Algorithms& algorithms) {
  ProductAlgorithms lines;
  for (const auto& [key, algorithm] : algorithms) lines.push_back(line_of(key, algorithm));
  std::sort(lines.begin(), lines.end());
  if (!lines.empty()) lines.insert(lines.begin(), gpu_kind());
  return lines;
}

// Reads lines, and asks the library whether it can run each. The caller holds the lock.
// errors: DeviceError.
Algorithms read_lines(ProductLibrary& library, const ProductAlgorithms& lines) {
  Algorithms algorithms;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const auto [key, algorithm] = read_line(lines[i]);
    const ProductPlan& plan = plan_of(library, key);
    cublasLtMatmulHeuristicResult_t result{};
    const cublasStatus_t status =
        cublasLtMatmulAlgoCheck(library.handle, plan.desc.get(), plan.b.get(), plan.a.get(), plan.c.get(),
                                plan.c.get(), &algorithm, &result);
    if (status != CUBLAS_STATUS_SUCCESS || result.workspaceSize > kProductWorkspace)
      fail<DeviceError>("product algorithms: cuBLASLt does not run the one of [{}, {}] by [{}, {}] here: {}",
                        key.m, key.k, key.k, key.n,
                        status != CUBLAS_STATUS_SUCCESS ? cublasLtGetStatusString(status)
                                                        : "it takes more memory than products have");
    algorithms.emplace(key, algorithm);
  }
  return algorithms;
}

// errors: DeviceError.
void expect_own(const ProductAlgorithms& lines) {
  open();
  if (lines.front() != gpu_kind())
    fail<DeviceError>("product algorithms: they are of {}, and here is {}", lines.front(), gpu_kind());
}

// ---- timing ------------------------------------------------------------------------------------------------

// Memory like that of C, to write results to that nobody reads.
Tensor scratch_like_c(const GemmArgs& g) {
  const std::int64_t elements = (g.batch - 1) * g.stride_c + (g.m - 1) * g.ldc + g.n;
  return Tensor::empty({elements}, type_of_c(g), {DeviceType::cuda, device_index()});
}

struct Timed {
  Algorithm fastest;
  bool is_first = true;
  double first_ms = 0, ms = 0;
};

// Runs each proposal on the product's own operands: some calls in a graph, so that the host is not waited for, and all
// proposals in turns, so that a change of the GPU's clock meets each. Operands that fit the second-level cache are read
// from there, as they may not be in a step: whether a step gains is for who takes them to find out. Nothing where the
// first proposal fails, whose error is the product's.
std::optional<Timed> time_proposals(const ProductLibrary& library, const ProductPlan& plan,
                                    const GemmArgs& g) {
  constexpr double kLeastMs = 0.2;  // between two marks, whose resolution is half a microsecond
  constexpr int kMostCalls = 32, kRounds = 5;
  const Tensor scratch = scratch_like_c(g);
  const auto run = [&](const Algorithm& algorithm) {
    return multiply(library, plan, g, scratch.raw_data(), algorithm);
  };
  std::vector<Algorithm> able;
  for (const Algorithm& proposal : plan.proposals)
    if (run(proposal) == CUBLAS_STATUS_SUCCESS)  // loads its kernel too
      able.push_back(proposal);
    else if (able.empty())
      return {};

  Timer timer;
  timer.start();
  check_lt(run(able.front()), "cublasLtMatmul");
  const double once = timer.stop();
  const int calls =
      once * kMostCalls <= kLeastMs ? kMostCalls : std::max(1, static_cast<int>(kLeastMs / once));
  std::vector<std::unique_ptr<CapturedWork>> graphs;
  for (const Algorithm& algorithm : able)
    graphs.push_back(capture(
        [&] {
          for (int call = 0; call < calls; ++call) check_lt(run(algorithm), "cublasLtMatmul");
        },
        false));
  std::vector<double> best(able.size(), INFINITY);
  for (int round = 0; round < kRounds; ++round)
    for (std::size_t i = 0; i < able.size(); ++i) {
      timer.start();
      graphs[i]->replay();
      best[i] = std::min(best[i], timer.stop() / calls);
    }
  const auto least = static_cast<std::size_t>(std::min_element(best.begin(), best.end()) - best.begin());
  const bool is_first = least == 0 || best[least] > kWorthIt * best[0];
  return Timed{able[is_first ? 0 : least], is_first, best[0], best[is_first ? 0 : least]};
}

}  // namespace

cublasLtMatmulAlgo_t algorithm_of(const ProductLibrary& library, const ProductKey& key,
                                  const ProductPlan& plan, const GemmArgs& g) {
  const Algorithm& first = plan.proposals.front();
  if (!takes_timed()) return first;
  Choices& c = choices();
  if (const auto found = c.taken.find(key); found != c.taken.end()) return found->second;
  if (!c.timing || capturing()) return first;
  if (const auto found = c.known.find(key); found != c.known.end()) {
    c.taken.insert(*found);
    return found->second;
  }
  std::optional<Timed> timed;
  try {
    timed = time_proposals(library, plan, g);
  } catch (const OutOfMemoryError&) {  // of the scratch memory
  }
  if (!timed) return first;
  ++c.timed;
  c.others += timed->is_first ? 0 : 1;
  c.first_ms += timed->first_ms;
  c.taken_ms += timed->ms;
  c.known.emplace(key, timed->fastest);
  c.taken.emplace(key, timed->fastest);
  return timed->fastest;
}

}  // namespace eddy::cuda

namespace eddy {

using namespace cuda;

ProductAlgorithms product_algorithms() {
  if (!is_open() || !takes_timed()) return {};
  const std::lock_guard lock(product_library().mutex);
  return lines_of(choices().taken);
}

void set_product_algorithms(const ProductAlgorithms& algorithms) {
  if (!algorithms.empty()) expect_own(algorithms);
  const std::lock_guard lock(product_library().mutex);
  choices().taken = read_lines(product_library(), algorithms);
}

ProductTiming::ProductTiming(const ProductAlgorithms& known) {
  Algorithms read;
  try {
    if (!known.empty()) expect_own(known);
    const std::lock_guard lock(product_library().mutex);
    read = read_lines(product_library(), known);
  } catch (const DeviceError&) {  // as if none were known
  }
  const std::lock_guard lock(product_library().mutex);
  Choices begun;
  begun.taken = std::move(choices().taken);
  begun.timing = true;
  begun.known = std::move(read);
  choices() = std::move(begun);
}

ProductTiming::~ProductTiming() {
  const std::lock_guard lock(product_library().mutex);
  Choices ended;
  ended.taken = std::move(choices().taken);
  choices() = std::move(ended);
}

ProductAlgorithms ProductTiming::known() const {
  const std::lock_guard lock(product_library().mutex);
  return lines_of(choices().known);
}

std::string ProductTiming::summary() const {
  const std::lock_guard lock(product_library().mutex);
  const Choices& c = choices();
  if (c.timed == 0) return "";
  return fmt::format(
      "products of {} shapes are timed: {} take another algorithm than cuBLASLt's first proposal; one call of each takes "
      "{:.3g} ms, and took {:.3g}",
      c.timed, c.others, c.taken_ms, c.first_ms);
}

}  // namespace eddy
