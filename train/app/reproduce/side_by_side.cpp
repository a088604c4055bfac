// Claims are locks on folders of their own, since a run's folder is locked by its training.
#include "train/app/reproduce/side_by_side.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "tensor/base/format.h"
#include "tensor/files/descriptor.h"
#include "tensor/system/process.h"
#include "tensor/threads/thread_pool.h"
#include "train/files/folders.h"
#include "train/process/running_program.h"
#include "train/process/stop_signal.h"
#include "train/words/program_name.h"

namespace eddy::app {
using namespace training;
namespace {

namespace fs = std::filesystem;

// The environment of this process, with a share of its threads; the processes are none of a launcher's.
std::vector<std::string> environment_of_job(std::int64_t jobs) {
  std::vector<std::string> all;
  for (char** one = own_environment(); *one != nullptr; ++one) {
    const std::string variable = *one;
    if (!variable.starts_with("EDDY_NUM_THREADS=") && !variable.starts_with("EDDY_ALONE="))
      all.push_back(variable);
  }
  all.push_back(fmt::format("EDDY_NUM_THREADS={}", std::max<std::int64_t>(1, thread_count() / jobs)));
  all.emplace_back("EDDY_ALONE=1");
  return all;
}

}  // namespace

std::vector<std::string> words_of(const ReproduceOptions& options, const std::string& rows) {
  const ReproduceOptions defaults;
  std::vector<std::string> words{program_name(), "reproduce", options.table};
  const auto add = [&](const char* flag, const std::string& value) {
    words.insert(words.end(), {flag, value});
  };
  if (!rows.empty()) add("--rows", rows);
  add("--scale", options.scale);
  if (!options.task.empty()) add("--task", options.task);
  if (!options.data.empty()) add("--data", options.data);
  if (options.runs != defaults.runs) add("--runs", options.runs);
  if (options.windows > 0) add("--windows", std::to_string(options.windows));
  if (options.seeds > 0) add("--seeds", std::to_string(options.seeds));
  for (const auto& [key, value] : options.set) {
    if (key == "train.device")
      add("--device", value);
    else
      add("--set", key + "=" + value);
  }
  return words;
}

std::optional<RunLock> claim(const fs::path& folder, const std::string& name) {
  const fs::path place = folder / "claims" / name;
  make_folders(place);
  try {
    return RunLock(place);
  } catch (const IoError&) {
    return std::nullopt;
  }
}

bool wait_for_others() {
  for (int tenth = 0; tenth < 10 && !stop_requested(); ++tenth)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  return !stop_requested();
}

ReproduceEnd run_side_by_side(const std::vector<std::string>& words, std::int64_t jobs,
                              const fs::path& folder, const std::function<void(std::string_view)>& log) {
  make_folders(folder);
  std::vector<std::unique_ptr<RunningProgram>> processes;
  for (std::int64_t i = 1; i <= jobs; ++i) {
    const fs::path file = folder / fmt::format("job-{}.log", i);
    const Descriptor out(::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666));
    if (out.get() < 0) fail<IoError>("reproduce: {} cannot be written", file.string());
    processes.push_back(
        std::make_unique<RunningProgram>(ProgramStart{.words = words,
                                                      .file = own_program(),
                                                      .output = out.get(),
                                                      .errors = out.get(),
                                                      .environment = environment_of_job(jobs)}));
  }
  log(fmt::format("{} processes train rows side by side; what they print stands in {}\n", jobs,
                  (folder / "job-1.log").string()));
  bool told = false;
  for (const std::unique_ptr<RunningProgram>& process : processes)
    while (!process->wait(0.5)) {
      if (!stop_requested() || told) continue;
      for (const std::unique_ptr<RunningProgram>& one : processes) one->ask_to_stop();
      told = true;
    }
  for (std::size_t i = 0; i < processes.size() && !told; ++i)
    if (const ProgramEnd& end = processes[i]->end(); !end.good())
      log(fmt::format("job {}: {} (see job-{}.log)\n", i + 1, end.why("it"), i + 1));
  return told || stop_requested() ? ReproduceEnd::interrupted : ReproduceEnd::done;
}

}  // namespace eddy::app
