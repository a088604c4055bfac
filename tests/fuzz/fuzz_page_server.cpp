// Mutations of requests over a real socket: whatever the bytes, the server of `eddy watch` answers the page, refuses or
// closes, and serves the next one. Fixed seed, so a failure repeats.
#include <doctest/doctest.h>

#include <array>
#include <set>
#include <string>

#include "tests/fuzz/mutations.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/http_client.h"
#include "tests/support/page_serving.h"
#include "train/app/views/html_page.h"

using namespace eddy;
using namespace eddy::app;
using namespace eddy::test;

TEST_CASE("no mutation of a request ends the page server or has it send anything but the page") {
  const TempFolder folder;
  HtmlPage made("Watched");
  made.paragraph("what is to be had");
  const std::string page = made.html();
  folder.write("run/report.html", page);
  folder.write("run/config.json", "secret");
  PageServing serving(folder.path("run"));
  if (serving.port() == 0) return;
  const std::array<std::string, 5> good{
      request("/"), request("/report.html?x=1", "Accept: */*\r\n", "HEAD"),
      request("/config.json", "Connection: keep-alive\r\n"),
      request("/", "Content-Length: 5\r\n", "POST") + "hello",
      request("/", "Transfer-Encoding: chunked\r\n", "PUT") + "5\r\nhello\r\n0\r\nA: b\r\n\r\n"};
  const std::array<std::string, 20> pieces = {"\r\n",
                                              "\n",
                                              "\r",
                                              "\r\n\r\n",
                                              ":",
                                              " ",
                                              "\t",
                                              "%00",
                                              "%2e%2e/",
                                              "../",
                                              "Host: evil.example\r\n",
                                              "Transfer-Encoding: chunked\r\n",
                                              "Content-Length: 99999999999999999999\r\n",
                                              "Content-Length: -1\r\n",
                                              "Range: bytes=0-,0-,-1\r\n",
                                              "HTTP/0.9",
                                              "http://[::1",
                                              "\xff\xfe",
                                              std::string(1, '\0'),
                                              std::string(70'000, 'a')};
  constexpr int kRequests = 400;
  Random random(20261129);
  std::set<int> seen;
  for (int i = 0; i < kRequests; ++i) {
    CAPTURE(i);
    const std::string bytes = mutate_text(good[below(random, good.size())], random, pieces);
    const std::string answer = answer_to(serving.port(), bytes, true);
    seen.insert(status_of(answer));
    CHECK_FALSE(contains(answer, "secret"));
    CHECK_FALSE(contains(answer, "(no"));
    CHECK(answer.size() <= 2 * (page.size() + 1000));
  }
  CHECK(seen.contains(200));  // or the mutations test nothing
  CHECK(seen.contains(403));
  CHECK((body_of(answer_to(serving.port(), request("/"))) == page));
  CHECK(serving.end() == 0);
}
