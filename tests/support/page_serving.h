// A page server as a process of its own, without the program around it.
#pragma once

#include <doctest/doctest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <memory>
#include <string>

#include "tests/support/files.h"
#include "tests/support/processes.h"
#include "train/app/report/page_server.h"
#include "train/process/stop_signal.h"

namespace eddy::test {

// Serves a folder until a signal comes; `port` is 0 where the build serves nothing, and a message says so.
class PageServing {
 public:
  // Shorter times than a user's, so that a test need not wait for them.
  static app::PageServerOptions quick() {
    app::PageServerOptions options;
    options.silence = std::chrono::milliseconds(500);
    return options;
  }

  explicit PageServing(const std::string& folder, const app::PageServerOptions& options = quick()) {
    if (const std::string why = app::why_no_server(); !why.empty()) {
      MESSAGE("skipped: " << why);
      return;
    }
    std::array<int, 2> ends{};
    REQUIRE(::pipe(ends.data()) == 0);
    server_ = std::make_unique<Child>([&] {
      const training::StopOnSignal signals;
      std::signal(SIGPIPE, SIG_IGN);
      app::PageServer server(folder, options);
      const int port = server.port();
      if (::write(ends[1], &port, sizeof port) != sizeof port) return 1;
      ::close(ends[1]);
      while (!training::stop_requested()) server.serve(std::chrono::milliseconds(20));
      return 0;
    });
    ::close(ends[1]);
    if (::read(ends[0], &port_, sizeof port_) != sizeof port_) port_ = 0;
    ::close(ends[0]);
    CHECK(port_ > 0);
  }

  int port() const { return port_; }
  // Asks it to end, and returns its exit code.
  int end() {
    server_->signal(SIGTERM);
    return server_->wait();
  }

 private:
  std::unique_ptr<Child> server_;
  int port_ = 0;
};

}  // namespace eddy::test
