// The live line: its width, its estimates, and what a log file gets instead.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "tensor/files/descriptor.h"
#include "train/record/progress.h"

namespace {

using namespace eddy;
using namespace eddy::training;

// A stream into a temporary file whose text can be asked for.
class Capture {
 public:
  Capture() : file_(std::tmpfile(), &std::fclose) { REQUIRE(file_ != nullptr); }
  std::FILE* file() const { return file_.get(); }
  std::string text() const {
    std::fflush(file_.get());
    std::rewind(file_.get());
    std::string text;
    for (int c = std::fgetc(file_.get()); c != EOF; c = std::fgetc(file_.get())) text += static_cast<char>(c);
    return text;
  }

 private:
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

Clock::time_point at(double seconds) {
  return Clock::time_point() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

ProgressOptions options(bool terminal, std::int64_t total = 1000) {
  ProgressOptions o;
  o.total_steps = total;
  o.terminal = terminal;
  o.width = 80;
  return o;
}

StepRecord state(std::int64_t step, double loss = 2.5) {
  return {step, loss, 3e-4, kNotMeasured, 12345, 1288490189};
}

}  // namespace

TEST_CASE("progress: the line carries every value in human units") {
  const Capture out;
  Progress p(out.file(), options(false), at(0));
  p.update(state(100), at(100));
  p.update(state(200), at(200));
  CHECK(p.line(at(200), 200) ==
        "step 200/1000  20%  smoothed loss 2.5000  lr 3e-4  12.3k tokens/s  1.2 GiB  3m 20s  13m 20s left");
}

TEST_CASE("progress: a narrow line drops what matters least and never exceeds its width") {
  const Capture out;
  Progress p(out.file(), options(false), at(0));
  p.update(state(100), at(100));
  p.update(state(200), at(200));
  for (int columns = 0; columns <= 100; ++columns) {
    CHECK(p.line(at(200), columns).size() <= static_cast<std::size_t>(columns));
  }
  CHECK(p.line(at(200), 54) == "step 200/1000  smoothed loss 2.5000  13m 20s left");
  CHECK(p.line(at(200), 13) == "step 200/1000");
}

TEST_CASE("progress: a log file gets the first line at once and then one per interval") {
  const Capture out;
  ProgressOptions o = options(false);
  o.plain_interval_s = 10;
  {
    Progress p(out.file(), o, at(0));
    for (int step = 1; step <= 250; ++step) p.update(state(step), at(step * 0.1));
    p.finish(at(25));
  }
  const std::string text = out.text();
  CHECK(std::count(text.begin(), text.end(), '\n') == 4);  // at 0.1 s, 10.1 s, 20.1 s and the end
  CHECK(text.find("step 1/1000") == 0);
  CHECK(text.find("step 250/1000") != std::string::npos);
  CHECK(text.find('\r') == std::string::npos);
  CHECK(text.find('\x1b') == std::string::npos);
}

TEST_CASE("progress: a terminal gets at most ten redraws a second and messages above the line") {
  const Capture out;
  {
    Progress p(out.file(), options(true), at(0));
    for (int step = 1; step <= 100; ++step) p.update(state(step), at(step * 0.01));
    p.message("eval: loss 2.0");
  }
  const std::string text = out.text();
  const auto redraws = std::count(text.begin(), text.end(), '\r');
  CHECK(redraws <= 13);
  CHECK(text.find("\r\x1b[Keval: loss 2.0\n\rstep") != std::string::npos);
  CHECK(text.back() == '\n');
}

TEST_CASE("progress: a message cannot steer the terminal") {
  const Capture out;
  Progress p(out.file(), options(false), at(0));
  p.message("sample: \x1b[2J\x07\xff ok");
  CHECK(out.text() == "sample: \xef\xbf\xbd[2J\xef\xbf\xbd\xef\xbf\xbd ok\n");
}

TEST_CASE("progress: time left follows the pace of the last minute and not of the whole run") {
  const Capture out;
  Progress p(out.file(), options(false), at(0));
  double time = 0;
  for (int step = 1; step <= 100; ++step) p.update(state(step), at(time += 10));
  for (int step = 101; step <= 400; ++step) p.update(state(step), at(time += 1));
  const auto left = p.seconds_left(at(time));
  REQUIRE(left.has_value());
  CHECK(std::abs(*left - 600) <= 1);
  CHECK(*p.seconds_left(at(time + 60)) > 1100);  // a hang makes it longer
}

TEST_CASE("progress: the minutes limit ends a run that has steps left") {
  const Capture out;
  ProgressOptions o = options(false);
  o.minutes_limit = 2;
  Progress p(out.file(), o, at(0));
  CHECK(p.seconds_left(at(30)) == 90.0);
  p.update(state(1), at(30));
  p.update(state(2), at(60));
  CHECK(p.seconds_left(at(60)) == 60.0);
  CHECK(p.seconds_left(at(500)) == 0.0);
}

TEST_CASE("progress: the part that is done is of the steps or of the minutes, whichever ends the run") {
  const Capture out;
  ProgressOptions o = options(false, 1'000'000);
  o.minutes_limit = 2;
  Progress p(out.file(), o, at(0));
  p.update(state(5), at(30));
  CHECK(p.line(at(30), 200).find("  25%  ") != std::string::npos);
  CHECK(p.part_done(900'000, at(30)) == 0.9);
  CHECK(p.part_done(5, at(500)) == 1);
}

TEST_CASE("progress: nothing is promised before there is a pace") {
  const Capture out;
  Progress p(out.file(), options(false), at(0));
  CHECK_FALSE(p.seconds_left(at(1)).has_value());
  p.update(state(1), at(1));
  CHECK_FALSE(p.seconds_left(at(1)).has_value());
  p.update(state(1000), at(2));
  CHECK(p.seconds_left(at(2)) == 0.0);
}

TEST_CASE("progress: a loss that is not finite is shown and does not stay") {
  const Capture out;
  Progress p(out.file(), options(false, 0), at(0));
  p.update(state(1, 2.0), at(1));
  p.update(state(2, std::nan("")), at(2));
  CHECK(p.line(at(2), 200).find("loss nan") != std::string::npos);
  p.update(state(3, 2.0), at(3));
  CHECK(p.line(at(3), 200).find("loss 2.0000") != std::string::npos);
}

TEST_CASE("progress: only a terminal that redraws lines gets a live line") {
  const Descriptor terminal(::posix_openpt(O_RDWR | O_NOCTTY));
  REQUIRE(terminal.get() >= 0);
  REQUIRE(::grantpt(terminal.get()) == 0);
  REQUIRE(::unlockpt(terminal.get()) == 0);
  std::FILE* const stream = std::fopen(::ptsname(terminal.get()), "w");
  REQUIRE(stream != nullptr);
  const auto set_columns = [&](unsigned short columns) {
    const winsize size{24, columns, 0, 0};
    REQUIRE(::ioctl(terminal.get(), TIOCSWINSZ, &size) == 0);
  };
  set_columns(80);
  const char* const kind = std::getenv("TERM");
  const std::string before = kind == nullptr ? "" : kind;
  for (const auto& [name, live] : {std::pair{"xterm", true}, {"dumb", false}, {"", false}}) {
    ::setenv("TERM", name, 1);
    CHECK(redraws(stream) == live);
  }
  ::setenv("TERM", "xterm", 1);
  for (const char* const variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    CAPTURE(variable);
    ::setenv(variable, "1", 1);  // `srun --pty` starts one
    CHECK(redraws(stream));
    ::setenv(variable, "2", 1);
    CHECK(!redraws(stream));
    ::unsetenv(variable);
  }
  set_columns(0);  // as OpenMPI makes them
  CHECK(!redraws(stream));
  CHECK(moves_cursor(stream));
  std::FILE* const file = std::tmpfile();
  CHECK(!redraws(file));
  std::fclose(file);
  std::fclose(stream);
  kind == nullptr ? ::unsetenv("TERM") : ::setenv("TERM", before.c_str(), 1);
}
