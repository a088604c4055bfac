#include "train/app/measure/kernels/prove.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
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
#include "train/step/clock.h"
#include "train/words/program_name.h"

namespace eddy::app {
using namespace training;
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// A process that serves trials. It is killed with this object.
class TrialProcess {
 public:
  TrialProcess(std::vector<std::string> words, const std::deque<std::string>& names) {
    words.insert(words.end(), names.begin(), names.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail_to_start();
    output_.reset(ends[0]);
    Descriptor theirs(ends[1]);
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ < 0) fail_to_start();
    if (pid_ > 0) return;
    // Between fork and exec only calls that need no lock.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int nowhere = ::open("/dev/null", O_RDWR);
    if (::getppid() != parent || ::dup2(nowhere, 0) < 0 || ::dup2(ends[1], 1) < 0 || ::dup2(nowhere, 2) < 0)
      ::_exit(126);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  ~TrialProcess() { end(); }
  TrialProcess(const TrialProcess&) = delete;
  TrialProcess& operator=(const TrialProcess&) = delete;

  // Returns the next line, or nothing at the end or after so many seconds (`late` tells).
  std::optional<std::string> line(double seconds, bool* late) {
    const Clock::time_point begin = Clock::now();
    for (;;) {
      if (const std::size_t end = text_.find('\n'); end != std::string::npos) {
        std::string first = text_.substr(0, end);
        text_.erase(0, end + 1);
        return first;
      }
      const double left = seconds - seconds_between(begin);
      pollfd waiting{output_.get(), POLLIN, 0};
      const int ready = left <= 0 ? 0 : ::poll(&waiting, 1, static_cast<int>(left * 1e3) + 1);
      if (ready < 0 && errno == EINTR) continue;
      *late = ready == 0;
      if (ready <= 0) return {};
      char part[4096];
      const ssize_t got = ::read(output_.get(), part, sizeof part);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return {};
      text_.append(part, static_cast<std::size_t>(got));
    }
  }

  // Ends the process, by force where it runs. Returns its status as waitpid gives it; 0 where the system keeps it.
  int end() {
    if (pid_ <= 0) return 0;
    const pid_t pid = std::exchange(pid_, -1);
    int status = 0;
    const Clock::time_point begin = Clock::now();
    bool killed = false;
    while (::waitpid(pid, &status, WNOHANG) == 0) {  // a driver may hold a process for a while
      const double waited = seconds_between(begin);
      if (waited > 10) return 0;
      if (waited > 0.5 && !std::exchange(killed, true)) ::kill(pid, SIGKILL);
      ::usleep(2000);
    }
    return killed ? 0 : status;
  }
  void kill() const { ::kill(pid_, SIGKILL); }

 private:
  [[noreturn]] static void fail_to_start() {
    fail<IoError>("kernels: no process can be started to try them in: {}", std::strerror(errno));
  }

  pid_t pid_ = -1;
  Descriptor output_;
  std::string text_;
};

// What a status says of the kernel that the process was at.
// errors: IoError when it was ended from outside.
std::string reason_of(int status) {
  if (!WIFSIGNALED(status)) return fmt::format("its process ended with status {}", WEXITSTATUS(status));
  const int signal = WTERMSIG(status);
  for (const int outside : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGKILL})
    if (signal == outside)
      fail<IoError>("kernels: the process that tries them was ended from outside ({})", strsignal(signal));
  return fmt::format("its process ended by signal {} ({})", signal, strsignal(signal));
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
    if (late) process.kill();
    const int status = process.end();
    if (!at.empty()) {
      done.push_back(
          {at, late ? fmt::format("it did not end in {:g} s", options.seconds) : reason_of(status), ""});
      std::erase(names, at);
    }
    if (names.size() == before)
      fail<IoError>("kernels: the process that tries them says nothing{}",
                    late ? "" : ": " + reason_of(status));
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
