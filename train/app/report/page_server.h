// Serves one page, read-only, over HTTP: for people whose browser is on another machine than the run. It is to be had
// at / and /report.html (watched_page.h), and nothing else of the machine. By libevent, where the build found it: its
// parts for events and HTTP alone, without encryption or compression.
//
//   here       eddy watch RUN                            http://127.0.0.1:8420/
//   elsewhere  ssh -L 8420:127.0.0.1:8420 MACHINE        and the same address in a browser
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace eddy::app {

struct PageServerOptions {
  std::string address = "127.0.0.1";  // to listen at, by number: loopback, unless a user asks for more
  int port = 0;                       // 0: the first free one from kFirstPort on
  std::vector<std::string> hosts;     // names that requests may call it by, beside those of is_host_of
  // Without a word from or to a client until its connection is closed.
  std::chrono::milliseconds silence{2000};
  // At a time; where one more comes, the oldest is closed. Who says a byte a second stays no longer than others let
  // him.
  std::size_t connections = 64;
};

inline constexpr int kFirstPort = 8420;
inline constexpr int kTriedPorts = 100;

// Why this build serves no pages, and what to do about it; empty where it does.
std::string why_no_server();

// Whether an address is one of this machine alone: 127.0.0.0/8, ::1.
bool is_loopback(const std::string& address);

// Whether a request with this header `Host` was meant for a server with these options. At loopback only names of
// loopback are answered: a page of a stranger's whose name was made to lead here (DNS rebinding) would else read the
// report. At other addresses numbers and this machine's name are, for the same reason. Names of `hosts` always are, in
// any case of their letters and with any port.
bool is_host_of(const std::string& host, const PageServerOptions& options);

// Answers while serve() runs. The page is read anew for every request. It may not be there yet.
class PageServer {
 public:
  // Of a run, or of a folder that holds runs.
  // errors: ConfigError for a build without a server, for an address that is no number, and for a host that is no name;
  // IoError when the port is taken, or when no one of the tried ones is free.
  PageServer(const std::filesystem::path& folder, const PageServerOptions& options);
  ~PageServer();
  PageServer(const PageServer&) = delete;
  PageServer& operator=(const PageServer&) = delete;

  // Answers whoever asks, for so long or until a signal comes.
  void serve(std::chrono::milliseconds time);

  // "http://127.0.0.1:8420/".
  const std::string& url() const { return url_; }
  int port() const { return port_; }
  // Whether a page was sent to its end, and whether the last one was the page as it is now (errors: WatchedPage::open).
  bool has_answered() const;
  bool has_shown_latest() const;

 private:
  struct Server;
  std::unique_ptr<Server> server_;
  std::string url_;
  int port_ = 0;
};

}  // namespace eddy::app
