// A run that is watched: its page from the beginning to the end,
// served to those who ask for it rightly and to no others.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <sstream>
#include <string>
#include <vector>

#include "tensor/base/error.h"
#include "tensor/files/descriptor.h"
#include "tests/support/browser.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/http_client.h"
#include "tests/support/page_serving.h"
#include "tests/support/processes.h"
#include "tests/support/program.h"
#include "tests/support/tiny_run.h"
#include "train/app/report/page_server.h"
#include "train/app/report/watched_page.h"
#include "train/app/views/html_page.h"
#include "train/files/output_file.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::app;
using namespace eddy::test;
namespace fs = std::filesystem;

std::string page_of(const std::string& text) {
  HtmlPage page("Watched");
  page.status({"running", text, {"to stop it: kill 7"}, 1.7e9, 3});
  page.slider("sample", {{"one", "first text"}, {"two", "second text"}});
  return page.html();
}

// The port in "... at http://127.0.0.1:8420/" of what a program printed; 0 without.
int port_in(const std::string& output) {
  const std::string mark = "http://127.0.0.1:";
  const std::size_t at = output.find(mark);
  return at == std::string::npos || output.find('/', at + mark.size()) == std::string::npos
             ? 0
             : std::atoi(output.c_str() + at + mark.size());
}

// A server of the folder `run`, which is empty at first.
struct Watch {
  TempFolder folder;
  PageServing serving;
  int port = 0;

  explicit Watch(const PageServerOptions& options = PageServing::quick())
      : serving((fs::create_directory(folder.path("run")), folder.path("run")), options),
        port(serving.port()) {}
  void write(const std::string& text) const { folder.write("run/report.html", text); }
};

// The port that a program says it serves at; 0, with a message, where it ended instead.
int port_of(Program& program) {
  wait_until(
      [&] { return !program.read_output(program.output().size() + 1) || port_in(program.output()) > 0; });
  if (const int port = port_in(program.output()); port > 0) return port;
  const Ended ended = program.finish();
  CHECK_MESSAGE(contains(ended.err, "install libevent-dev"), ended.err);
  MESSAGE("skipped: " << ended.err);
  return 0;
}

}  // namespace

