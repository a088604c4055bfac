// Other programs: where their streams lead, how they end, what they may take, and that none is left.
#include <doctest/doctest.h>
#include <signal.h>

#include <cerrno>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/processes.h"
#include "train/process/running_program.h"

namespace {

using namespace eddy::training;
using namespace eddy::test;

std::vector<std::string> shell(const std::string& line) {
  return {"sh", "-c", line};
}

// Whether the process ends within twenty seconds. One that no one waits for stays as a zombie.
bool ends(pid_t process) {
  return wait_until([&] {
    std::ifstream file("/proc/" + std::to_string(process) + "/stat");
    std::string number, name, state;
    return !(file >> number >> name >> state) || state == "Z";
  });
}

}  // namespace

TEST_CASE("running program: its end says its status and its signal") {
  CHECK(run_to_end({.words = shell("exit 0")}).good());
  CHECK(run_to_end({.words = shell("exit 0")}).why("it").empty());
  const ProgramEnd failed = run_to_end({.words = shell("exit 3")});
  CHECK(failed.status == 3);
  CHECK(failed.why("it") == "it ended with status 3");
  const ProgramEnd died = run_to_end({.words = shell("kill -9 $$")});
  CHECK(died.signal == SIGKILL);
  CHECK_FALSE(died.good());
  CHECK(died.why("it") == "it was ended by signal 9 (Killed)");
}

TEST_CASE("running program: one that is missing is told from one that cannot be started") {
  const ProgramEnd missing = run_to_end({.words = {"no-such-program"}});
  CHECK_FALSE(missing.found());
  CHECK(missing.why("no-such-program") == "no-such-program is not installed");
  CHECK_FALSE(run_to_end({.words = shell("exit 127")}).found());
  const TempFolder folder;
  const ProgramEnd refused = run_to_end({.words = {folder.path()}});
  CHECK(refused.found());
  CHECK(refused.error == EACCES);
  CHECK(contains(refused.why("it"), "could not be started: Permission denied"));
}

TEST_CASE("running program: what it writes is read and no more than asked for") {
  const ProgramStart both{.words = shell("echo out; echo err >&2"), .output = kRead, .errors = kRead};
  CHECK(run_to_end(both).output == "out\nerr\n");
  CHECK(run_to_end(both, 20, 5).output == "out\ne");
  CHECK(run_to_end(both, 20, 5).last == "rr\n");
  const ProgramEnd many = run_to_end({.words = shell("seq 100000"), .output = kRead}, 20, 6);
  CHECK(many.output == "1\n2\n3\n");
  CHECK(many.last == "00000\n");
  CHECK(run_to_end({.words = shell("echo out; echo err >&2"), .output = kRead}).output == "out\n");
  CHECK(run_to_end({.words = {"cat"}, .output = kRead}).output.empty());
}

TEST_CASE("running program: its environment is what is given and its name for itself need not be its file") {
  const ProgramStart start{.words = {"another", "-c", "echo $0 $EDDY_GIVEN $HOME"},
                           .file = "/bin/sh",
                           .output = kRead,
                           .environment = {"EDDY_GIVEN=yes"}};
  CHECK(run_to_end(start).output == "another yes\n");
}

TEST_CASE("running program: one that takes too long is killed with all that it started") {
  const ProgramEnd late = run_to_end(
      {.words = shell("sleep 100 & echo $!; wait"), .output = kRead, .own_group = true, .is_trial = true}, 1);
  CHECK(late.killed);
  CHECK_FALSE(late.good());
  CHECK(contains(late.why("it"), "did not end"));
  REQUIRE_FALSE(late.output.empty());
  CHECK(ends(static_cast<pid_t>(std::stol(late.output))));
}

TEST_CASE("running program: it has no more memory than its limit") {
  const ProgramStart start{
      .words = shell("ulimit -v; ulimit -c"), .output = kRead, .memory_bytes = 1 << 28, .is_trial = true};
  CHECK(run_to_end(start).output == "262144\n0\n");
}

TEST_CASE("running program: it is read from while it runs and ends with its object unless it was detached") {
  const ProgramStart start{.words = shell("echo $$; exec sleep 100"), .output = kRead};
  pid_t first = 0, second = 0;
  {
    RunningProgram program(start);
    const std::optional<std::string> line = program.read(20);
    REQUIRE(line);
    first = static_cast<pid_t>(std::stol(*line));
    CHECK_FALSE(program.read(0.01));
    CHECK_FALSE(program.wait(0));
  }
  CHECK(ends(first));
  {
    RunningProgram program(start);
    second = static_cast<pid_t>(std::stol(program.read(20).value_or("0")));
    program.detach();
  }
  REQUIRE(second > 0);
  CHECK(::kill(second, SIGKILL) == 0);  // it runs on
}
