// Serves the page of a run, read-only, over HTTP: for people whose browser is on another machine than the run. One page
// is to be had, `report.html`, at / and /report.html, and nothing else of the machine. Of HTTP/1.1 it knows what that needs: no
// encryption, no compression, no second request of a connection.
//
//   here       eddy watch RUN                            http://127.0.0.1:8420/
//   elsewhere  ssh -L 8420:127.0.0.1:8420 MACHINE        and the same address in a browser
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/files/descriptor.h"

namespace eddy {

struct PageServerOptions {
  std::string address = "127.0.0.1";  // to listen at, by number: loopback, unless a user asks for more
  int port = 0;                       // 0: the first free one from kFirstPort on
};

inline constexpr int kFirstPort = 8420;
inline constexpr int kTriedPorts = 100;

// Whether an address is one of this machine alone: 127.0.0.0/8, ::1.
bool is_loopback(const std::string& address);

// Whether a request with this header `Host` was meant for a server at `address`. At loopback only names of loopback are
// answered: a page of a stranger's whose name was made to lead here (DNS rebinding) would else read the report. At other
// addresses numbers and this machine's name are, for the same reason.
bool is_host_of(const std::string& host, const std::string& address);

// Answers while serve() runs. The page is read anew for every request. It may not be there yet.
class PageServer {
 public:
  // errors: ConfigError for an address that is no number; IoError when the port is taken, or when no one of the tried
  // ones is free.
  PageServer(const std::filesystem::path& run, const PageServerOptions& options);
  ~PageServer();
  PageServer(const PageServer&) = delete;
  PageServer& operator=(const PageServer&) = delete;

  // Waits until someone asks, or can be sent more, and does that. Returns then, or after `longest`.
  void serve(std::chrono::milliseconds longest);

  // "http://127.0.0.1:8420/".
  const std::string& url() const { return url_; }
  int port() const { return port_; }
  // How often the page was asked for and there.
  std::int64_t answered() const { return answered_; }
  // Whether someone has asked and has not gone yet.
  bool is_answering() const;

 private:
  struct Connection;
  void answer(Connection& one, std::string_view head);

  std::string path_, address_, url_;
  int port_ = 0;
  Descriptor listener_;
  std::vector<Connection> connections_;
  std::int64_t answered_ = 0;
};

}  // namespace eddy