TEST_CASE("watch: the page is to be read at two paths as it is now, and nothing else is there") {
  const Watch watch;
  if (watch.port == 0) return;
  CHECK(status_of(answer_to(watch.port, request("/"))) == 503);
  watch.write(page_of("one"));
  for (const char* path : {"/", "/report.html", "/?x=1"}) {
    CAPTURE(path);
    const std::string answer = answer_to(watch.port, request(path));
    CHECK(status_of(answer) == 200);
    CHECK((body_of(answer) == page_of("one")));
    for (const char* header :
         {"Content-Type: text/html; charset=utf-8\r\n", "X-Content-Type-Options: nosniff\r\n",
          "Cache-Control: no-store\r\n", "X-Frame-Options: DENY\r\n", "Connection: close\r\n"})
      CHECK_MESSAGE(contains(answer, header), header);
  }
  watch.write(page_of("two"));
  CHECK((body_of(answer_to(watch.port, request("/"))) == page_of("two")));
  const std::string head = answer_to(watch.port, request("/", "", "HEAD"));
  CHECK(status_of(head) == 200);
  CHECK(body_of(head).empty());
  watch.folder.write("run/config.json", "secret");
  for (const char* path :
       {"/config.json", "/report.html/", "/..", "/../run/report.html", "/../../../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd", "/..%2f..%2fetc/passwd", "/%00", "/report.html%00.txt", "//", "/.%00/",
        "/run/report.html", "\\..\\etc", "*", "http://localhost/"}) {
    CAPTURE(path);
    const std::string answer = answer_to(watch.port, request(path));
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
  CHECK(status_of(answer_to(watch.port, request("/"))) == 503);
  fs::remove(page);
  fs::create_symlink(other, page);
  CHECK(status_of(answer_to(watch.port, request("/"))) == 503);
  fs::remove(page);
  REQUIRE(::mkfifo(page.c_str(), 0600) == 0);
  CHECK(status_of(answer_to(watch.port, request("/"))) == 503);
  fs::remove(page);
  fs::create_directory(page);
  CHECK(status_of(answer_to(watch.port, request("/"))) == 503);
  fs::remove(page);
  watch.write(page_of("x"));
  CHECK(status_of(answer_to(watch.port, request("/"))) == 200);
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
    const int status =
        status_of(answer_to(watch.port, request("/", "Content-Length: 5\r\n", method) + "hello"));
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
      request("/", "X: " + std::string(1 << 20, 'b') + "\r\n"),
      request("/", headers),
      request("/", ranges + "\r\n"),
      request("/", "Range: bytes=-1,5-4,99999999999999999999-\r\n"),
      request("/", "Content-Length: -1\r\n", "POST"),
      request("/", "Content-Length: 99999999999999999999\r\n", "POST") + std::string(1 << 16, 'c'),
      request("/", "Transfer-Encoding: chunked\r\n", "POST") + "fffffffffffffff\r\n" +
          std::string(1 << 16, 'd'),
      request("/", "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n") +
          "0\r\n\r\nGET /config.json HTTP/1.1\r\n\r\n",
      request("/", "Expect: 100-continue\r\nContent-Length: 10\r\n", "POST"),
      request("/", "Upgrade: websocket\r\nConnection: Upgrade\r\n"),
      request("/\x1b[31m\xff\xfe"),
  };
  // All at a time, beside clients that say nothing.
  std::vector<std::future<std::string>> answers;
  for (const std::string& bytes : hostile)
    answers.push_back(std::async(std::launch::async, [&] { return answer_to(watch.port, bytes); }));
  std::vector<Descriptor> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(connected(watch.port));
  CHECK((body_of(answer_to(watch.port, request("/"))) == page));
  for (std::size_t i = 0; i < hostile.size(); ++i) {
    CAPTURE(i);
    const std::string answer = answers[i].get();
    CHECK(answer.size() <= page.size() + 1000);
    CHECK_FALSE(contains(answer, "(no"));
  }
  CHECK((body_of(answer_to(watch.port, request("/"))) == page));
  CHECK(content_of(watch.folder.path()) == before);
}

TEST_CASE("watch: a request without an end is closed long before its hundred megabytes") {
  const Watch watch;
  if (watch.port == 0) return;
  watch.write(page_of("x"));
  const std::string letters(1 << 16, 'a');
  std::string lines, ends;
  while (lines.size() < letters.size()) lines += "A: b\r\n", ends += "\r\n";
  const auto posted = [](const std::string& line) { return request("/", line + "\r\n", "POST"); };
  const std::vector<std::array<std::string, 2>> endless_ones{
      {"GET /", letters},
      {"GET / HTTP/1.1\r\nA: ", letters},
      {"GET / HTTP/1.1\r\n", lines},
      {"\r\n", ends},
      {posted("Content-Length: 100000000"), letters},
      {request("/", "Content-Length: 100000000\r\n"), letters},
      {posted("Transfer-Encoding: chunked") + "5f5e100\r\n", letters},
      {posted("Transfer-Encoding: chunked") + "0\r\n", lines},
      {posted("Transfer-Encoding: chunked"), letters},
      {posted("Transfer-Encoding: chunked") + "1;", letters}};
  for (std::size_t i = 0; i < endless_ones.size(); ++i) {
    CAPTURE(i);
    // What is sent fills the buffers of both sockets before the close is seen.
    CHECK(endless(watch.port, endless_ones[i][0], endless_ones[i][1], 100 << 20) < 32 << 20);
    CHECK(status_of(answer_to(watch.port, request("/"))) == 200);
  }
}

TEST_CASE("watch: a client that sends without an end and takes no answer is closed") {
  const Watch watch;
  if (watch.port == 0) return;
  watch.write(page_of(std::string(8 << 20, 'x')));
  CHECK(endless(watch.port, request("/"), std::string(1 << 16, 'a'), 100 << 20) < 32 << 20);
  CHECK(status_of(answer_to(watch.port, request("/", "", "HEAD"))) == 200);
}

