// Read from the compiler's macros, the system, OpenBLAS and the backends.
#include "train/plan/environment.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <system_error>
#include <utility>

#include "ops/backends.h"
#include "ops/core/product_algorithms.h"
#include "ops/cpu/isa.h"
#include "ops/product/blas.h"
#include "tensor/base/format.h"
#include "tensor/memory/allocator.h"
#include "tensor/system/memory.h"
#include "tensor/system/process.h"
#include "tensor/system/processors.h"
#include "tensor/threads/thread_pool.h"
#include "train/words/human_text.h"

namespace eddy::training {
namespace {

std::string compiler() {
#if defined(__clang__)
  return "clang " __clang_version__;
#elif defined(__GNUC__)
  return "g++ " __VERSION__;
#else
  return "unknown";
#endif
}

std::string build_kind() {
  std::string kind;
#if defined(__OPTIMIZE__)
  kind = "optimised";
#else
  kind = "not optimised";
#endif
#if defined(NDEBUG)
  kind += ", assertions off";
#else
  kind += ", assertions on";
#endif
#if defined(__SANITIZE_ADDRESS__)
  kind += ", address sanitizer";
#endif
#if defined(__SANITIZE_THREAD__)
  kind += ", thread sanitizer";
#endif
  return kind;
}

std::string without_edge_blanks(const std::string& text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

}  // namespace

std::string blas_in_use() {
  std::string hint = slow_matmul_reason();
  if (!hint.empty()) hint = " (" + hint + ")";
  return blas_build(without_edge_blanks(blas_core()) + hint);
}

namespace {

std::string system_memory() {
  const std::int64_t bytes = machine_memory().whole;
  return bytes > 0 ? human_bytes(bytes) : "unknown";
}

}  // namespace

std::vector<std::string> shared_libraries() {
  std::vector<std::string> names;
  for (const std::filesystem::path given : loaded_libraries()) {
    // Links lead to a file whose name ends in the library's version.
    std::error_code error;
    const std::filesystem::path file = std::filesystem::canonical(given, error);
    names.push_back((error ? given : file).filename().string());
  }
  return names;
}

// OpenBLAS takes a processor newer than its release for an old one. ops/cpu corrects that, unless the user
// chose a core type by an environment variable, which may be meant for another machine.
std::string slow_matmul_reason() {
  install_backends();
  if (best_isa_level() < IsaLevel::avx2) return "";
  std::string core = blas_core();
  if (core.empty()) return "";
  for (char& c : core) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const auto is_one_of = [&](std::initializer_list<const char*> cores) {
    return std::any_of(cores.begin(), cores.end(), [&](const char* known) { return core == known; });
  };
  const bool full = best_isa_level() >= IsaLevel::avx512;
  if (isa_level() != best_isa_level() || is_one_of({"skylakex", "cooperlake", "sapphirerapids"})) return "";
  if (!full && is_one_of({"haswell", "zen"})) return "";
  const char* const better = full ? "SkylakeX" : "Haswell";
  if (const char* named = std::getenv("OPENBLAS_CORETYPE"); named != nullptr)
    return fmt::format("OPENBLAS_CORETYPE={} keeps products off this processor's {}: unset it, or name {}",
                       named, full ? "AVX-512" : "AVX2", better);
  if (is_one_of({"haswell", "zen"})) return "";  // OpenBLAS's own choice, perhaps a build without AVX-512
  return fmt::format("too old for this processor: set OPENBLAS_CORETYPE={} for faster products", better);
}

std::string gpu_allocator_line() {
  const std::optional<GpuMemory> memory = gpu_memory();
  if (!memory) return "";
  const AllocatorStats& stats = memory->stats;
  return fmt::format("cuda allocator: live {}, peak {}, reserved {} in {} segments, {} allocations",
                     human_bytes(stats.live_bytes), human_bytes(stats.peak_bytes),
                     human_bytes(stats.reserved_bytes), memory->segments, stats.allocations);
}

std::vector<std::string> environment_lines() {
  install_backends();
  const AllocatorStats memory = allocator(kCpu).stats();
  const std::pair<const char*, std::string> lines[] = {
      {"eddy", EDDY_VERSION},
      {"compiler", compiler()},
      {"build", build_kind()},
      {"processor", processor_name()},
      {"kernels", fmt::format("{} (best here: {})", isa_name(isa_level()), isa_name(best_isa_level()))},
      {"threads", std::to_string(thread_count())},
      {"blas", blas_in_use()},
      {"cuda", cuda_status()},
      {"memory", system_memory()},
      {"allocator",
       fmt::format("live {}, peak {}, reserved {}, {} allocations", human_bytes(memory.live_bytes),
                   human_bytes(memory.peak_bytes), human_bytes(memory.reserved_bytes), memory.allocations)},
  };
  std::vector<std::string> texts;
  for (const auto& [name, value] : lines) texts.push_back(fmt::format("{}: {}", name, value));
  if (const std::optional<GpuKernels> kernels = gpu_kernels()) {
    texts.push_back("gpu kernels: " + describe(*kernels));
    for (const std::string& why : kernels->refused) texts.push_back("gpu kernel refused: " + why);
    if (const std::size_t timed = product_algorithms().size(); timed > 1)
      texts.push_back(fmt::format("gpu products: of {} shapes by algorithms that were timed", timed - 1));
  }
  if (std::string line = gpu_allocator_line(); !line.empty()) texts.push_back(std::move(line));
  return texts;
}

}  // namespace eddy::training
