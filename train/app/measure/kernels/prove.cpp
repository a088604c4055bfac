// Runs trials in processes of their own, and begins another process behind a trial that died or fell silent.
#include "train/app/measure/kernels/prove.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <deque>
#include <nlohmann/json.hpp>

#include "ops/backends.h"
#include "ops/core/warnings.h"
#include "tensor/base/error.h"
#include "tensor/base/format.h"
#include "tensor/files/descriptor.h"
#include "train/app/measure/measurement.h"
#include "train/files/digest.h"
#include "train/files/folders.h"
#include "train/process/running_program.h"
#include "train/step/clock.h"
#include "train/words/program_name.h"

namespace eddy::app {
using namespace training;
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// A process that serves trials, and its lines.
class TrialProcess {
 public:
  TrialProcess(const std::vector<std::string>& words, const std::deque<std::string>& names)
      : program_({.words = with(words, names), .output = kRead, .is_trial = true}) {
    if (program_.end().error != 0)
      fail<IoError>("kernels: no process can be started to try them in: {}",
                    program_.end().why(words.front()));
  }

  // Returns the next line, or nothing at the end or after so many seconds (`late` tells).
  std::optional<std::string> line(double seconds, bool* late) {
    const Clock::time_point begin = Clock::now();
    for (;;) {
      if (const std::size_t end = text_.find('\n'); end != std::string::npos) {
        std::string first = text_.substr(0, end);
        text_.erase(0, end + 1);
        return first;
      }
      const std::optional<std::string> part = program_.read(seconds - seconds_between(begin));
      *late = !part;
      if (!part || part->empty()) return {};
      text_ += *part;
    }
  }

  // Ends the process, by force where it runs on or is late.
  const ProgramEnd& end(bool late) {
    if (late || !program_.wait(0.5)) program_.kill();
    return program_.end();
  }

 private:
  static std::vector<std::string> with(std::vector<std::string> words, const std::deque<std::string>& names) {
    words.insert(words.end(), names.begin(), names.end());
    return words;
  }

  RunningProgram program_;
  std::string text_;
};

// What an end says of the kernel that the process was at.
// errors: IoError when it was ended from outside.
std::string reason_of(const ProgramEnd& end) {
  for (const int outside : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGKILL})
    if (end.signal == outside && !end.killed)
      fail<IoError>("kernels: the process that tries them was ended from outside ({})", strsignal(outside));
  return end.status == 0 ? "its process ended with status 0" : end.why("its process");
}

// Runs trials in processes, one after the other until each has a result.
void run_apart(std::deque<std::string> names, const ProveOptions& options, std::vector<KernelTrial>& done) {
  while (!names.empty()) {
    const std::size_t before = names.size();
    TrialProcess process(options.command, names);
    std::string at;  // the trial in progress
    bool late = false;
    // The start of a process loads the libraries of the GPU.
    while (const std::optional<std::string> line = process.line(options.seconds, &late)) {
      const json said = json::parse(*line, nullptr, false);
      if (!said.is_object()) continue;
      if (said.contains("error")) fail<DeviceError>("{}", said.at("error").get<std::string>());
      if (said.contains("begin")) at = said.at("begin").get<std::string>();
      if (!said.contains("trial")) continue;
      done.push_back(trial_from_json(said.at("trial")));
      std::erase(names, done.back().name);
      at.clear();
    }
    const ProgramEnd& end = process.end(late);
    if (!at.empty()) {
      done.push_back(
          {at, late ? fmt::format("it did not end in {:g} s", options.seconds) : reason_of(end), ""});
      std::erase(names, at);
    }
    if (names.size() == before)
      fail<IoError>("kernels: the process that tries them says nothing{}", late ? "" : ": " + reason_of(end));
  }
}