TEST_CASE("watch: clients that never come to their end keep out no others, and do not keep the server") {
  PageServerOptions options = PageServing::quick();
  options.connections = 8;
  options.silence = std::chrono::milliseconds(60'000);
  Watch watch(options);
  if (watch.port == 0) return;
  watch.write(page_of(std::string(4 << 20, 'x')));
  std::vector<Descriptor> slow;
  const auto drip = [&] {
    for (const Descriptor& client : slow) static_cast<void>(::send(client.get(), "a", 1, MSG_NOSIGNAL));
  };
  for (int i = 0; i < 64; ++i) {
    slow.push_back(connected(watch.port));
    REQUIRE(slow.back().get() >= 0);
    // Half of them ask for the page, and never take it.
    const std::string said = i % 2 == 0 ? request("/") : "GET /";
    static_cast<void>(::send(slow.back().get(), said.data(), said.size(), MSG_NOSIGNAL));
    drip();
    if (i % 8 == 0) CHECK(status_of(answer_to(watch.port, request("/", "", "HEAD"))) == 200);
  }
  CHECK(status_of(answer_to(watch.port, request("/"))) == 200);
  drip();
  CHECK(watch.serving.end() == 0);
}

TEST_CASE("watch: the server knows whether the page as it is now was sent") {
  if (!why_no_server().empty()) return;
  const TempFolder folder;
  folder.write("run/report.html", page_of("one"));
  PageServer server(folder.path("run"), PageServing::quick());
  CHECK_FALSE(server.has_answered());
  const auto asked = [&] {
    std::future<std::string> answer =
        std::async(std::launch::async, [&] { return answer_to(server.port(), request("/")); });
    while (answer.wait_for(std::chrono::seconds(0)) != std::future_status::ready)
      server.serve(std::chrono::milliseconds(5));
    return status_of(answer.get());
  };
  CHECK(asked() == 200);
  CHECK(server.has_answered());
  CHECK(server.has_shown_latest());
  write_output_file("test", folder.path("run/report.html"), page_of("two"), kPageFile);
  CHECK_FALSE(server.has_shown_latest());
  CHECK(asked() == 200);
  CHECK(server.has_shown_latest());
}

TEST_CASE("watch: a silent client is closed") {
  PageServerOptions options;
  options.silence = std::chrono::milliseconds(50);
  const Watch watch(options);
  if (watch.port == 0) return;
  CHECK(status_of(answer_to(watch.port, "GET / HT")) == 0);
}

TEST_CASE("watch: names that were allowed are answered too, and a refusal says how to allow one") {
  PageServerOptions options = PageServing::quick();
  options.hosts = {"Box.example", "proxy"};
  const Watch watch(options);
  if (watch.port == 0) return;
  watch.write(page_of("x"));
  const auto answer = [&](const std::string& host) {
    return answer_to(watch.port, "GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
  };
  for (const char* host : {"box.example", "BOX.example:99", "proxy", "localhost", "127.0.0.1"})
    CHECK_MESSAGE(status_of(answer(host)) == 200, host);
  for (const char* host : {"evil.example", "a.box.example", "box", "box.example.evil", "192.168.0.1"}) {
    const std::string refused = answer(host);
    CHECK_MESSAGE(status_of(refused) == 403, host);
    CHECK_MESSAGE(contains(refused, "--allow-host NAME"), refused);
  }
  options.hosts = {"proxy:80"};
  CHECK(contains(error_of<ConfigError>([&] { PageServer(watch.folder.path("run"), options); }),
                 "--allow-host \"proxy:80\" is no name"));
}

TEST_CASE("watch: a folder of runs is laid side by side, also with a run that comes later") {
  const TempFolder folder;
  train_quietly(tiny_run(folder, "runs/first"));
  const std::string side_by_side = body_of([&] {
    const PageServing serving(folder.path("runs"));
    return serving.port() == 0 ? "" : answer_to(serving.port(), request("/"));
  }());
  if (!why_no_server().empty()) return;
  CHECK(contains(side_by_side, "1 run side by side"));
  CHECK(contains(side_by_side, "class=\"status live\""));
  fs::copy(folder.path("runs/first"), folder.path("runs/second"), fs::copy_options::recursive);
  const PageServing serving(folder.path("runs"));
  const std::string answer = answer_to(serving.port(), request("/"));
  CHECK(status_of(answer) == 200);
  for (const char* part : {"2 runs side by side", "<td>first</td>", "<td>second</td>"})
    CHECK_MESSAGE(contains(answer, part), part);
  // A run alone has its own page.
  const PageServing alone(folder.path("runs/first"));
  CHECK(
      (body_of(answer_to(alone.port(), request("/"))) == read_bytes(folder.path("runs/first/report.html"))));
}

TEST_CASE("watch: what is no run and holds none is refused as other commands refuse it") {
  const TempFolder folder;
  fs::create_directories(folder.path("empty"));
  fs::create_directories(folder.path("runs/a/checkpoints"));
  folder.write("runs/a/report.html", page_of("a"));
  folder.write("runs/c/metrics.jsonl", "");
  folder.write("runs/d/id", new_run_id() + "\n");
  folder.write("runs/notes/id", "none of a run\n");
  folder.write("file", "text");
  CHECK(contains(error_of<IoError>([&] { require_watchable(folder.path("empty")); }),
                 "is no run and holds none"));
  CHECK(contains(error_of<IoError>([&] { require_watchable(folder.path("file")); }), "is not a folder"));
  CHECK(contains(error_of<IoError>([&] { require_watchable(folder.path("runs/b")); }),
                 "has the runs a, c, d)"));
  require_watchable(folder.path("runs/a"));
}

TEST_CASE("watch: it listens at loopback alone, ends with Ctrl-C, and shares no port") {
  if (!has_program()) return;
  const TempFolder folder;
  folder.write("run/report.html", page_of("x"));
  Program program({{"watch", "run"}, folder.path()});
  const int port = port_of(program);
  if (port == 0) return;
  // The listening sockets of this port: their address in hexadecimal digits, and the state 0A.
  char digits[16];
  std::snprintf(digits, sizeof digits, ":%04X ", static_cast<unsigned>(port));
  int listening = 0;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::istringstream lines(read_bytes(table));
    for (std::string line; std::getline(lines, line);) {
      if (!contains(line.substr(0, 45), digits) || !contains(line, " 0A ")) continue;
      ++listening;
      CHECK_MESSAGE(contains(line, std::string("0100007F") + digits), line);
    }
  }
  CHECK(listening == 1);
  const Start same{{"watch", "run", "--port", std::to_string(port)}, folder.path()};
  const Ended refused = run_program(same);
  CHECK(refused.status == 1);
  CHECK_MESSAGE(contains(refused.err, "cannot listen at 127.0.0.1 port"), refused.err);
  CHECK(run_program({{"watch", "nowhere"}, folder.path()}).status == 1);
  CHECK(contains(run_program({{"watch", "run", "--address", "localhost"}, folder.path()}).err, "no address"));
  program.signal(SIGINT);
  CHECK(program.finish().status == 0);
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
  const int port = port_of(run);
  if (port == 0) return;
  CHECK(
      wait_until([&] { return contains(answer_to(port, request("/")), "<strong>running</strong> step "); }));
  CHECK(contains(page(),
                 "to go on after that: <code>eddy train <span class=\"whole\">--resume</span> run</code>"));
  run.signal(SIGINT);
  CHECK(run.finish().status == 130);
  CHECK(contains(page(), "<strong>interrupted</strong> at step "));
  // Whoever watched sees the end, and then no one serves it.
  CHECK(contains(answer_to(port, request("/")), "<strong>interrupted</strong> at step "));
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
