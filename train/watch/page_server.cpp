// One thread, which waits in poll() alone, and one request of a connection: enough for a page that is only read.
#include "train/watch/page_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <optional>
#include <string_view>
#include <vector>

#include "tensor/base/format.h"
#include "tensor/files/descriptor.h"
#include "train/page/html_page.h"

namespace eddy {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostConnections = 64, kLongestRequest = std::size_t{1} << 16;
constexpr auto kPatience =
    std::chrono::seconds(2);  // until a request is there, and between two parts of an answer

bool is_number_address(const std::string& address) {
  in6_addr any{};
  return ::inet_pton(AF_INET, address.c_str(), &any) == 1 ||
         ::inet_pton(AF_INET6, address.c_str(), &any) == 1;
}

std::string in_small_letters(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// The host without its port, in small letters: "[::1]:80" is "::1". Empty for what is no host.
std::string host_name(const std::string& given) {
  const std::string host = in_small_letters(given);
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

// A socket that listens there; none where the port is taken, or the address is not this machine's.
Descriptor listening(const std::string& address, int port) {
  sockaddr_in four{};
  sockaddr_in6 six{};
  four.sin_family = AF_INET;
  six.sin6_family = AF_INET6;
  four.sin_port = six.sin6_port = htons(static_cast<std::uint16_t>(port));
  const bool is_six = ::inet_pton(AF_INET6, address.c_str(), &six.sin6_addr) == 1;
  if (!is_six) static_cast<void>(::inet_pton(AF_INET, address.c_str(), &four.sin_addr));
  Descriptor socket(::socket(is_six ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  // A port whose connections of before have not faded yet is free.
  const int yes = 1;
  static_cast<void>(::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes));
  const auto* const place =
      is_six ? reinterpret_cast<const sockaddr*>(&six) : reinterpret_cast<const sockaddr*>(&four);
  if (::bind(socket.get(), place, is_six ? sizeof six : sizeof four) != 0 ||
      ::listen(socket.get(), kMostConnections) != 0)
    socket.reset();
  return socket;
}

// A file that is sent.
struct Page {
  Descriptor file;
  off_t bytes = 0, sent = 0;
};

// The page as it is now; nothing where there is none. Only a regular file that is a page of Eddy's is read, whatever
// stands under its name. A newer page takes its name and leaves this one as it is.
std::optional<Page> open_page(const std::string& path) {
  constexpr off_t kMostBytes = off_t{1} << 26;
  Descriptor file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat status {};
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
      status.st_size > kMostBytes)
    return std::nullopt;
  char begin[1024];
  const ssize_t got = ::pread(file.get(), begin, sizeof begin, 0);
  if (got <= 0 || !is_page_text({begin, static_cast<std::size_t>(got)})) return std::nullopt;
  return Page{std::move(file), status.st_size};
}

struct Request {
  std::string_view method, path;   // without what follows a '?'
  std::vector<std::string> hosts;  // the values of its headers Host
};

// Reads the lines before the empty one; nothing where they are no request of HTTP/1.
std::optional<Request> parsed(std::string_view head) {
  constexpr auto npos = std::string_view::npos;
  const auto next_line = [&] {
    const std::size_t end = std::min(head.find("\r\n"), head.size());
    const std::string_view line = head.substr(0, end);
    head.remove_prefix(std::min(end + 2, head.size()));
    return line;
  };
  Request request;
  const std::string_view first = next_line();
  const std::size_t one = first.find(' '), two = first.find(' ', one + 1);
  if (one == npos || two == npos) return std::nullopt;
  if (const auto version = first.substr(two + 1); version != "HTTP/1.1" && version != "HTTP/1.0")
    return std::nullopt;
  request.method = first.substr(0, one);
  request.path = first.substr(one + 1, two - one - 1);
  request.path = request.path.substr(0, request.path.find('?'));
  while (!head.empty()) {
    const std::string_view line = next_line();
    const std::size_t colon = line.find_first_of(": \t");
    if (colon == npos || line[colon] != ':') return std::nullopt;
    if (in_small_letters(std::string(line.substr(0, colon))) != "host") continue;
    const std::size_t begin = line.find_first_not_of(" \t", colon + 1), end = line.find_last_not_of(" \t");
    request.hosts.emplace_back(begin == npos ? std::string_view() : line.substr(begin, end + 1 - begin));
  }
  return request;
}

std::string head_of(std::string_view status, std::string_view type, off_t bytes, std::string_view more) {
  return fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: text/{}; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n"
      "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\n"
      "Referrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\n{}\r\n",
      status, type, bytes, more);
}

// Whether a call may do what it did not do yet.
bool is_early() {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

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

// One who asks, is answered, and is then heard out until it closes: an answer is lost where something unread is in the way.
struct PageServer::Connection {
  enum class Phase { asks, is_answered, is_heard_out, is_over };

  explicit Connection(Descriptor connected) : socket(std::move(connected)) {}

  Descriptor socket;
  Clock::time_point end = Clock::now() + kPatience;  // it is closed then
  Phase phase = Phase::asks;
  std::string request, text;  // what came; what is sent before the page
  Page page;

  void say(std::string_view status, const std::string& line, std::string_view more = "") {
    text = head_of(status, "plain", std::ssize(line), more) + line;
  }
  void receive(PageServer& server);
  void send();
};

void PageServer::Connection::receive(PageServer& server) {
  char part[4096];
  const ssize_t got = ::recv(socket.get(), part, sizeof part, 0);
  if (got < 0 && is_early()) return;
  if (got <= 0) {
    phase = Phase::is_over;
    return;
  }
  if (phase == Phase::is_heard_out) return;
  const std::size_t before = request.size();
  request.append(part, static_cast<std::size_t>(got));
  const std::size_t head = request.find("\r\n\r\n", before < 3 ? 0 : before - 3);
  if (head == std::string::npos && request.size() < kLongestRequest) return;
  if (head == std::string::npos)
    say("431 Request Header Fields Too Large", "this request is too long\n");
  else
    server.answer(*this, std::string_view(request).substr(0, head));
  request.clear();
  phase = Phase::is_answered;
  end = Clock::now() + kPatience;
}

// Sends as much as the other side takes.
void PageServer::Connection::send() {
  ssize_t sent = 0;
  if (!text.empty()) {
    sent = ::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL);
    if (sent > 0) text.erase(0, static_cast<std::size_t>(sent));
  } else {
    char part[65536];
    const ssize_t got = ::pread(page.file.get(), part, sizeof part, page.sent);
    const auto bytes = static_cast<std::size_t>(std::min<off_t>(got, page.bytes - page.sent));
    sent = got <= 0 ? 0 : ::send(socket.get(), part, bytes, MSG_NOSIGNAL);
    if (sent > 0) page.sent += sent;
  }
  if (sent < 0 && is_early()) return;
  end = Clock::now() + kPatience;
  if (sent <= 0) {
    phase = Phase::is_over;  // the other side has gone, or the file is shorter than it was
  } else if (text.empty() && page.sent == page.bytes) {
    static_cast<void>(::shutdown(socket.get(), SHUT_WR));
    phase = Phase::is_heard_out;
  }
}

void PageServer::answer(Connection& one, std::string_view head) {
  const std::optional<Request> request = parsed(head);
  std::optional<Page> page;
  if (!request)
    one.say("400 Bad Request", "this is no request of HTTP/1\n");
  else if (request->hosts.size() != 1 || !is_host_of(request->hosts[0], address_))
    one.say("403 Forbidden", "this server answers only under the address that it was started with\n");
  else if (request->method != "GET" && request->method != "HEAD")
    one.say("405 Method Not Allowed", "this page can only be read\n", "Allow: GET, HEAD\r\n");
  else if (request->path != "/" && request->path != "/report.html")
    one.say("404 Not Found", "there is one page here: /\n");
  else if (page = open_page(path_); !page)
    one.say("503 Service Unavailable", "the run has no report yet\n", "Retry-After: 2\r\nRefresh: 2\r\n");
  else
    one.text = head_of("200 OK", "html", page->bytes, "");
  if (request && request->method == "HEAD") {
    one.text.erase(one.text.find("\r\n\r\n") + 4);
  } else if (page) {
    one.page = std::move(*page);
    ++answered_;
  }
}

PageServer::PageServer(const std::filesystem::path& run, const PageServerOptions& options)
    : path_((run / "report.html").string()), address_(options.address) {
  if (!is_number_address(address_))
    fail<ConfigError>("watch: {:?} is no address (a number, such as 127.0.0.1 or ::1)", address_);
  const int first = options.port > 0 ? options.port : kFirstPort,
            last = options.port > 0 ? options.port : kFirstPort + kTriedPorts - 1;
  for (int port = first; port <= last && port_ == 0; ++port) {
    listener_ = listening(address_, port);
    if (listener_.get() >= 0) port_ = port;
  }
  if (port_ == 0)
    fail<IoError>("watch: cannot listen at {} port {}{}: {}", address_, first,
                  first == last ? "" : fmt::format(" to {}", last),
                  first == last ? "it is taken, or the address is not this machine's (choose another --port)"
                                : "all are taken, or the address is not this machine's");
  const bool six = address_.find(':') != std::string::npos;
  url_ = fmt::format("http://{}{}{}:{}/", six ? "[" : "", address_, six ? "]" : "", port_);
}

PageServer::~PageServer() = default;

void PageServer::serve(std::chrono::milliseconds longest) {
  using Phase = Connection::Phase;
  std::vector<pollfd> waited;
  for (const Connection& one : connections_)
    waited.push_back(
        {one.socket.get(), static_cast<short>(one.phase == Phase::is_answered ? POLLOUT : POLLIN), 0});
  if (connections_.size() < kMostConnections) waited.push_back({listener_.get(), POLLIN, 0});
  if (::poll(waited.data(), waited.size(), static_cast<int>(longest.count())) < 0) return;  // by a signal
  for (std::size_t i = 0; i < connections_.size(); ++i) {
    if (waited[i].revents == 0) continue;
    Connection& one = connections_[i];
    if (one.phase == Phase::is_answered)
      one.send();
    else
      one.receive(*this);
  }
  if (waited.back().fd == listener_.get() && waited.back().revents != 0) {
    Descriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.get() >= 0) connections_.emplace_back(std::move(socket));
  }
  std::erase_if(connections_, [now = Clock::now()](const Connection& one) {
    return one.phase == Phase::is_over || one.end < now;
  });
}

bool PageServer::is_answering() const {
  return std::any_of(connections_.begin(), connections_.end(),
                     [](const Connection& one) { return one.phase != Connection::Phase::asks; });
}

}  // namespace eddy
