// Event files: their check sums, their framing, and, where it is installed,
// what TensorBoard's own reader finds in them.
#include "train/record/event_file.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tensor/base/error.h"
#include "tests/support/files.h"
#include "tests/support/processes.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

std::uint64_t number_at(const std::string& bytes, std::size_t at, std::size_t size) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < size; ++i)
    value |= std::uint64_t{static_cast<unsigned char>(bytes.at(at + i))} << (8 * i);
  return value;
}

// The events of a file; fails the test where a length or a check sum is wrong.
std::vector<std::string> events_of(const std::string& bytes) {
  const auto is_checked = [&](std::size_t at, std::size_t size) {
    const std::uint32_t crc = crc32c(bytes.substr(at, size));
    return number_at(bytes, at + size, 4) == ((crc >> 15 | crc << 17) + 0xa282ead8u);
  };
  std::vector<std::string> events;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t length = number_at(bytes, at, 8);
    CHECK(is_checked(at, 8));
    CHECK(is_checked(at + 12, length));
    events.push_back(bytes.substr(at + 12, length));
    at += 12 + length + 4;
  }
  return events;
}

}  // namespace

TEST_CASE("event file: the check sum is CRC-32C") {
  // Source: RFC 3720, appendix B.4.
  CHECK(crc32c("123456789") == 0xe3069283u);
  CHECK(crc32c(std::string(32, '\0')) == 0x8a9136aau);
  CHECK(crc32c(std::string(32, '\xff')) == 0x62a8ab43u);
  CHECK(crc32c("") == 0);
}

TEST_CASE("event file: it begins with its version and the start of a session, then has the numbers") {
  const TempFolder folder;
  EventFile file(folder.path("board"), 7);
  file.write(300, {{"train/loss", 2.5}, {"x", -1}});
  file.write(301, {});
  const std::vector<std::string> events = events_of(read_bytes(file.path()));
  REQUIRE(events.size() == 3);
  using namespace std::string_literals;
  CHECK(events[0].substr(9) ==
        "\x10\0\x1a\x0d"
        "brain.Event:2"s);
  CHECK(events[1].substr(9) == "\x10\x08\x3a\x02\x08\x01"s);  // the session of step 8 on
  CHECK(events[2].substr(9) ==
        "\x10\xac\x02\x2a\x1d\x0a\x11\x0a\x0atrain/loss\x15\0\0\x20\x40"
        "\x0a\x08\x0a\x01x\x15\0\0\x80\xbf"s);
}

TEST_CASE("event file: a second one of the same second has a name of its own behind the first") {
  const TempFolder folder;
  const EventFile first(folder.path(), 0), second(folder.path(), 0);
  CHECK(first.path() < second.path());
  CHECK(EventFile::is_name(first.path().filename().string()));
  CHECK_FALSE(EventFile::is_name("metrics.jsonl"));
}

TEST_CASE("event file: a folder that cannot be made is an error") {
  const TempFolder folder;
  folder.write("board", "a file");
  CHECK_THROWS_AS(EventFile(folder.path("board"), 0), IoError);
}

TEST_CASE("event file: TensorBoard reads it, and the steps that a resumed run makes again count once") {
  if (output_of("python3 -c 'import tensorboard; print(1)'") != "1\n") {
    MESSAGE("skipped: python3 has no tensorboard (pip install tensorboard)");
    return;
  }
  const TempFolder folder;
  EventFile first(folder.path("board"), 0);
  for (const int step : {10, 20, 30}) first.write(step, {{"train/loss", 1.0 / step}, {"valid/loss", NAN}});
  EventFile resumed(folder.path("board"), 15);
  resumed.write(20, {{"train/loss", 0.25}});
  const std::string script =
      folder.write("read.py",
                   "import sys, math\n"
                   "from tensorboard.backend.event_processing import event_accumulator\n"
                   "events = event_accumulator.EventAccumulator(sys.argv[1])\n"
                   "events.Reload()\n"
                   "print(sorted(events.Tags()['scalars']))\n"
                   "print([(e.step, e.value) for e in events.Scalars('train/loss')])\n"
                   "print(all(math.isnan(e.value) for e in events.Scalars('valid/loss')))\n");
  CHECK(output_of("python3 " + script + " " + folder.path("board")) ==
        "['train/loss', 'valid/loss']\n[(10, 0.10000000149011612), (20, 0.25)]\nTrue\n");
}
