// Opening and reading files: regular ones only, never beyond what they hold.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "tensor/base/error.h"
#include "tensor/files/input_file.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

using namespace eddy;
using namespace eddy::test;

TEST_CASE("input file: the content of a file is read whole or in parts") {
  const TempFolder folder;
  std::string bytes("one\0two", 7);
  bytes.append(600'000, 'x').append("end");
  const InputFile file(folder.write("a", bytes));
  CHECK(file.bytes() == std::ssize(bytes));
  CHECK(file.text() == bytes);
  std::string part(3, ' ');
  file.read(4, part.data(), 3);
  CHECK(part == "two");
  CHECK(InputFile(folder.write("empty", "")).text().empty());
}

TEST_CASE("input file: what is no regular file is refused with its name and without waiting") {
  const TempFolder folder;
  REQUIRE(::mkfifo(folder.path("pipe").c_str(), 0600) == 0);
  for (const std::string& path : {folder.path(), folder.path("pipe"), std::string("/dev/zero")}) {
    const std::string error = error_of<IoError>([&] { InputFile{path}; });
    CHECK_MESSAGE(contains(error, path + " is not a regular file"), error);
  }
  const std::string missing = folder.path("none");
  CHECK(contains(error_of<IoError>([&] { InputFile{missing}; }), "cannot open " + missing));
  CHECK_THROWS_AS(InputFile(std::string("a\0b", 3)), IoError);
}

TEST_CASE("input file: a file that becomes shorter while it is read is an error") {
  const TempFolder folder;
  const std::string path = folder.write("a", std::string(100'000, 'x'));
  const InputFile file(path);
  std::filesystem::resize_file(path, 100);
  CHECK(contains(error_of<IoError>([&] { static_cast<void>(file.text()); }), path + " became shorter"));
}

TEST_CASE("input file: a file larger than the limit is refused before it is read") {
  const TempFolder folder;
  const std::string path = folder.write("a", "");
  std::filesystem::resize_file(path, std::uintmax_t{1} << 40);  // sparse: it takes no space
  CHECK(contains(error_of<IoError>([&] { static_cast<void>(InputFile(path).text(4096)); }),
                 "1.0 TiB (at most 4.0 KiB)"));
}
