// `eddy watch`: serves the page of a run, or of several. `eddy train --watch` starts it as a process of its own, so
// that nothing that comes from a network reaches the process that trains.
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tensor/base/format.h"
#include "tensor/system/memory.h"
#include "tensor/system/process.h"
#include "train/app/program/commands.h"
#include "train/app/report/page_server.h"
#include "train/app/report/watched_page.h"
#include "train/process/running_program.h"
#include "train/process/stop_signal.h"
#include "train/words/program_name.h"

namespace eddy::app {
using namespace training;
namespace {

struct WatchFlags {
  std::string run;
  WatchOptions options;
  int parent = 0;  // of which it is the child; 0: of no one whom it follows
};

// Requests that never end cannot take the memory that a training run beside it needs.
void limit_memory() {
  constexpr rlim_t kMore = rlim_t{1} << 28;
  const auto bytes = static_cast<rlim_t>(address_space_bytes());
  if (bytes == 0) return;
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0) return;
  const rlim_t wanted = bytes + kMore;
  if (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur <= wanted) return;
  limit.rlim_cur = wanted;
  static_cast<void>(::setrlimit(RLIMIT_AS, &limit));
}

int run_watch(const WatchFlags& flags) {
  const StopOnSignal signals;
  std::signal(SIGPIPE, SIG_IGN);  // who goes away amid an answer ends nothing
  limit_memory();
  PageServer server(flags.run, {flags.options.address, flags.options.port, flags.options.hosts});
  if (flags.parent == 0) require_watchable(flags.run);
  print_line("watch {} at {}", flags.run, server.url());
  if (is_loopback(flags.options.address))
    print_line("from another machine: ssh -L {0}:{1}:{0} MACHINE, and http://127.0.0.1:{0}/ there",
               server.port(),
               flags.options.address.find(':') == std::string::npos ? flags.options.address
                                                                    : "[" + flags.options.address + "]");
  else
    say(fmt::format("warning: whoever reaches {} reads this report", flags.options.address));
  flush_output();
  constexpr auto kTenth = std::chrono::milliseconds(100);
  if (flags.parent == 0) {
    while (!stop_requested()) server.serve(kTenth);
    return 0;
  }
  // Whoever waits for the end of what the training process prints does not wait for this one.
  if (std::freopen("/dev/null", "w", stdout) == nullptr || std::freopen("/dev/null", "w", stderr) == nullptr)
    return 1;
  while (!stop_requested() && ::getppid() == flags.parent) server.serve(kTenth);
  // A reader sees how the run ended, if there is one.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (server.has_answered() && !server.has_shown_latest() && !stop_requested() &&
         std::chrono::steady_clock::now() < end)
    server.serve(kTenth);
  return 0;
}

Described describe_watch(CLI::App& command) {
  const auto flags = std::make_shared<WatchFlags>();
  command.add_option("RUN", flags->run, "Folder of a run, or one that holds runs")->required();
  flags->options.add_to(command, "");
  command
      .add_option(
          "--with-parent", flags->parent,
          fmt::format(
              "End after this process, whose child this one is; RUN may come later ({} train --watch)",
              program_name()))
      ->transform(whole_number(1, INT32_MAX));
  return {[flags] { return run_watch(*flags); }};
}

}  // namespace

void WatchOptions::add_to(CLI::App& command, const std::string& when) {
  command
      .add_option("--address", address,
                  when + "Address to listen at; other than loopback, others can read the page")
      ->check(not_empty())
      ->capture_default_str();
  command
      .add_option(
          "--allow-host", hosts,
          when +
              "Also answer requests to this name of the machine, such as that of a container's host or "
              "of a proxy; may be repeated")
      ->allow_extra_args(false)
      ->check(not_empty());
  command
      .add_option("--port", port,
                  when + fmt::format("Port to listen at; 0: the first free one from {} on", kFirstPort))
      ->transform(whole_number(0, 65535))
      ->capture_default_str();
}

void start_watching(const std::string& run, const WatchOptions& options) {
  if (const std::string why = why_no_server(); !why.empty()) fail<ConfigError>("train: --watch: {}", why);
  std::fflush(stdout);
  // In a group of its own: Ctrl-C is for the training process, and this one stays until that one has ended.
  std::vector<std::string> words{program_name(),
                                 "watch",
                                 run,
                                 "--address",
                                 options.address,
                                 "--port",
                                 fmt::format("{}", options.port),
                                 "--with-parent",
                                 fmt::format("{}", ::getpid())};
  for (const std::string& host : options.hosts) words.insert(words.end(), {"--allow-host", host});
  RunningProgram watch({.words = std::move(words),
                        .file = own_program(),
                        .input = kShared,
                        .output = kShared,
                        .errors = kShared,
                        .own_group = true});
  if (watch.end().error != 0) fail<IoError>("train: --watch: {}", watch.end().why(program_name()));
  watch.detach();
}

Command commands::watch() {
  return {"watch", "Serve the report of a run, or of several, to a browser, read-only, until Ctrl-C",
          Computes::nothing, Results::printed, describe_watch};
}

}  // namespace eddy::app
