// `eddy inspect` as a user calls it: a page from a run and a text, and one line for each mistake.
#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/program.h"
#include "tests/support/tiny_run.h"
#include "train/files/output_file.h"
#include "train/tasks/state_tracking.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

}  // namespace

TEST_CASE("program: inspect writes a page about a run and a text, and says what is wrong with either") {
  if (!has_program()) return;
  const TempFolder folder;
  TrainRequest request = tiny_run(folder, "run");
  request.config.data.order = "stream";
  request.config.model.keep_state = true;
  train_quietly(request);
  const std::string text = read_bytes(folder.path("text.txt"));
  folder.write("mine.txt", text.substr(0, 200));
  const auto inspect = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "inspect");
    return run_program({arguments, folder.path()});
  };

  const Ended done = inspect({"run", "--text", "mine.txt", "--out", "mine.html", "--attention", "10:50"});
  CHECK_MESSAGE(done.status == 0, done.err);
  CHECK(contains(done.out, "tokens: 200"));
  CHECK(contains(done.out, "loss without the state: "));
  CHECK(contains(done.out, "attention: of the tokens 10:50"));
  CHECK(is_page_text(read_bytes(folder.path("mine.html"))));
  const Ended part = inspect({"run", "--text", "mine.txt", "--out", "mine.html", "--tokens", "64"});
  CHECK(contains(part.out, "tokens: 64, the first of 200"));

  folder.write("empty.txt", "");
  folder.write("one.txt", text.substr(0, 1));
  folder.write("strange.txt", "\xe2\x82\xac and so on");
  folder.write("letter.html", "dear reader");
  struct Mistake {
    std::vector<std::string> arguments;
    int status;
    const char* words;
  };
  const Mistake mistakes[] = {
      {{"run", "--text", "none.txt"}, 1, "there is no such file"},
      {{"run", "--text", "empty.txt"}, 1, "is empty"},
      {{"run", "--text", "one.txt"}, 1, "a text of 1 token"},
      {{"run", "--text", "."}, 1, "is a folder"},
      {{"run", "--text", "strange.txt"}, 1, "--replace-unknown takes another character"},
      {{"run", "--text", "mine.txt", "--out", "letter.html"}, 1, "is not a page of Eddy's"},
      {{"run", "--text", "mine.txt", "--attention", "50:10"}, 2, "no range of tokens"},
      {{"run", "--text", "mine.txt", "--attention", "0:900"}, 1, "of 200 tokens"},
      {{"nothing", "--text", "mine.txt"}, 1, "is not a folder"},
      {{"run"}, 1, "--text is required"},
  };
  const auto check = [&](const Mistake& mistake) {
    const Ended ended = inspect(mistake.arguments);
    CAPTURE(ended.err);
    CHECK(ended.status == mistake.status);
    CHECK(contains(ended.err, mistake.words));
  };
  for (const Mistake& mistake : mistakes) check(mistake);
  CHECK(read_bytes(folder.path("letter.html")) == "dear reader");
  const Ended known = inspect({"run", "--text", "strange.txt", "--out", "strange.html", "--replace-unknown"});
  CHECK_MESSAGE(known.status == 0, known.err);
  CHECK(contains(known.err, "U+20AC"));

  // What a page says is carried is what the model carries.
  const auto about = [&](const char* name) {
    TrainRequest other = tiny_run(folder, name);
    other.config.data.order = "stream";
    other.config.train.steps = 1;
    other.config.model.model = name;
    if (std::string(name) == "xl") other.config.model.family = "block_recurrent";
    train_quietly(other);
    CHECK(inspect({name, "--text", "mine.txt", "--out", "other.html"}).status == 0);
    return read_bytes(folder.path("other.html"));
  };
  CHECK(contains(read_bytes(folder.path("mine.html")), ", the state carried,"));
  CHECK(contains(about("regular"), ", each read afresh,"));
  CHECK(contains(about("xl"), ", a cache of the last tokens carried,"));

  train_quietly(tiny_task_run(folder, "parity", "unit_forget"));
  TrainRequest fixed = tiny_task_run(folder, "algorithm", "unit_forget");
  fixed.config.data.extensions.get<StateTrackingKeys>().examples = 64;
  train_quietly(fixed);
  const Mistake mistakes_on_tasks[] = {
      {{"parity", "--text", "mine.txt"}, 1, "which has no text (leave out --text)"},
      {{"parity", "--replace-unknown"}, 1, "which has no text (leave out --replace-unknown)"},
      {{"run", "--text", "mine.txt", "--seed", "2"}, 1, "--seed has no effect on a text"},
      {{"algorithm", "--seed", "2"}, 1, "--seed has no effect on the task algorithm"},
  };
  for (const Mistake& mistake : mistakes_on_tasks) check(mistake);
  const Ended read = inspect({"parity", "--tokens", "300", "--out", "page.html"});
  CHECK_MESSAGE(read.status == 0, read.err);
  // Rows of 16 bits in training are read 16 at once, so that one sees how long the state lasts.
  CHECK(contains(read.out, "tokens: 512"));
  CHECK(contains(read.out, " nats per answer"));
  CHECK(contains(read.out, " of 512 answers"));
  CHECK(contains(read.out, "loss without the state: "));
  const std::string page = read_bytes(folder.path("page.html"));
  CHECK(contains(page, "parity reads its task, parity"));
  CHECK(contains(page, "parts of 16"));
  CHECK(contains(page, "\"odd\""));
  const Ended other = inspect({"parity", "--tokens", "300", "--seed", "2", "--out", "other.html"});
  CHECK_MESSAGE(other.status == 0, other.err);
  CHECK(read_bytes(folder.path("other.html")) != page);
  const Ended same = run_program({{"compare", "parity", "parity", "--html", "both.html"}, folder.path()});
  CHECK_MESSAGE(same.status == 0, same.err);
  CHECK(contains(same.out, "tokens: 64\n"));  // four rows of 16
  CHECK(contains(run_program({{"compare", "parity", "run"}, folder.path()}).err, "on different tasks"));
  CHECK(contains(run_program({{"compare", "parity", "parity", "--data", "mine.txt"}, folder.path()}).err,
                 "which has no text (leave out --data"));
}
