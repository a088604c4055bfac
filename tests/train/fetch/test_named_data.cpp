// Data sets by name, fetched from a server in this process: whole, cut off, spoiled, missing; and put there by hand.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "train/fetch/named_data.h"
#include "train/files/md5.h"
#include "train/files/sha256.h"
#include "train/files/text_file.h"
#include "train/process/running_program.h"

namespace {

namespace fs = std::filesystem;
using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

// A server of files on this machine. Each request gets the next answer of its path, the last one again and again.
class Server {
 public:
  struct Answer {
    std::string body;
    std::size_t sent = std::string::npos;  // bytes after which the connection ends
    int status = 200;
    std::string location{};  // of a redirection
    bool ranges = false;     // whether a part is sent where one is asked for
  };

  Server() : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    REQUIRE(::bind(socket_, reinterpret_cast<sockaddr*>(&address), length) == 0);
    REQUIRE(::listen(socket_, 8) == 0);
    REQUIRE(::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &length) == 0);
    url_ = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port)) + "/";
  }
  ~Server() {
    ::shutdown(socket_, SHUT_RDWR);
    if (thread_.joinable()) thread_.join();
    ::close(socket_);
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  void answer(const std::string& path, std::vector<Answer> answers) { answers_[path] = std::move(answers); }
  // From here on requests are answered.
  void start() {
    thread_ = std::thread([this] {
      for (int client; (client = ::accept(socket_, nullptr, nullptr)) >= 0; ::close(client)) serve(client);
    });
  }
  std::string url(const std::string& path) const { return url_ + path; }
  int requests() const { return requests_; }
  // The byte from which on the last one was answered.
  std::size_t from() const { return from_; }

 private:
  static void send_all(int client, std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(client, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
  }
  void serve(int client) {
    std::string request;
    char part[1024];
    while (request.find("\r\n\r\n") == std::string::npos) {
      const ssize_t got = ::recv(client, part, sizeof part, 0);
      if (got <= 0) return;
      request.append(part, static_cast<std::size_t>(got));
    }
    ++requests_;
    const std::size_t begin = request.find('/') + 1;
    std::vector<Answer>& answers = answers_[request.substr(begin, request.find(' ', begin) - begin)];
    const Answer now = answers.empty() ? Answer{.body = "not here", .status = 404} : answers.front();
    if (answers.size() > 1) answers.erase(answers.begin());
    const std::string mark = "Range: bytes=", size = std::to_string(now.body.size());
    const std::size_t range = now.ranges ? request.find(mark) : std::string::npos;
    const std::size_t from = range == std::string::npos ? 0 : std::stoul(request.substr(range + mark.size()));
    from_ = from;
    std::string head = "HTTP/1.1 " +
                       std::to_string(from == 0                ? now.status
                                      : from < now.body.size() ? 206
                                                               : 416) +
                       " x\r\n";
    const std::string body = now.body.substr(std::min(from, now.body.size()));
    if (from > 0 && !body.empty())
      head += "Content-Range: bytes " + std::to_string(from) + "-" + std::to_string(now.body.size() - 1) +
              "/" + size + "\r\n";
    head += "Content-Length: " + std::to_string(body.size()) + "\r\nConnection: close\r\n";
    if (!now.location.empty()) head += "Location: " + now.location + "\r\n";
    send_all(client, head + "\r\n");
    send_all(client, std::string_view(body).substr(0, now.sent));
  }

  int socket_;
  std::string url_;
  std::map<std::string, std::vector<Answer>> answers_;
  std::atomic<int> requests_{0};
  std::atomic<std::size_t> from_{0};
  std::thread thread_;
};

// Whether something is installed that fetches; says so where there is nothing.
bool has_fetcher() {
  const bool has = run_to_end({.words = {"curl", "--version"}}).found() ||
                   run_to_end({.words = {"wget", "--version"}}).found();
  if (!has) MESSAGE("SKIPPED: neither curl nor wget is installed");
  return has;
}

// A set of one text that a server has.
DataSet plain_set(const Server& server, const std::string& body, bool published = true) {
  return {.name = "plain",
          .summary = "",
          .folder = "plain",
          .origins = {{.url = server.url("a.txt"),
                       .file = "sub/a.txt",
                       .digest = published ? "sha256:" + sha256_hex(body) : "",
                       .bytes = 1}},
          .path = "sub/a.txt"};
}

struct Places {
  TempFolder folder;
  DataPlaces places;
  std::ostringstream says;

  Places() { places.cache = folder.path("cache"); }
  std::string get(const DataSet& set) { return path_of_data_set(set, places, says); }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(places.cache))
      if (entry.is_regular_file()) names.push_back(entry.path().lexically_relative(places.cache).string());
    std::sort(names.begin(), names.end());
    return names;
  }
};

}  // namespace

