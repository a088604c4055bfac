// A run that is watched: its page from the beginning to the end, served to those who ask for it rightly and to no others.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tensor/files/descriptor.h"
#include "tests/support/browser.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/processes.h"
#include "tests/support/program.h"
#include "train/app/views/html_page.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::app;
using namespace eddy::test;
namespace fs = std::filesystem;

std::string page_of(const std::string& text) {
  HtmlPage page("Watched");
  page.status({"running", text, {"to stop it: kill -INT 7"}, 1.7e9, 3});
  page.slider("sample", {{"one", "first text"}, {"two", "second text"}});
  return page.html();
}

// Connects to a port of 127.0.0.1; a descriptor of -1 where no one listens.
Descriptor connected(int port) {
  Descriptor client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(client.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    client.reset();
  return client;
}

// Sends bytes, and returns all that comes back until the other side closes, or twenty seconds have passed.
std::string answer_to(int port, const std::string& bytes) {
  const Descriptor client = connected(port);
  if (client.get() < 0) return "(no one listens)";
  std::size_t sent = 0;
  std::string answer;
  char part[65536];
  for (;;) {
    pollfd both{client.get(), static_cast<short>(POLLIN | (sent < bytes.size() ? POLLOUT : 0)), 0};
    if (::poll(&both, 1, 20'000) <= 0) return answer + "(no end)";
    if ((both.revents & POLLOUT) != 0) {
      const ssize_t now =
          ::send(client.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
      sent = now > 0 ? sent + static_cast<std::size_t>(now) : bytes.size();
    }
    if ((both.revents & (POLLIN | POLLHUP | POLLERR)) == 0) continue;
    const ssize_t got = ::recv(client.get(), part, sizeof part, 0);
    if (got <= 0) return answer;
    answer.append(part, static_cast<std::size_t>(got));
  }
}

std::string get(const std::string& path, const std::string& more = "", const std::string& method = "GET") {
  return method + " " + path + " HTTP/1.1\r\nHost: localhost\r\n" + more + "\r\n";
}

int status_of(const std::string& answer) {
  return answer.starts_with("HTTP/1.1 ") ? std::atoi(answer.c_str() + 9) : 0;
}
std::string body_of(const std::string& answer) {
  const std::size_t end = answer.find("\r\n\r\n");
  return end == std::string::npos ? std::string() : answer.substr(end + 4);
}

// The port in "... at http://127.0.0.1:8420/" of what a program printed; 0 without.
int port_in(const std::string& output) {
  const std::string mark = "http://127.0.0.1:";
  const std::size_t at = output.find(mark);
  return at == std::string::npos || output.find('/', at + mark.size()) == std::string::npos
             ? 0
             : std::atoi(output.c_str() + at + mark.size());
}

// `eddy watch` on a folder; `port` is 0 where the build serves nothing, and a message says so.
struct Watch {
  TempFolder folder;
  std::unique_ptr<Program> program;
  int port = 0;

  Watch() {
    if (!has_program()) return;
    fs::create_directory(folder.path("run"));
    program = std::make_unique<Program>(Start{{"watch", "run"}, folder.path()});
    wait_until([&] {
      return !program->read_output(program->output().size() + 1) || port_in(program->output()) > 0;
    });
    port = port_in(program->output());
    if (port > 0) return;
    const Ended ended = program->finish();
    CHECK_MESSAGE(contains(ended.err, "install libevent-dev"), ended.err);
    MESSAGE("skipped: " << ended.err);
  }
  void write(const std::string& text) const { folder.write("run/report.html", text); }
};

}  // namespace

TEST_CASE("watch: the page is to be read at two paths as it is now, and nothing else is there") {
  const Watch watch;
  if (watch.port == 0) return;
  CHECK(status_of(answer_to(watch.port, get("/"))) == 503);
  watch.write(page_of("one"));
  for (const char* path : {"/", "/report.html", "/?x=1"}) {
    CAPTURE(path);
    const std::string answer = answer_to(watch.port, get(path));
    CHECK(status_of(answer) == 200);
    CHECK((body_of(answer) == page_of("one")));
    for (const char* header :
         {"Content-Type: text/html; charset=utf-8\r\n", "X-Content-Type-Options: nosniff\r\n",
          "Cache-Control: no-store\r\n", "X-Frame-Options: DENY\r\n", "Connection: close\r\n"})
      CHECK_MESSAGE(contains(answer, header), header);
  }
  watch.write(page_of("two"));
  CHECK((body_of(answer_to(watch.port, get("/"))) == page_of("two")));
  const std::string head = answer_to(watch.port, get("/", "", "HEAD"));
  CHECK(status_of(head) == 200);
  CHECK(body_of(head).empty());
  watch.folder.write("run/config.json", "secret");
  for (const char* path :
       {"/config.json", "/report.html/", "/..", "/../run/report.html", "/../../../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd", "/..%2f..%2fetc/passwd", "/%00", "/report.html%00.txt", "//", "/.%00/",
        "/run/report.html", "\\..\\etc", "*", "http://localhost/"}) {
    CAPTURE(path);
    const std::string answer = answer_to(watch.port, get(path));
    CHECK((status_of(answer) == 404 || status_of(answer) == 400 || answer.empty()));
    CHECK_FALSE(contains(answer, "secret"));
    CHECK_FALSE(contains(answer, "root:"));
  }
}

TEST_CASE("watch: only a regular file that is a page of Eddy's is served") {
  const Watch watch;
  if (watch.port == 0) return;
  const std::string page = watch.folder.path("run/report.html"),
                    other = watch.folder.write("other.html", page_of("x"));
  watch.write("<html>not Eddy's</html>");
  CHECK(status_of(answer_to(watch.port, get("/"))) == 503);
  fs::remove(page);
  fs::create_symlink(other, page);
  CHECK(status_of(answer_to(watch.port, get("/"))) == 503);
  fs::remove(page);
  REQUIRE(::mkfifo(page.c_str(), 0600) == 0);
  CHECK(status_of(answer_to(watch.port, get("/"))) == 503);
  fs::remove(page);
  fs::create_directory(page);
  CHECK(status_of(answer_to(watch.port, get("/"))) == 503);
  fs::remove(page);
  watch.write(page_of("x"));
  CHECK(status_of(answer_to(watch.port, get("/"))) == 200);
}

TEST_CASE(
    "watch: a request that another name led here is refused, and so is every method that could change something") {
  const Watch watch;
  if (watch.port == 0) return;
  watch.write(page_of("x"));
  const auto with_host = [&](const std::string& lines) {
    return status_of(answer_to(watch.port, "GET / HTTP/1.1\r\n" + lines + "\r\n"));
  };
  for (const char* host : {"localhost", "LOCALHOST:8420", "127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:8420"})
    CHECK_MESSAGE(with_host(std::string("Host: ") + host + "\r\n") == 200, host);
  for (const char* host : {"evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "192.168.0.1",
                           "", "[", "0.0.0.0", "localhost@evil.example"})
    CHECK_MESSAGE(with_host(std::string("Host: ") + host + "\r\n") == 403, host);
  CHECK(with_host("") == 403);
  CHECK(with_host("Host: localhost\r\nHost: evil.example\r\n") == 403);
  for (const char* method : {"POST", "PUT", "PATCH", "DELETE", "OPTIONS"}) {
    const int status = status_of(answer_to(watch.port, get("/", "Content-Length: 5\r\n", method) + "hello"));
    CHECK_MESSAGE(status == 405, method);
  }
}

TEST_CASE("watch: hostile requests change nothing, cost little, and leave the page to others") {
  const Watch watch;
  if (watch.port == 0) return;
  const std::string page = page_of(std::string(100'000, 'x'));
  watch.write(page);
  const auto before = content_of(watch.folder.path());
  std::string ranges = "Range: bytes=0-", headers;
  while (ranges.size() < 8000) ranges += ",0-";
  for (int i = 0; i < 5000; ++i) headers += "X-" + std::to_string(i) + ": " + std::string(1000, 'a') + "\r\n";
  const std::vector<std::string> hostile{
      "",
      "\r\n\r\n",
      "GET",
      "GET / HTTP/1.1\r\nHost: local",
      std::string(1 << 20, 'A'),
      std::string(1 << 16, '\0'),
      "GET / HTTP/9.9\r\n\r\n",
      "GET  /  HTTP/1.1\r\nHost: localhost\r\n\r\n",
      "TRACE / HTTP/1.1\r\nHost: localhost\r\n\r\n",
      "CONNECT example.org:443 HTTP/1.1\r\nHost: localhost\r\n\r\n",
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
      "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
      "GET /" + std::string(200'000, 'a') + " HTTP/1.1\r\nHost: localhost\r\n\r\n",
      get("/", "X: " + std::string(1 << 20, 'b') + "\r\n"),
      get("/", headers),
      get("/", ranges + "\r\n"),
      get("/", "Range: bytes=-1,5-4,99999999999999999999-\r\n"),
      get("/", "Content-Length: -1\r\n", "POST"),
      get("/", "Content-Length: 99999999999999999999\r\n", "POST") + std::string(1 << 16, 'c'),
      get("/", "Transfer-Encoding: chunked\r\n", "POST") + "fffffffffffffff\r\n" + std::string(1 << 16, 'd'),
      get("/", "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n") +
          "0\r\n\r\nGET /config.json HTTP/1.1\r\n\r\n",
      get("/", "Expect: 100-continue\r\nContent-Length: 10\r\n", "POST"),
      get("/", "Upgrade: websocket\r\nConnection: Upgrade\r\n"),
      get("/\x1b[31m\xff\xfe"),
  };
  for (std::size_t i = 0; i < hostile.size(); ++i) {
    CAPTURE(i);
    const Descriptor hanging = connected(watch.port);  // one that says nothing
    const std::string answer = answer_to(watch.port, hostile[i]);
    CHECK(answer.size() <= page.size() + 1000);
    CHECK_FALSE(contains(answer, "(no"));
    CHECK((body_of(answer_to(watch.port, get("/"))) == page));
  }
  std::vector<Descriptor> silent;
  for (int i = 0; i < 100; ++i) silent.push_back(connected(watch.port));
  CHECK((body_of(answer_to(watch.port, get("/"))) == page));
  CHECK(content_of(watch.folder.path()) == before);
}

TEST_CASE("watch: it listens at loopback alone, ends with Ctrl-C, and shares no port") {
  const Watch watch;
  if (watch.port == 0) return;
  // The listening sockets of this port: their address in hexadecimal digits, and the state 0A.
  char port[16];
  std::snprintf(port, sizeof port, ":%04X ", static_cast<unsigned>(watch.port));
  int listening = 0;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::istringstream lines(read_bytes(table));
    for (std::string line; std::getline(lines, line);) {
      if (!contains(line.substr(0, 45), port) || !contains(line, " 0A ")) continue;
      ++listening;
      CHECK_MESSAGE(contains(line, std::string("0100007F") + port), line);
    }
  }
  CHECK(listening == 1);
  const Start same{{"watch", "run", "--port", std::to_string(watch.port)}, watch.folder.path()};
  const Ended refused = run_program(same);
  CHECK(refused.status == 1);
  CHECK_MESSAGE(contains(refused.err, "cannot listen at 127.0.0.1 port"), refused.err);
  CHECK(run_program({{"watch", "nowhere"}, watch.folder.path()}).status == 1);
  CHECK(contains(run_program({{"watch", "run", "--address", "localhost"}, watch.folder.path()}).err,
                 "no address"));
  watch.program->signal(SIGINT);
  CHECK(watch.program->finish().status == 0);
}

TEST_CASE("watch: a browser shows the page and its last sample, and says how old it is") {
  const Watch watch;
  if (watch.port == 0) return;
  watch.write(page_of("step 3"));
  const std::string dom = shown_by_browser("http://127.0.0.1:" + std::to_string(watch.port) + "/");
  if (dom.empty()) return;
  CHECK(contains(dom, "<strong>running</strong> step 3"));
  CHECK(contains(dom, "it may have been killed"));
  CHECK(contains(dom, "<div class=\"text\" hidden=\"\"><div class=\"label\">one</div>"));
  CHECK(contains(dom, "<div class=\"text\"><div class=\"label\">two</div>"));
}

TEST_CASE("watch: a run is watched from its beginning to its end, whichever that is") {
  const TempFolder folder;
  if (!has_program()) return;
  const std::string sizes =
      " --data.name parity --model.dim 8 --model.heads 2 --model.layers 1 --model.context 8 --train.batch 2 "
      "--train.eval_every 0 --train.checkpoint_every 0 --train.threads 1";
  const auto page = [&] { return read_bytes(folder.path("run/report.html")); };
  Program run({words_of("train --run run --train.steps 1000000 --watch" + sizes), folder.path()});
  wait_until([&] { return !run.read_output(run.output().size() + 1) || port_in(run.output()) > 0; });
  const int port = port_in(run.output());
  if (port == 0) {
    const Ended ended = run.finish();
    CHECK_MESSAGE(contains(ended.err, "install libevent-dev"), ended.err);
    MESSAGE("skipped: " << ended.err);
    return;
  }
  CHECK(wait_until([&] { return contains(answer_to(port, get("/")), "<strong>running</strong> step "); }));
  CHECK(contains(page(),
                 "to go on after that: <code>eddy train <span class=\"whole\">--resume</span> run</code>"));
  run.signal(SIGINT);
  CHECK(run.finish().status == 130);
  CHECK(contains(page(), "<strong>interrupted</strong> at step "));
  // Whoever watched sees the end, and then no one serves it.
  CHECK(contains(answer_to(port, get("/")), "<strong>interrupted</strong> at step "));
  CHECK(wait_until([&] { return connected(port).get() < 0; }));
  const Ended whole = run_program({words_of("train --run whole --train.steps 3" + sizes), folder.path()});
  CHECK(whole.status == 0);
  const std::string finished = read_bytes(folder.path("whole/report.html"));
  CHECK(contains(finished, "<strong>finished</strong> at step 3"));
  CHECK(contains(finished, "to train on: <code>eddy train <span class=\"whole\">--resume</span> whole "));
}

TEST_CASE("watch: an error ends the page of a run too") {
  if (!has_program()) return;
  const TempFolder folder;
  Program run(
      {words_of(
           "train --run run --train.steps 1000000 --data.name parity --model.dim 8 --model.heads 2 "
           "--model.layers 1 --model.context 8 --train.batch 2 --train.eval_every 0 --train.checkpoint_every 20 "
           "--train.threads 1"),
       folder.path()});
  REQUIRE(wait_until([&] { return fs::exists(folder.path("run/checkpoints/step-40")); }));
  // What stands in the way of the next checkpoint.
  fs::rename(folder.path("run/checkpoints"), folder.path("run/aside"));
  folder.write("run/checkpoints", "a file");
  const Ended ended = run.finish();
  CHECK(ended.status == 1);
  const std::string page = read_bytes(folder.path("run/report.html"));
  CHECK_MESSAGE(contains(page, "<strong>failed</strong> at step "), ended.err);
}
