// `eddy info`: prints what this program is and what it runs on.
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ops/backends.h"
#include "ops/core/peers.h"
#include "ops/product/packed_gemm.h"
#include "tensor/base/error.h"
#include "train/app/launch/launcher.h"
#include "train/app/measure/ceilings.h"
#include "train/app/measure/kernels/prove.h"
#include "train/app/program/commands.h"
#include "train/app/report/page_server.h"
#include "train/app/terminal/line_input.h"
#include "train/plan/environment.h"
#include "train/process/installation.h"
#include "train/words/program_name.h"

namespace eddy::app {
using namespace training;
namespace {

// Measures the CPU for about two seconds: products in f32 and bf16, and memory.
void print_measured() {
  CeilingSizes sizes;
  sizes.product = 1024;
  const Ceilings here = measure_ceilings(2, sizes);
  print_line("product: {:.1f} GFLOP/s (f32, 1024 x 1024 x 1024; {:.1f} by the instruction alone)",
             here.product.best, here.instruction.best);
  const double times = here.rounded_product.best / here.product.best;
  if (times > 0)
    print_line("product in bf16: {:.1f} GFLOP/s ({:.1f} by the instruction alone)", here.rounded_product.best,
               here.rounded_instruction.best);
  print_line("memory bandwidth: {:.1f} GB/s", here.memory.back().best());
  print_line("precision here: {}",
             times == 0    ? "f32 (the CPU level in use has no products in bf16)"
             : times < 1.2 ? fmt::format("f32 (products in bf16 are {:.1f} times as fast)", times)
                           : fmt::format("bf16 (its products are {:.1f} times as fast as in f32)", times));
  if (times > 0)
    print_line("products in f32 at either: gradients of weights with a side below {}",
               detail::kLeastRoundedSide);
}

// What is known of the kernels on the GPU that is here; it is not opened.
void print_kernels() {
  if (gpu_identity().empty()) return;
  const std::optional<KernelVerdict> verdict = kept_verdict(program_trials().cache);
  if (!verdict)
    return print_line(
        "gpu kernels: not checked yet (the first use of the GPU does, or {} check --device cuda)",
        program_name());
  print_line("gpu kernels: {} (checked {})", verdict->kernels(), verdict->day);
  for (const bool choices : {true, false})
    for (const std::string& line : choices ? verdict->refused_choices() : verdict->refused_ops())
      print_line("gpu kernel refused: {}", line);
}

// The folder of configurations, programs and exercises.
std::string examples_of_program() try {
  return find_installation().exercises.parent_path().string();
} catch (const IoError&) {
  return "none beside this program";
}

Described describe_info(CLI::App& command) {
  const auto measure = std::make_shared<bool>(false);
  command.add_flag("--measure", *measure,
                   "Also measure products and memory of the CPU, and with CUDA of the GPU (three seconds)");
  return {[measure] {
    for (const std::string& line : environment_lines()) print_line("{}", line);
    print_kernels();
    print_line("page server: {}", why_no_server().empty() ? "libevent" : "none: libevent-dev was not found");
    print_line("line editing: {}", edits_lines() ? "libedit" : "none: libedit-dev was not found");
    print_line("ranks: {}", mpi_of_build());
    if (std::string_view(backend_names()).find("cuda") != std::string_view::npos) {
      const std::string why = why_no_peers();
      print_line("ranks on GPUs: {}", why.empty() ? "NCCL" : why);
    }
    print_line("examples: {}", examples_of_program());
    const std::vector<std::string> libraries = shared_libraries();
    print_line("libraries: {}",
               libraries.empty() ? "unknown" : fmt::format("{}", fmt::join(libraries, ", ")));
    if (!*measure) return 0;
    flush_output();
    print_measured();
    for (const std::string& line : measure_gpu()) print_line("{}", line);
    if (const std::string line = gpu_allocator_line(); !line.empty()) print_line("{}", line);
    return 0;
  }};
}

}  // namespace

Command commands::info() {
  return {"info", "Show version, compiler, processor, kernels, memory, examples and libraries",
          Computes::nothing, Results::printed, describe_info};
}

}  // namespace eddy::app
