// A text that is put away by --save-session, and gone on with: whatever ends the program, the session is whole or none.
#include <doctest/doctest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>
#include <thread>

#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/processes.h"
#include "tests/support/program.h"
#include "tests/train/app/program/trained_runs.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;
using namespace eddy::test::program;
namespace fs = std::filesystem;

}  // namespace

TEST_CASE("program: a text is put away and gone on with by the run it came from alone") {
  if (!has_program()) return;
  const Trained& t = trained();
  const TempFolder folder;
  const Words begin{"generate", t.unit, "--prompt", "Once", "--seed", "5", "--temperature", "0.9"};
  const Ended whole = run(folder, begin + Words{"--tokens", "60"});
  CHECK(whole.status == 0);
  const Ended first = run(folder, begin + Words{"--tokens", "25", "--save-session", "a.session"});
  CHECK_MESSAGE(first.status == 0, first.err);
  const Words go_on{"generate", t.unit, "--session", "a.session", "--tokens"};
  const Ended second = run(folder, go_on + Words{"20", "--save-session", "a.session"});
  CHECK_MESSAGE(second.status == 0, second.err);
  const Ended third = run(folder, go_on + Words{"15"});
  CHECK_MESSAGE(third.status == 0, third.err);
  CHECK(first.out + second.out + third.out == whole.out);
  CHECK(run(folder, go_on + Words{"15", "--seed", "6"}).out != third.out);

  check_refused(run(folder, {"generate", t.regular, "--session", "a.session"}), 1,
                "a.session was written by a unit_forget, and this model is a regular");
  check_refused(run(folder, {"generate", t.unit, "--session", t.text}), 1,
                "is not a session (expected: a file that --save-session wrote)");
  check_refused(run(folder, {"generate", t.unit, "--session", latest_of(t.unit) + "/model.safetensors"}), 1,
                "has no format");
  check_refused(run(folder, {"generate", t.unit, "--session", ""}), 2, "--session: the name is empty");
  check_refused(run(folder, begin + Words{"--save-session", ""}), 2, "--save-session: the name is empty");
  check_refused(run(folder, begin + Words{"--save-session", "nowhere/a.session"}), 1,
                "nowhere is not a folder");
  CHECK(run(folder, {"eval", t.unit, "--session", "a.session"}).status == 2);
}

TEST_CASE("program: an interrupt puts the text away that --save-session asked for") {
  if (!has_program()) return;
  const Trained& t = trained();
  const TempFolder folder;
  const Words begin{"generate", t.unit, "--prompt", "Once", "--seed", "5", "--tokens"};
  Program endless({begin + Words{"1000000000000", "--save-session", "a.session"}, folder.path()});
  REQUIRE(endless.read_output(200));
  endless.signal(SIGINT);
  const Ended ended = endless.finish();
  CHECK_MESSAGE(ended.status == 130, ended.err);
  const std::string length = std::to_string(ended.out.size());
  CHECK(contains(ended.err, "interrupted after " + length + " of 1000000000000 tokens; saved in a.session"));
  const Ended more = run(folder, {"generate", t.unit, "--session", "a.session", "--tokens", "30"});
  CHECK_MESSAGE(more.status == 0, more.err);
  const Ended whole = run(folder, begin + Words{std::to_string(ended.out.size() + 30)});
  CHECK(ended.out + more.out == whole.out);
}

TEST_CASE("program: a session is saved however the output ends") {
  if (!has_program()) return;
  const Trained& t = trained();
  const TempFolder folder;
  const Words begin{"generate", t.unit, "--prompt", "Once", "--seed", "5", "--tokens"};
  const Words saved = begin + Words{"1000000000000", "--save-session", "a.session"};
  Program left({saved, folder.path()});
  REQUIRE(left.read_output(200));
  left.close_output();
  const Ended ended = left.finish();
  CHECK_MESSAGE(ended.status == 0, ended.err);
  CHECK(contains(ended.err, "; saved in a.session"));
  CHECK(run(folder, {"generate", t.unit, "--session", "a.session", "--tokens", "30"}).status == 0);

  fs::remove(folder.path("a.session"));
  const Ended full = run_program({saved, folder.path(), "/dev/null", 0, {}, "/dev/full"});
  check_refused(full, 1, "No space left on device");
  CHECK(contains(full.err, "; saved in a.session"));
  const Ended more = run(folder, {"generate", t.unit, "--session", "a.session", "--tokens", "30"});
  const Ended whole = run(folder, begin + Words{"31"});
  CHECK(more.out == whole.out.substr(1));
}

TEST_CASE("program: a stop within the prompt saves no session and says so") {
  if (!has_program()) return;
  const Trained& t = trained();
  const TempFolder folder;
  std::string prompt;
  for (int i = 0; i < 1000; ++i) prompt += read_bytes(t.text);
  folder.write("long.txt", prompt);
  Program reading({{"generate", t.unit, "--prompt", "-", "--save-session", "a.session"},
                   folder.path(),
                   folder.path("long.txt")});
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  reading.signal(SIGTERM);
  reading.signal(SIGHUP);
  const Ended ended = reading.finish();
  CHECK(ended.status == 130);
  CHECK(contains(ended.err, "no session is saved"));
  CHECK(!fs::exists(folder.path("a.session")));
}
