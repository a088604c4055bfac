// The library parses requests; what it would do beyond that is switched off here.
#include "train/watch/page_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <optional>
#include <thread>

#include "tensor/base/format.h"
#include "tensor/files/descriptor.h"
#include "train/page/html_page.h"

#ifdef EDDY_HTTPLIB
#include <httplib.h>
#endif

namespace eddy {
namespace {

bool is_number_address(const std::string& address) {
  in6_addr any{};
  return ::inet_pton(AF_INET, address.c_str(), &any) == 1 ||
         ::inet_pton(AF_INET6, address.c_str(), &any) == 1;
}

// The host without its port, in small letters: "[::1]:80" is "::1". Empty for what is no host.
std::string host_name(std::string host) {
  std::transform(host.begin(), host.end(), host.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (host.starts_with('[')) {
    const std::size_t end = host.find(']');
    return end == std::string::npos ? std::string() : host.substr(1, end - 1);
  }
  return host.substr(0, host.find(':'));
}

std::string machine_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? host_name(name) : std::string();
}

#ifdef EDDY_HTTPLIB

// The page as it is now; nothing where there is none. Only a regular file that is a page of Eddy's is read, whatever
// stands under its name.
std::optional<std::string> read_page(const std::filesystem::path& path) {
  constexpr off_t kMostBytes = off_t{1} << 26;
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat status {};
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
      status.st_size > kMostBytes)
    return std::nullopt;
  std::string text(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t got = 0;
  while (got < text.size()) {
    const ssize_t part = ::pread(file.get(), text.data() + got, text.size() - got, static_cast<off_t>(got));
    if (part < 0 && errno == EINTR) continue;
    if (part <= 0) return std::nullopt;
    got += static_cast<std::size_t>(part);
  }
  return is_page_text(text) ? std::optional(std::move(text)) : std::nullopt;
}

void answer(httplib::Response& response, int status, const std::string& text) {
  response.status = status;
  response.set_content(text, "text/plain; charset=utf-8");
}

#endif

}  // namespace

bool is_loopback(const std::string& address) {
  in_addr four{};
  in6_addr six{};
  if (::inet_pton(AF_INET, address.c_str(), &four) == 1) return (ntohl(four.s_addr) >> 24) == 127;
  return ::inet_pton(AF_INET6, address.c_str(), &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
}

bool is_host_of(const std::string& host, const std::string& address) {
  const std::string name = host_name(host);
  if (name == "localhost" || is_loopback(name)) return true;
  if (is_loopback(address)) return false;
  const std::string own = machine_name();
  return is_number_address(name) ||
         (!own.empty() && (name == own || name.starts_with(own + ".") || own.starts_with(name + ".")));
}

#ifdef EDDY_HTTPLIB

std::string why_no_server() {
  return {};
}

struct PageServer::Server {
  httplib::Server http;
  std::atomic<std::int64_t> answered{0};
  std::atomic<bool> ended{false};  // listening
  std::thread thread;
};

PageServer::PageServer(const std::filesystem::path& run, const PageServerOptions& options)
    : server_(std::make_unique<Server>()) {
  if (!is_number_address(options.address))
    fail<ConfigError>("watch: {:?} is no address (a number, such as 127.0.0.1 or ::1)", options.address);
  httplib::Server& http = server_->http;
  constexpr int kThreads = 8, kSeconds = 2;
  http.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
  http.set_keep_alive_timeout(kSeconds);  // holds for the first request of a connection too
  http.set_read_timeout(kSeconds);
  http.set_write_timeout(kSeconds);
  // The library's own options would let a second server share the port, and take every other request.
  http.set_socket_options([](auto socket) {
    const int yes = 1;
    static_cast<void>(::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes));
  });
  http.set_keep_alive_max_count(1);  // what follows a request on its connection is not looked at
  // Runs before bodies are read and before the library would answer anything itself.
  http.set_pre_routing_handler([this, path = run / "report.html", address = options.address](
                                   const httplib::Request& request, httplib::Response& response) {
    // The library would answer a hundred overlapping ranges with a hundred copies of the page.
    const_cast<httplib::Request&>(request).ranges.clear();
    response.set_header("Cache-Control", "no-store");
    response.set_header("X-Content-Type-Options", "nosniff");
    response.set_header("X-Frame-Options", "DENY");
    response.set_header("Referrer-Policy", "no-referrer");
    response.set_header("Cross-Origin-Resource-Policy", "same-origin");
    constexpr auto kDone = httplib::Server::HandlerResponse::Handled;
    if (request.get_header_value_count("Host") != 1 || !is_host_of(request.get_header_value("Host"), address))
      return answer(response, 403, "this server answers only under the address that it was started with\n"),
             kDone;
    if (request.method != "GET" && request.method != "HEAD") {
      response.set_header("Allow", "GET, HEAD");
      return answer(response, 405, "this page can only be read\n"), kDone;
    }
    if (request.path != "/" && request.path != "/report.html")
      return answer(response, 404, "there is one page here: /\n"), kDone;
    std::optional<std::string> page = read_page(path);
    if (!page) {
      response.set_header("Retry-After", "2");
      response.set_header("Refresh", "2");
      return answer(response, 503, "the run has no report yet\n"), kDone;
    }
    response.status = 200;
    response.set_content(*page, "text/html; charset=utf-8");
    if (request.method == "GET") ++server_->answered;
    return kDone;
  });
  const int first = options.port > 0 ? options.port : kFirstPort,
            last = options.port > 0 ? options.port : kFirstPort + kTriedPorts - 1;
  for (int port = first; port <= last && port_ == 0; ++port)
    if (http.bind_to_port(options.address, port)) port_ = port;
  if (port_ == 0)
    fail<IoError>("watch: cannot listen at {} port {}{}: {}", options.address, first,
                  first == last ? "" : fmt::format(" to {}", last),
                  first == last ? "it is taken, or the address is not this machine's (choose another --port)"
                                : "all are taken, or the address is not this machine's");
  const bool six = options.address.find(':') != std::string::npos;
  url_ = fmt::format("http://{}{}{}:{}/", six ? "[" : "", options.address, six ? "]" : "", port_);
  server_->thread = std::thread([this] {
    server_->http.listen_after_bind();
    server_->ended = true;
  });
}

std::int64_t PageServer::answered() const {
  return server_->answered;
}

PageServer::~PageServer() {
  // A server that has not begun to listen cannot be stopped.
  while (server_->thread.joinable() && !server_->http.is_running() && !server_->ended)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  server_->http.stop();
  if (server_->thread.joinable()) server_->thread.join();
}

#else

std::string why_no_server() {
  return "this build has no HTTP server (install libcpp-httplib-dev, then run cmake and build again)";
}

struct PageServer::Server {};

PageServer::PageServer(const std::filesystem::path&, const PageServerOptions&) {
  fail<ConfigError>("watch: {}", why_no_server());
}

std::int64_t PageServer::answered() const {
  return 0;
}

PageServer::~PageServer() = default;

#endif

}  // namespace eddy