KernelVerdict make_verdict(const ProveOptions& options, const std::string& gpu, const std::string& build) {
  const auto say = [&](const std::string& line) {
    if (options.say) options.say("kernels: " + line);
  };
  KernelVerdict verdict{gpu, build, today(), {}};
  std::deque<std::string> ops, choices;
  for (const std::string& name : options.trials.empty() ? kernel_trials() : options.trials)
    (name.find('=') == name.npos ? ops : choices).push_back(name);
  say(fmt::format("{} ops and {} choices are tried on {} (once for this build and this GPU, about a minute)",
                  ops.size(), choices.size(), gpu));
  run_apart(ops, options, verdict.trials);
  say(fmt::format("{} of {} ops agree with the CPU", ops.size() - verdict.refused_ops().size(), ops.size()));
  for (const std::string& name : choices) {
    run_apart({name}, options, verdict.trials);
    const KernelTrial& trial = verdict.trials.back();
    std::string line = !trial.problem.empty()    ? "REFUSED: " + trial.problem
                       : !trial.left_out.empty() ? "left out: " + trial.left_out
                                                 : "agrees with the plain kernel";
    for (const TrialTime& time : trial.times)
      line += fmt::format("; {} {:.3g} ms (plain {:.3g})", time.what, time.ms, time.plain_ms);
    say(name + ": " + line);
  }
  say("taken: " + verdict.kernels());
  return verdict;
}

// Held while a verdict is made. On a file system without locks two processes may make one each.
class VerdictLock {
 public:
  VerdictLock(const fs::path& folder, const ProveOptions& options)
      : folder_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    if (folder_.get() < 0 || ::flock(folder_.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
    if (options.say) options.say("kernels: another process tries them: waiting for it");
    while (::flock(folder_.get(), LOCK_EX) != 0 && errno == EINTR) {
    }
  }

 private:
  Descriptor folder_;
};

}  // namespace

std::optional<KernelVerdict> prove_kernels(const ProveOptions& options) {
  const std::string gpu = gpu_identity();
  if (gpu.empty()) return {};
  const std::string build = program_digest();
  if (options.cache.empty()) {
    if (!options.uncached) return {};
    return make_verdict(options, gpu, build);
  }
  if (!options.again)
    if (std::optional<KernelVerdict> kept = read_verdict(options.cache, gpu, build)) return kept;
  const fs::path folder = verdict_file(options.cache, gpu, build).parent_path();
  make_folders(folder);
  const VerdictLock lock(folder, options);
  if (!options.again)
    if (std::optional<KernelVerdict> kept = read_verdict(options.cache, gpu, build)) return kept;
  KernelVerdict verdict = make_verdict(options, gpu, build);
  write_verdict(options.cache, verdict);
  return verdict;
}

std::optional<KernelVerdict> kept_verdict(const std::string& cache) {
  const std::string gpu = gpu_identity();
  if (gpu.empty() || cache.empty()) return {};
  return read_verdict(cache, gpu, program_digest());
}

void use_verdict(const KernelVerdict& verdict) {
  if (const std::vector<std::string> ops = verdict.refused_ops(); !ops.empty())
    fail<DeviceError>(
        "cuda: this GPU does not compute as the CPU does, in {} of the ops of this build, first {} ({} check --device "
        "cuda tries again and lists all; EDDY_KERNELS=plain takes the GPU in spite of it)",
        ops.size(), ops.front(), program_name());
  const std::vector<std::string> refused = verdict.refused_choices();
  refuse_gpu_kernels(verdict.refused(), refused);
  set_automatic_kernels(verdict.kernels());
  for (const std::string& line : refused)
    add_warning("a kernel is refused on this GPU, and another one runs: " + line);
}

void choose_proven_kernels(const ProveOptions& options) {
  if (!has_automatic_kernels()) return;
  std::string why =
      "there is no folder to keep a check of them in (set EDDY_CACHE_DIR, or EDDY_KERNELS=auto "
      "to have them checked at each start)";
  try {
    if (const std::optional<KernelVerdict> verdict = prove_kernels(options)) return use_verdict(*verdict);
    if (gpu_identity().empty()) return;
  } catch (const IoError& error) {
    why = error.what();
  }
  set_automatic_kernels("plain");
  add_warning("plain kernels run on this GPU, which are slow: " + why);
}

int serve_trials(const std::vector<std::string>& names, const TrialSizes& sizes) {
  const auto write = [](const json& line) {
    std::printf("%s\n", line.dump(-1, ' ', false, json::error_handler_t::replace).c_str());
    std::fflush(stdout);
  };
  Device gpu = kCpu;
  try {
    gpu = cuda_device();
  } catch (const DeviceError& error) {
    write({{"error", error.what()}});
    return 1;
  }
  bool lost = false;
  for (const std::string& name : names) {
    write({{"begin", name}});
    write({{"trial", to_json(run_kernel_trial(name, gpu, sizes, &lost))}});
    if (lost) break;  // another process goes on
  }
  return 0;
}

}  // namespace eddy::app
