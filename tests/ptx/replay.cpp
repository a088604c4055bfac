// Runs recorded launches again from the PTX that nvcc emitted, and compares all memory with the record.
//
//   replay_ptx --launches FOLDER [--only PART] [--verbose] FILE.ptx ...
//   replay_ptx --launches FOLDER --faults FILE.ptx ...     plants faults instead (faults.h)
//
// Fails where compiled code breaks a rule (machine.h), where memory differs by more than rounding (compare.h),
// and where a kernel of the PTX has no launch. CUB's kernels are left out: the emulation has its own sort.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <string_view>
#include <thread>

#include "tests/ptx/compare.h"
#include "tests/ptx/faults.h"
#include "tests/ptx/interpreter/machine.h"
#include "tests/ptx/launches.h"

namespace ptx {
namespace {

std::string read_text(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw Fault(file + ": cannot be read");
  return {std::istreambuf_iterator<char>(stream), {}};
}

struct Kernel {
  const Module* module = nullptr;
  const Function* function = nullptr;
  std::unique_ptr<const Program> program;
  int launches = 0, equal = 0;
  double worst = 0;
  std::string worst_where;
  std::vector<std::string> errors;
  std::vector<std::uint8_t> reached;
  std::uint64_t instructions = 0;
};

struct Replay {
  std::vector<std::unique_ptr<Module>> modules;
  std::map<std::string, Kernel> kernels;
  std::mutex mutex;
  int others = 0;  // launches of kernels that the PTX does not have

  void read_modules(const std::vector<std::string>& files) {
    for (const std::string& file : files) {
      modules.push_back(std::make_unique<Module>(parse_module(file, read_text(file))));
      for (const Function& function : modules.back()->functions)
        if (const std::string name = text_name(function.name); function.entry && !name.starts_with("cub::")) {
          Kernel& kernel = kernels[name];
          if (kernel.function != nullptr) throw Fault(name + ": is in two files");
          kernel.module = modules.back().get();
          kernel.function = &function;
        }
    }
  }

  void run(const std::filesystem::path& file) {
    const RecordedLaunch launch = read_launch(file);
    const auto found = kernels.find(launch.kernel);
    if (found == kernels.end()) {
      const std::lock_guard lock(mutex);
      ++others;
      return;
    }
    Kernel& kernel = found->second;
    {
      const std::lock_guard lock(mutex);
      if (kernel.program == nullptr) kernel.program = translate(*kernel.module, *kernel.function);
    }
    std::string error;
    Difference difference;
    GlobalMemory memory = memory_before(launch);
    Grid grid(*kernel.program, memory, launch.shape, launch.arguments);
    try {
      grid.run();
      difference = compare(launch, memory, *kernel.program);
    } catch (const Fault& fault) {
      error = fault.what();
    }
    const std::lock_guard lock(mutex);
    ++kernel.launches;
    kernel.instructions += grid.instructions;
    kernel.reached.resize(grid.reached.size());
    for (std::size_t i = 0; i < grid.reached.size(); ++i) kernel.reached[i] |= grid.reached[i];
    const std::string at =
        fmt::format("{} ({} x {})", launch.file, launch.shape.blocks, launch.shape.threads);
    if (!error.empty()) {
      kernel.errors.push_back(at + ": " + error);
    } else if (difference.equal()) {
      ++kernel.equal;
    } else {
      if (difference.worst > 1) kernel.errors.push_back(at + ": " + difference.where);
      if (difference.worst >= kernel.worst)
        kernel.worst = difference.worst, kernel.worst_where = at + ": " + difference.where;
    }
  }

  int report(bool verbose) const {
    int launches = 0, equal = 0, wrong = 0, without = 0;
    std::uint64_t instructions = 0, code = 0, reached = 0;
    for (const auto& [name, kernel] : kernels) {
      launches += kernel.launches;
      equal += kernel.equal;
      wrong += !kernel.errors.empty();
      without += kernel.launches == 0;
      instructions += kernel.instructions;
      code += kernel.reached.size();
      const auto ran = static_cast<std::size_t>(std::count(kernel.reached.begin(), kernel.reached.end(), 1));
      reached += ran;
      if (kernel.launches == 0) fmt::print("NOT launched by any test: {}\n", name);
      for (const std::string& error : kernel.errors) fmt::print("WRONG: {}\n  {}\n", name, error);
      if (verbose)
        fmt::print(
            "{:3} launches, {:3} equal, worst {:.3f} of its bound, {} of {} instructions ran: {}\n  {}\n",
            kernel.launches, kernel.equal, kernel.worst, ran, kernel.reached.size(), name,
            kernel.worst_where);
    }
    fmt::print(
        "{} launches of {} of {} kernels: {} equal to the bit, {} within rounding or wrong; "
        "{} kernels wrong, {} without a launch; {:.1f} % of the code ran, {:.2f} G instructions of threads; {} "
        "launches of the tests' own kernels\n",
        launches, kernels.size() - static_cast<std::size_t>(without), kernels.size(), equal, launches - equal,
        wrong, without,
        100.0 * static_cast<double>(reached) / static_cast<double>(std::max<std::uint64_t>(code, 1)),
        static_cast<double>(instructions) * 1e-9, others);
    return wrong > 0 || without > 0 || launches == 0 ? 1 : 0;
  }
};

int replay(const std::vector<std::string>& arguments) {
  Replay all;
  std::string folder, only;
  bool verbose = false, faults = false;
  std::vector<std::string> files;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--launches" && i + 1 < arguments.size())
      folder = arguments[++i];
    else if (arguments[i] == "--only" && i + 1 < arguments.size())
      only = arguments[++i];
    else if (arguments[i] == "--verbose")
      verbose = true;
    else if (arguments[i] == "--faults")
      faults = true;
    else
      files.push_back(arguments[i]);
  }
  all.read_modules(files);
  if (!only.empty())
    std::erase_if(all.kernels,
                  [&](const auto& kernel) { return kernel.first.find(only) == std::string::npos; });
  std::vector<std::filesystem::path> launches;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) launches.push_back(entry.path());
  std::sort(launches.begin(), launches.end());
  if (faults) {
    std::map<std::string, Candidate> candidates;
    for (const std::filesystem::path& file : launches) {
      RecordedLaunch launch = read_launch(file);
      const auto found = all.kernels.find(launch.kernel);
      if (found == all.kernels.end()) continue;
      Candidate& candidate = candidates[launch.kernel];
      candidate.module = found->second.module;
      candidate.function = found->second.function;
      candidate.launches.push_back(std::move(launch));
    }
    return count_unseen_faults(candidates) == 0 ? 0 : 1;
  }
  std::atomic<std::size_t> next = 0;
  std::vector<std::string> failures;
  const auto work = [&] {
    for (std::size_t i = next++; i < launches.size(); i = next++) {
      try {
        all.run(launches[i]);
      } catch (const std::exception& error) {
        const std::lock_guard lock(all.mutex);
        failures.push_back(error.what());
      }
    }
  };
  std::vector<std::jthread> threads;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i) threads.emplace_back(work);
  threads.clear();
  for (const std::string& failure : failures) fmt::print("FAILED: {}\n", failure);
  const int result = all.report(verbose);
  return failures.empty() ? result : 1;
}

}  // namespace
}  // namespace ptx

int main(int argc, char** argv) {
  try {
    return ptx::replay({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "replay_ptx: {}\n", error.what());
    return 1;
  }
}