TEST_CASE("md5 gives the digests of RFC 1321") {
  CHECK(md5_hex("") == "d41d8cd98f00b204e9800998ecf8427e");
  CHECK(md5_hex("abc") == "900150983cd24fb0d6963f7d28e17f72");
  const std::string digits =
      "12345678901234567890123456789012345678901234567890123456789012345678901234567890";
  CHECK(md5_hex(digits) == "57edf4a22be3c955ac49da2e2107b67a");
  Md5 pieces;
  for (std::size_t at = 0; at < digits.size(); at += 7) pieces.update(std::string_view(digits).substr(at, 7));
  CHECK(pieces.hex_digest() == "57edf4a22be3c955ac49da2e2107b67a");
}

TEST_CASE("named data: a set is fetched once and checked whenever it is read") {
  if (!has_fetcher()) return;
  Server server;
  Places at;
  const std::string body(300'000, 'x');
  server.answer("a.txt", {{.body = "", .status = 302, .location = server.url("there.txt")}});
  server.answer("there.txt", {{.body = body}});
  server.start();
  const DataSet set = plain_set(server, body);
  const std::string path = at.get(set);
  CHECK(read_text_file(path) == body);
  CHECK(contains(at.says.str(), "data: fetching "));
  CHECK(at.files() == std::vector<std::string>{"plain/digests", "plain/sub/a.txt"});
  const int requests = server.requests();
  CHECK(at.get(set) == path);
  CHECK(server.requests() == requests);
  at.folder.write("cache/plain/sub/a.txt", body + "!");
  CHECK(contains(error_of<FormatError>([&] { at.get(set); }), "is not what it was when it came"));
}

TEST_CASE("named data: a download that is cut off goes on behind what came") {
  if (!has_fetcher()) return;
  Server server;
  Places at;
  std::string body(100'000, 'y');
  for (std::size_t i = 0; i < body.size(); i += 7) body[i] = static_cast<char>('a' + i % 23);
  server.answer("a.txt", {{.body = body, .sent = 60'000, .ranges = true}, {.body = body, .ranges = true}});
  server.start();
  const DataSet set = plain_set(server, body);
  CHECK(contains(error_of<IoError>([&] { at.get(set); }), "the next command goes on behind what came"));
  const std::size_t came = fs::file_size(at.folder.path("cache/plain/sub/a.txt.part"));
  CHECK(came > 0);
  CHECK(read_text_file(at.get(set)) == body);
  CHECK(server.from() == came);
  CHECK(contains(at.says.str(), "behind the " + std::to_string(came) + " bytes that are there"));
  // What is there is longer than the file.
  fs::remove_all(at.folder.path("cache/plain"));
  at.folder.write("cache/plain/sub/a.txt.part", body + "!");
  std::string text;
  try {
    text = read_text_file(at.get(set));
  } catch (const IoError&) {  // the fetcher takes it for whole, and the digest tells
    text = read_text_file(at.get(set));
  }
  CHECK(text == body);
}

TEST_CASE("named data: a download that is cut off is never taken for whole, and begins anew without parts") {
  if (!has_fetcher()) return;
  Server server;
  Places at;
  const std::string body(100'000, 'y');
  server.answer("a.txt", {{.body = body, .sent = 50'000}, {.body = body}});
  server.start();
  const DataSet set = plain_set(server, body, false);  // no checksum would tell
  const std::string error = error_of<IoError>([&] { at.get(set); });
  CHECK_MESSAGE(contains(error, "plain is not in "), error);
  CHECK_MESSAGE(contains(error, "by hand, put it there as " + at.places.cache + "/plain/sub/a.txt"), error);
  CHECK(at.files() == std::vector<std::string>{"plain/sub/a.txt.part"});
  // What a killed command left is not read either.
  at.folder.write("cache/plain/sub/a.txt.part", body.substr(0, 70'000));
  CHECK(read_text_file(at.get(set)) == body);
  CHECK(at.files() == std::vector<std::string>{"plain/digests", "plain/sub/a.txt"});
}

TEST_CASE("named data: another file than the published one is refused and removed") {
  if (!has_fetcher()) return;
  Server server;
  Places at;
  server.answer("a.txt", {{.body = "another text"}});
  server.start();
  const DataSet set = plain_set(server, "the text");
  const std::string error = error_of<IoError>([&] { at.get(set); });
  CHECK_MESSAGE(contains(error, "what came was not the published file, and is removed: it has SHA-256 " +
                                    sha256_hex("another text")),
                error);
  CHECK(at.files().empty());
  server.answer("b.txt", {});
  DataSet missing = set;
  missing.origins[0].url = server.url("b.txt");
  CHECK(contains(error_of<IoError>([&] { at.get(missing); }), "the server does not have the file"));
}

TEST_CASE("named data: without a network a file that was put there by hand is taken") {
  Places at;
  DataSet set = {.name = "plain",
                 .summary = "",
                 .folder = "plain",
                 .origins = {{.url = "http://127.0.0.1:1/a.txt",
                              .file = "a.txt",
                              .digest = "md5:" + md5_hex("the text"),
                              .bytes = 1}},
                 .path = "a.txt"};
  const std::string error = error_of<IoError>([&] { at.get(set); });
  CHECK_MESSAGE(contains(error, "(fetch http://127.0.0.1:1/a.txt by hand, put it there as "), error);
  at.folder.write("cache/plain/a.txt", "the tex");
  CHECK(contains(error_of<FormatError>([&] { at.get(set); }),
                 "is not the published file of plain: it has MD5"));
  at.folder.write("cache/plain/a.txt", "the text");
  CHECK(at.get(set) == at.places.cache + "/plain/a.txt");
  // Data that the user keeps elsewhere, which is left as it is.
  at.places.data_dir = at.folder.path("data");
  at.folder.write("data/plain/a.txt", "the text");
  CHECK(at.get(set) == at.folder.path("data/plain/a.txt"));
  CHECK(!fs::exists(at.folder.path("data/plain/digests")));
  at.places = {};
  CHECK(contains(error_of<IoError>([&] { at.get(set); }), "EDDY_CACHE_DIR"));
}

TEST_CASE("named data: the members of an archive are taken out when they are the published ones") {
  const TempFolder made;
  made.write("in/set/a.bin", "first");
  made.write("in/set/b.bin", "second");
  const auto pack = [&](const std::vector<std::string>& words) {
    return run_to_end({.words = words}).good();
  };
  const std::string tar = made.path("set.tar.gz"), zip = made.path("set.zip");
  std::vector<std::pair<Packing, std::string>> archives;
  if (pack({"tar", "-czf", tar, "-C", made.path("in"), "set"})) archives.emplace_back(Packing::tar_gz, tar);
  if (pack({"python3", "-m", "zipfile", "-c", zip, made.path("in/set")}))
    archives.emplace_back(Packing::zip, zip);
  if (archives.size() < 2) MESSAGE("SKIPPED in part: tar or python3 is not installed");
  for (const auto& [packing, archive] : archives) {
    CAPTURE(archive);
    Places at;
    DataSet set = {.name = "packed",
                   .summary = "",
                   .folder = "packed",
                   .origins = {{.url = "file://" + archive,
                                .file = fs::path(archive).filename().string(),
                                .digest = "sha256:" + sha256_hex(read_text_file(archive)),
                                .bytes = 1,
                                .packing = packing,
                                .members = {{"set/a.bin", "md5:" + md5_hex("first")}, {"set/b.bin", ""}}}},
                   .path = "set"};
    at.places.fetch = [](const std::string& url, const std::string& to) {
      fs::copy(url.substr(7), to);
      return std::string();
    };
    const std::string end = packing == Packing::zip ? "zip" : "tar.gz";
    CHECK(at.get(set) == at.places.cache + "/packed/set");
    CHECK(at.files() == std::vector<std::string>{"packed/digests", "packed/set/a.bin", "packed/set/b.bin"});
    CHECK(read_text_file(at.places.cache + "/packed/set/b.bin") == "second");
    // An archive that lies there is taken, and stays.
    fs::remove_all(at.places.cache);
    fs::create_directories(at.places.cache + "/packed");
    fs::copy(archive, at.places.cache + "/packed/set." + end);
    at.places.fetch = [](const std::string&, const std::string&) { return std::string("offline"); };
    CHECK(at.get(set) == at.places.cache + "/packed/set");
    CHECK(fs::exists(at.places.cache + "/packed/set." + end));
    // What is in it is not what was published.
    fs::remove_all(at.places.cache + "/packed/set");
    fs::remove(at.places.cache + "/packed/digests");
    set.origins[0].members[0].digest = "md5:" + md5_hex("other");
    CHECK(contains(error_of<FormatError>([&] { at.get(set); }), "set/a.bin in it is not the published file"));
    CHECK(at.files() == std::vector<std::string>{"packed/set." + end});
    // It is cut off, and no digest tells.
    const std::string bytes = read_text_file(archive);
    at.folder.write("cache/packed/set." + end, bytes.substr(0, bytes.size() / 2));
    set.origins[0].digest.clear();
    CHECK(contains(error_of<FormatError>([&] { at.get(set); }), "cannot be unpacked"));
  }
}

TEST_CASE("named data: a name stands for a set unless a file of that name is there") {
  for (const DataSet& set : data_sets()) {
    CAPTURE(set.name);
    CHECK(data_set_named(set.name) == &set);
    CHECK(!set.origins.empty());
    for (const DataOrigin& origin : set.origins) CHECK(origin.url.starts_with("https://"));
  }
  CHECK(data_set_named("my_texts") == nullptr);
  CHECK(data_set_named("") == nullptr);
}
