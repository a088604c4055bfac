// OpenBLAS: the memory that it takes, and the kernels that it chooses. Its products are in cblas.cpp.
#include <cblas.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstdlib>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "ops/cpu/isa.h"
#include "ops/product/blas.h"
#include "tensor/base/format.h"
#include "tensor/system/memory.h"
#include "tensor/system/openblas_functions.h"

namespace eddy {

using namespace detail;

namespace {

// OpenBLAS packs operands into a buffer of its own for each thread that is inside a product, and keeps it.
// Where the system refuses the memory it tries again for ever, so the system is asked here first.
// 128 MiB: BUFFER_SIZE (32 << 22) of OpenBLAS on x86-64 and ARM64; measured with 0.3.21, by the growth of the
// address space at a first product. Pages that are not used take no memory.
constexpr std::size_t kBufferBytes = std::size_t{128} << 20;
// A limit that would do leaves each thread room for its stack and malloc's arena (8 and 64 MiB), and the rest
// of a small run 128 MiB.
constexpr std::size_t kThreadBytes = std::size_t{72} << 20, kSmallRunBytes = std::size_t{128} << 20;
// More threads than this share buffers taken early; OpenBLAS's table has at least two places for each of 64.
constexpr int kMaxBuffers = 64;

std::atomic<int> threads_with_buffers{0};

[[noreturn]] void refuse_memory_limit(int threads) {
  const auto count = static_cast<std::size_t>(threads);
  const std::size_t enough = static_cast<std::size_t>(address_space_bytes()) +
                             count * (kBufferBytes + kThreadBytes) + kSmallRunBytes;
  rlimit limit{};
  getrlimit(RLIMIT_AS, &limit);
  const std::string found = limit.rlim_cur == RLIM_INFINITY
                                ? "the system refuses it"
                                : fmt::format("the limit is {} KiB", limit.rlim_cur >> 10);
  fail<OutOfMemoryError>(
      "memory: products on {} threads need {} MiB of virtual memory for OpenBLAS, and {} (ulimit -v {} would "
      "do, with more for a large model{})",
      threads, count * (kBufferBytes >> 20), found, (enough >> 10) + 1,
      threads > 1 ? "; fewer threads need less: --threads 1" : "");
}

// OpenBLAS chooses its kernels from a list of processor models. For one newer than its release it falls back
// to SSE3 ("Prescott"), a sixth of the rate: 25 against 143 GFLOP/s on an Emerald Rapids with OpenBLAS
// 0.3.21. Some systems work around that with OPENBLAS_CORETYPE=Haswell, which halves the rate of a processor
// with AVX-512: 63 and 73 against 142 and 139 on an EPYC. And it keeps AVX-512 where a lower level is chosen, or where
// the user names such a core on a processor that has none. In these cases two functions, which builds for several
// processors export, choose again. Any other core that the user names is kept, Zen with its AVX2
// among them.

// Whether OpenBLAS's kernels use AVX-512. Its builds write the names of cores in different letters.
[[maybe_unused]] bool has_avx512_core() {
  std::string core = openblas_get_corename();
  for (char& c : core) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return core == "skylakex" || core == "cooperlake" || core == "sapphirerapids";
}

void choose_openblas_kernels([[maybe_unused]] IsaLevel level) {
#if defined(EDDY_X86_LEVELS)
  constexpr const char* kVariable = "OPENBLAS_CORETYPE";
  static std::atomic<bool> lowered{false};  // a level without AVX-512 replaced a core with it
  const char* const named = std::getenv(kVariable);
  const std::string before = named == nullptr ? "" : named;
  const bool wide = level >= IsaLevel::avx512;
  const bool unknown =
      named == nullptr && level >= IsaLevel::avx2 && std::string_view(openblas_get_corename()) == "Prescott";
  const bool halved = wide && (before == "Haswell" || lowered);
  const bool too_high = !wide && has_avx512_core();
  const OpenBlasFunctions functions = openblas_functions();
  if (functions.dynamic_init == nullptr || functions.dynamic_quit == nullptr ||
      !(unknown || halved || too_high))
    return;
  lowered = too_high;
  const bool bf16_unit = level >= IsaLevel::avx512_bf16;
  const char* const best = bf16_unit                 ? "Cooperlake"
                           : wide                    ? "SkylakeX"
                           : __builtin_cpu_is("amd") ? "Zen"
                                                     : "Haswell";
  setenv(kVariable, best, 1);
  functions.dynamic_quit();
  functions.dynamic_init();
  // The variable is meant for this process's OpenBLAS, not for child processes.
  if (named == nullptr)
    unsetenv(kVariable);
  else
    setenv(kVariable, before.c_str(), 1);
#endif
}

}  // namespace

void detail::prepare_blas() {
  choose_openblas_kernels(best_isa_level());
  follow_isa_level(choose_openblas_kernels);
  openblas_set_num_threads(1);
}

void reserve_product_memory(int threads) {
  if (threads_with_buffers.load(std::memory_order_acquire) >= threads) return;
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  const int had = threads_with_buffers.load(std::memory_order_relaxed);
  if (had >= threads) return;
  std::vector<void*> asked;
  for (int i = had; i < threads; ++i) {
    void* const memory =
        mmap(nullptr, kBufferBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED) asked.push_back(memory);
  }
  for (void* const memory : asked) munmap(memory, kBufferBytes);
  if (static_cast<int>(asked.size()) < threads - had) refuse_memory_limit(threads);
  rlimit limit{};
  const bool limited = getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  // Under a limit the buffers are taken now, before anything else takes their place. Those that OpenBLAS has
  // already are among them.
  const OpenBlasFunctions functions = openblas_functions();
  if (limited && functions.memory_alloc != nullptr && functions.memory_free != nullptr) {
    std::vector<void*> buffers;
    for (int i = 0; i < std::min(threads, kMaxBuffers); ++i) buffers.push_back(functions.memory_alloc(0));
    for (void* const buffer : buffers) functions.memory_free(buffer);
  }
  threads_with_buffers.store(threads, std::memory_order_release);
}

const char* blas_name() {
  return "OpenBLAS";
}

std::string blas_core() {
  return openblas_get_corename();
}

std::string blas_build(const std::string& kernels) {
  const char* const flavours[] = {"serial, which is not safe here", "pthread", "openmp"};
  const int flavour = openblas_get_parallel();
  std::string config = openblas_get_config();
  config.resize(config.find_last_not_of(" \t") + 1);
  return fmt::format("{}; core {}; {}", config, kernels,
                     flavour >= 0 && flavour <= 2 ? flavours[flavour] : "unknown flavour");
}

}  // namespace eddy
