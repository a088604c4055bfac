// Files and folders by calls that differ between systems.
#include "tensor/system/files.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <string>
#include <string_view>

#include "tensor/files/descriptor.h"
#include "tests/support/files.h"

using namespace eddy;
using namespace eddy::test;
namespace fs = std::filesystem;

TEST_CASE("system files: a file and its folder are flushed and a closed descriptor is an error") {
  const TempFolder folder;
  const Descriptor file(::open(folder.write("a", "text").c_str(), O_RDWR | O_CLOEXEC));
  const Descriptor above(::open(folder.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  CHECK(sync_file(file.get()) == 0);
  CHECK(sync_file(above.get()) == 0);
  CHECK(sync_file(-1) == -1);
  CHECK(errno == EBADF);
}

TEST_CASE("system files: two folders change places or stay as they are") {
  const TempFolder folder;
  folder.write("a/file", "of a");
  folder.write("b/file", "of b");
  const bool exchanged = exchange_names(folder.path("a"), folder.path("b")) == 0;
  if (!exchanged) CHECK((errno == ENOSYS || errno == EINVAL));
  CHECK(read_bytes(folder.path("a/file")) == (exchanged ? "of b" : "of a"));
  CHECK(read_bytes(folder.path("b/file")) == (exchanged ? "of a" : "of b"));
  CHECK(exchange_names(folder.path("a"), folder.path("missing")) == -1);
}

TEST_CASE("system files: a file without a name keeps what is written and is not inherited") {
  const Descriptor file(unnamed_file("test"));
  REQUIRE(file.get() >= 0);
  CHECK(::write(file.get(), "text", 4) == 4);
  std::array<char, 8> text{};
  CHECK(::pread(file.get(), text.data(), text.size(), 0) == 4);
  CHECK(std::string_view(text.data()) == "text");
  CHECK((::fcntl(file.get(), F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("system files: a folder is found where it was moved to and no more once it was removed") {
  const TempFolder folder;
  fs::create_directories(folder.path("a/b"));
  const Descriptor open(::open(folder.path("a/b").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  CHECK(path_of_folder(open.get()) == fs::canonical(folder.path("a/b")));
  fs::rename(folder.path("a"), folder.path("c"));
  CHECK(path_of_folder(open.get()) == fs::canonical(folder.path("c/b")));
  fs::remove_all(folder.path("c"));
  CHECK_FALSE(fs::exists(path_of_folder(open.get())));
  const Descriptor root(::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  CHECK(path_of_folder(root.get()) == "/");
}
