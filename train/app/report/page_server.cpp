// One thread, which waits for events. The library parses requests and bounds their sizes and their silence; how many
// there are at a time, and what is answered, is decided here.
#include "train/app/report/page_server.h"

#include <arpa/inet.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <exception>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor/base/format.h"
#include "tensor/files/descriptor.h"
#include "tensor/system/files.h"
#include "train/app/report/watched_page.h"

#ifdef EDDY_LIBEVENT
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/keyvalq_struct.h>
#endif

namespace eddy::app {
using namespace training;
namespace {

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

}  // namespace

bool is_loopback(const std::string& address) {
  in_addr four{};
  in6_addr six{};
  if (::inet_pton(AF_INET, address.c_str(), &four) == 1) return (ntohl(four.s_addr) >> 24) == 127;
  return ::inet_pton(AF_INET6, address.c_str(), &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
}

bool is_host_of(const std::string& host, const PageServerOptions& options) {
  const std::string name = host_name(host);
  if (name == "localhost" || is_loopback(name)) return true;
  if (std::ranges::any_of(options.hosts,
                          [&](const std::string& one) { return in_small_letters(one) == name; }))
    return true;
  if (is_loopback(options.address)) return false;
  const std::string own = machine_name();
  return is_number_address(name) ||
         (!own.empty() && (name == own || name.starts_with(own + ".") || own.starts_with(name + ".")));
}

#ifdef EDDY_LIBEVENT

std::string why_no_server() {
  return {};
}

struct PageServer::Server {
  PageServerOptions options;
  WatchedPage page;
  static constexpr std::size_t kTagBytes = 64;    // at most, of three numbers
  static constexpr ssize_t kMostBytes = 1 << 16;  // of the head of a request, and of its body
  std::string shown;  // the tag of the last page that was sent to its end; empty without
  event_base* base = ::event_base_new();
  evhttp* http = base == nullptr ? nullptr : ::evhttp_new(base);

  // Oldest first. The library makes them nothing when it closes one; they are held until that is seen.
  std::vector<bufferevent*> connections;

  // No exception may pass through the library, so what its callbacks write into has its room from the beginning.
  Server(const std::filesystem::path& folder, const PageServerOptions& chosen)
      : options(chosen), page(folder) {
    connections.reserve(options.connections);
    shown.reserve(kTagBytes);
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  ~Server() {
    if (http != nullptr) ::evhttp_free(http);
    for (bufferevent* const one : connections) ::bufferevent_decref(one);
    if (base != nullptr) ::event_base_free(base);
  }
  bufferevent* accept();
  void answer(evhttp_request* request);
};

namespace {

// Whether a text can be the name in a header `Host`, without a port.
bool is_host_name(const std::string& text) {
  return !text.empty() && std::ranges::all_of(text, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '.' || c == '_';
  });
}

// Whether the library has closed a connection: it takes its callbacks away.
bool is_closed(bufferevent* connection) {
  bufferevent_event_cb on_event = nullptr;
  ::bufferevent_getcb(connection, nullptr, nullptr, &on_event, nullptr);
  return on_event == nullptr;
}

// The value of the header Host; none unless there is exactly one.
const char* only_host(const evkeyvalq& headers) {
  const char* host = nullptr;
  int count = 0;
  for (const evkeyval* header = headers.tqh_first; header != nullptr; header = header->next.tqe_next)
    if (in_small_letters(header->key) == "host") {
      host = header->value;
      ++count;
    }
  return count == 1 ? host : nullptr;
}

// Tells a page from those that it replaces and that replace it.
std::string tag_of(const struct stat& status) {
  const std::timespec changed = change_time(status);
  return fmt::format("\"{:x}-{:x}-{:x}\"", status.st_ino, changed.tv_sec, changed.tv_nsec);
}

timeval timeval_of(std::chrono::milliseconds time) {
  timeval result{};
  result.tv_sec = static_cast<decltype(result.tv_sec)>(time.count() / 1000);
  result.tv_usec = static_cast<decltype(result.tv_usec)>(time.count() % 1000 * 1000);
  return result;
}

void reply(evhttp_request* request, int status, const char* reason, std::string_view line) {
  ::evhttp_add_header(::evhttp_request_get_output_headers(request), "Content-Type",
                      "text/plain; charset=utf-8");
  ::evbuffer_add(::evhttp_request_get_output_buffer(request), line.data(), line.size());
  ::evhttp_send_reply(request, status, reason, nullptr);
}

}  // namespace

// What a new connection is read and written by.
bufferevent* PageServer::Server::accept() {
  std::erase_if(connections, [](bufferevent* one) {
    const bool closed = is_closed(one);
    if (closed) ::bufferevent_decref(one);
    return closed;
  });
  if (connections.size() >= options.connections) {
    bufferevent* const oldest = connections.front();
    connections.erase(connections.begin());
    ::bufferevent_trigger_event(oldest, BEV_EVENT_READING | BEV_EVENT_TIMEOUT, 0);  // as if it said nothing
    ::bufferevent_decref(oldest);
  }
  bufferevent* const connection = ::bufferevent_socket_new(base, -1, 0);
  if (connection == nullptr) return nullptr;
  // The library bounds the head and the body of a request, but neither a line within the body, such as the size of a
  // chunk, nor what comes while it answers. Both wait here to be taken;
  // a connection with too much is closed as if it failed.
  ::evbuffer_add_cb(
      ::bufferevent_get_input(connection),
      [](evbuffer* waiting, const evbuffer_cb_info*, void* from) {
        if (::evbuffer_get_length(waiting) >
            std::size_t{2} * kMostBytes)  // a head, or a body, and what was read with its end
          ::bufferevent_trigger_event(static_cast<bufferevent*>(from), BEV_EVENT_READING | BEV_EVENT_TIMEOUT,
                                      BEV_TRIG_DEFER_CALLBACKS);
      },
      connection);
  ::bufferevent_incref(connection);
  connections.push_back(connection);
  return connection;
}

void PageServer::Server::answer(evhttp_request* request) {
  evkeyvalq* const headers = ::evhttp_request_get_output_headers(request);
  constexpr std::pair<const char*, const char*> kHeaders[] = {
      {"Connection", "close"},
      {"Cache-Control", "no-store"},
      {"X-Content-Type-Options", "nosniff"},
      {"X-Frame-Options", "DENY"},
      {"Referrer-Policy", "no-referrer"},
      {"Cross-Origin-Resource-Policy", "same-origin"}};
  for (const auto& [name, value] : kHeaders) ::evhttp_add_header(headers, name, value);
  const char* const host = only_host(*::evhttp_request_get_input_headers(request));
  if (host == nullptr || !is_host_of(host, options))
    return reply(
        request, 403, "Forbidden",
        "this server answers only under the address that it was started with, and under the names that "
        "--allow-host NAME gave it\n");
  const evhttp_cmd_type method = ::evhttp_request_get_command(request);
  if (method != EVHTTP_REQ_GET && method != EVHTTP_REQ_HEAD) {
    ::evhttp_add_header(headers, "Allow", "GET, HEAD");
    return reply(request, 405, "Method Not Allowed", "this page can only be read\n");
  }
  std::string_view asked = ::evhttp_request_get_uri(request);
  asked = asked.substr(0, asked.find('?'));
  if (asked != "/" && asked != "/report.html")
    return reply(request, 404, "Not Found", "there is one page here: /\n");
  Descriptor file;
  std::string why;
  try {
    file.reset(page.open().release());
  } catch (const std::exception& error) {  // none may pass through the library
    why = error.what();
  }
  struct stat status {};
  const bool whole = method == EVHTTP_REQ_GET;
  // The buffer sends the file piece by piece and closes it.
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0 ||
      (whole && ::evbuffer_add_file(::evhttp_request_get_output_buffer(request), file.get(), 0,
                                    status.st_size) != 0)) {
    ::evhttp_add_header(headers, "Retry-After", "2");
    ::evhttp_add_header(headers, "Refresh", "2");
    return reply(request, 503, "Service Unavailable", fmt::format("there is no report yet: {}\n", why));
  }
  ::evhttp_add_header(headers, "Content-Type", "text/html; charset=utf-8");
  ::evhttp_add_header(headers, "ETag", tag_of(status).c_str());
  if (!whole) {
    ::evhttp_add_header(headers, "Content-Length", fmt::format("{}", status.st_size).c_str());
  } else {
    static_cast<void>(file.release());
    ::evhttp_request_set_on_complete_cb(
        request,
        [](evhttp_request* sent, void* server) {
          const char* const tag = ::evhttp_find_header(::evhttp_request_get_output_headers(sent), "ETag");
          static_cast<Server*>(server)->shown = tag == nullptr ? "" : tag;
        },
        this);
  }
  ::evhttp_send_reply(request, 200, "OK", nullptr);
}

PageServer::PageServer(const std::filesystem::path& folder, const PageServerOptions& options) {
  const std::string& address = options.address;
  if (!is_number_address(address))
    fail<ConfigError>("watch: {:?} is no address (a number, such as 127.0.0.1 or ::1)", address);
  for (const std::string& host : options.hosts)
    if (!is_host_name(host))
      fail<ConfigError>("watch: --allow-host {:?} is no name (letters, digits, - and ., without a port)",
                        host);
  server_ = std::make_unique<Server>(folder, options);
  evhttp* const http = server_->http;
  if (http == nullptr) fail<IoError>("watch: the system gives no events to wait for");
  ::event_set_log_callback([](int, const char*) {});  // what clients do fills no log
  const timeval silence = timeval_of(options.silence);
  ::evhttp_set_timeout_tv(http, &silence);
  ::evhttp_set_bevcb(
      http, [](event_base*, void* server) { return static_cast<Server*>(server)->accept(); }, server_.get());
  ::evhttp_set_max_headers_size(http, Server::kMostBytes);
  ::evhttp_set_max_body_size(http, Server::kMostBytes);
  ::evhttp_set_allowed_methods(http, EVHTTP_REQ_GET | EVHTTP_REQ_HEAD | EVHTTP_REQ_POST | EVHTTP_REQ_PUT |
                                         EVHTTP_REQ_PATCH | EVHTTP_REQ_DELETE | EVHTTP_REQ_OPTIONS);
  ::evhttp_set_gencb(
      http,
      [](evhttp_request* request, void* server) {
        try {
          static_cast<Server*>(server)->answer(request);
        } catch (const std::exception&) {  // none may pass through the library
          ::evhttp_send_error(request, HTTP_SERVUNAVAIL, nullptr);
        }
      },
      server_.get());
  const int first = options.port > 0 ? options.port : kFirstPort,
            last = options.port > 0 ? options.port : kFirstPort + kTriedPorts - 1;
  for (int port = first; port <= last && port_ == 0; ++port)
    if (::evhttp_bind_socket(http, address.c_str(), static_cast<std::uint16_t>(port)) == 0) port_ = port;
  if (port_ == 0)
    fail<IoError>("watch: cannot listen at {} port {}{}: {}", address, first,
                  first == last ? "" : fmt::format(" to {}", last),
                  first == last ? "it is taken, or the address is not this machine's (choose another --port)"
                                : "all are taken, or the address is not this machine's");
  const bool six = address.find(':') != std::string::npos;
  url_ = fmt::format("http://{}{}{}:{}/", six ? "[" : "", address, six ? "]" : "", port_);
}

PageServer::~PageServer() = default;

void PageServer::serve(std::chrono::milliseconds time) {
  const timeval end = timeval_of(time);
  ::event_base_loopexit(server_->base, &end);
  ::event_base_loop(server_->base, 0);
}

bool PageServer::has_answered() const {
  return !server_->shown.empty();
}

bool PageServer::has_shown_latest() const {
  const Descriptor file = server_->page.open();
  struct stat status {};
  return file.get() >= 0 && ::fstat(file.get(), &status) == 0 && tag_of(status) == server_->shown;
}

#else

std::string why_no_server() {
  return "this build has no HTTP server (install libevent-dev, then run cmake and build again)";
}

struct PageServer::Server {};

PageServer::PageServer(const std::filesystem::path&, const PageServerOptions&) {
  fail<ConfigError>("watch: {}", why_no_server());
}

PageServer::~PageServer() = default;

void PageServer::serve(std::chrono::milliseconds) {}

bool PageServer::has_answered() const {
  return false;
}

bool PageServer::has_shown_latest() const {
  return false;
}

#endif

}  // namespace eddy::app
