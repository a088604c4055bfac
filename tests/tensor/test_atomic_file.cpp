// Where files may be written, and what is left of killed writers.
#include "tensor/files/atomic_file.h"

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#if __has_include(<sys/sysmacros.h>)
#include <sys/sysmacros.h>
#endif

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace {

using namespace eddy;
using namespace eddy::test;
namespace fs = std::filesystem;

void write_file(const std::string& path, const std::string& text) {
  AtomicFile file(path);
  file.write(text.data(), std::ssize(text));
  file.commit();
}

void make_socket(const std::string& path) {
  const Descriptor end(socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  REQUIRE(path.size() < sizeof address.sun_path);
  std::copy(path.begin(), path.end(), address.sun_path);
  REQUIRE(bind(end.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
}

}  // namespace

TEST_CASE("AtomicFile: what is no regular file is refused and stays") {
  const TempFolder folder;
  const std::string old = folder.write("old", "old");
  fs::create_symlink(old, folder.path("link"));
  fs::create_symlink(folder.path("nowhere"), folder.path("dangling"));
  fs::create_directory(folder.path("folder"));
  REQUIRE(mkfifo(folder.path("pipe").c_str(), 0600) == 0);
  make_socket(folder.path("socket"));
  std::vector<std::pair<std::string, std::string>> refused{
      {"link", "it is a link"}, {"dangling", "it is a link"}, {"folder", "it is a folder"},
      {"pipe", "it is a pipe"}, {"socket", "it is a socket"},
  };
  if (mknod(folder.path("null").c_str(), S_IFCHR | 0600, makedev(1, 3)) == 0)  // the superuser may
    refused.emplace_back("null", "it is a device");
  const auto entries = folder.entries();
  for (const auto& [name, what] : refused) {
    CAPTURE(name);
    const fs::file_type type = fs::symlink_status(folder.path(name)).type();
    CHECK(contains(error_of<IoError>([&] { write_file(folder.path(name), "new"); }),
                   "cannot write " + folder.path(name) + ": " + what));
    CHECK(fs::symlink_status(folder.path(name)).type() == type);
  }
  CHECK(read_bytes(old) == "old");
  CHECK(folder.entries() == entries);
}

TEST_CASE("AtomicFile: another name of the file keeps the old bytes and linked folders are followed") {
  const TempFolder folder;
  const std::string file = folder.write("a/file", "old");
  fs::create_hard_link(file, folder.path("backup"));
  fs::create_directory_symlink(folder.path("a"), folder.path("linked"));
  write_file(folder.path("linked/file"), "new");
  CHECK(read_bytes(file) == "new");
  CHECK(read_bytes(folder.path("backup")) == "old");
}

TEST_CASE("AtomicFile: a writer that has ended is gone before its parent has waited for it") {
  const pid_t zombie = fork();
  if (zombie == 0) _exit(0);
  siginfo_t ended{};
  REQUIRE(waitid(P_PID, static_cast<id_t>(zombie), &ended, WEXITED | WNOWAIT) == 0);
  CHECK(is_left_over("a.tmp-" + std::to_string(zombie) + "-0"));
  CHECK_FALSE(is_left_over("a.tmp-" + std::to_string(getppid()) + "-0"));
  waitpid(zombie, nullptr, 0);
}

TEST_CASE("AtomicFile: what killed writers left of a file is removed and no other file") {
  const TempFolder folder;
  const std::string living = std::to_string(getppid());
  for (const char* name : {"a.tmp-999999999-0", "a.tmp-999999999-17"}) folder.write(name, "part");
  const std::vector<std::string> stay{"b.tmp-999999999-0", "a.tmp-" + living + "-0", "a.tmp-mine",
                                      "a.tmp-999999999-",  "a.tmp-999999999-1-mine", "a"};
  for (const std::string& name : stay) folder.write(name, "mine");
  remove_left_overs_of(folder.path("a"));
  for (const std::string& name : stay) CHECK_MESSAGE(fs::exists(folder.path(name)), name);
  CHECK(folder.entries() == std::ssize(stay));
  CHECK_NOTHROW(remove_left_overs_of(folder.path("nowhere/a")));
}
