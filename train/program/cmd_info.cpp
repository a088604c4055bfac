// `eddy info`: prints what this program is and what it runs on.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <memory>

#include "ops/backends.h"
#include "train/bench/ceilings.h"
#include "train/program/commands.h"
#include "train/program/output.h"
#include "train/run/environment.h"

namespace eddy {
namespace {

// Returns the best speed in GFLOP/s of a square f32 product on the CPU in about half a second.
double product_gflops() {
  using Clock = std::chrono::steady_clock;
  const ProductProbe product(1024);
  double best = 0;
  const auto start = Clock::now();
  do best = std::max(best, product.run());
  while (Clock::now() - start < std::chrono::milliseconds(500));
  return best;
}

}  // namespace

void add_info_command(CLI::App& app, std::function<int()>& action) {
  CLI::App* command =
      app.add_subcommand("info", "Show version, compiler, processor, kernels, libraries and memory");
  const auto measure = std::make_shared<bool>(false);
  command->add_flag("--measure", *measure,
                    "Also measure the speed of products, on the CPU and with CUDA on the GPU (a second)");
  command->callback([measure, &action] {
    action = [measure] {
      for (const std::string& line : environment_lines()) print_line("{}", line);
      if (*measure) {
        flush_output();
        print_line("product: {:.1f} GFLOP/s (f32, 1024 x 1024 x 1024)", product_gflops());
        for (const std::string& line : measure_gpu()) print_line("{}", line);
        if (const std::string line = gpu_allocator_line(); !line.empty()) print_line("{}", line);
      }
      return 0;
    };
  });
}

}  // namespace eddy
