// The commands for studies: vocabularies, and two runs token by token.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/program.h"
#include "train/files/text_file.h"
#include "train/text/stories/stories.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;
namespace fs = std::filesystem;

using Words = std::vector<std::string>;

std::string train_line(const std::string& run, const std::string& more) {
  return "train --run " + run +
         " --data books --data.order documents --data.tokenizer v.model --model.dim 8 --model.heads 2 "
         "--model.family block_recurrent --model.segment 16 --model.window 8 --model.layers 1 --model.states "
         "2 "
         "--train.steps 3 --train.batch 2 --train.eval_every 0 --train.sample_tokens 0 --train.threads 1 " +
         more;
}

// A vocabulary and two runs with it, made once.
struct Studies {
  TempFolder folder;
  std::string vocabulary;  // what making it said

  Studies() {
    folder.write("books/train/a.txt", generate_stories(1, 20000));
    folder.write("books/train/b.txt", generate_stories(2, 3000));
    folder.write("books/valid/c.txt", generate_stories(3, 1000));
    const Ended made = start("tokenizer train --data books --vocab 600 --out v.model");
    REQUIRE_MESSAGE(made.status == 0, made.err);
    vocabulary = made.out;
    for (const std::string& line :
         {train_line("rec", "--model.model block_recurrent --model.recurrent_layers 0"),
          train_line("slide", "--model.model slide")}) {
      const Ended end = start(line);
      REQUIRE_MESSAGE(end.status == 0, end.err);
    }
  }
  Ended start(const std::string& line, const Words& more = {}) const {
    return run_program({words_of(line, more), folder.path()});
  }
};
const Studies& studies() {
  static const Studies once;
  return once;
}

void check_study_refused(const Ended& ended, const std::string& what) {
  CAPTURE(ended.err);
  CHECK(ended.status != 0);
  CHECK(contains(ended.err, what));
}

}  // namespace

TEST_CASE("eddy tokenizer train: it makes a vocabulary of the training texts and overwrites none") {
  if (!has_program()) return;
  const Studies& s = studies();
  CHECK(contains(s.vocabulary, "text: 2 files, 23000 bytes"));
  CHECK(contains(s.vocabulary, "600 tokens (bpe)"));
  check_study_refused(s.start("tokenizer train --data books --vocab 600 --out v.model"), "v.model exists");
  check_study_refused(s.start("tokenizer train --data books --out v.spm"), "ends with .model");
  check_study_refused(s.start("tokenizer train --data books --out no/v.model"), "no is not a folder");
  check_study_refused(s.start("tokenizer train --data nothing --out w.model"), "no such file or folder");
  check_study_refused(s.start("tokenizer train --data books --vocab 90000 --out w.model"), "only one of");
  check_study_refused(s.start("tokenizer train --data books --vocab 100 --out w.model"), "--vocab");
  check_study_refused(s.start("tokenizer train --data books --out w.model --sort x"), "--sort");
  check_study_refused(s.start("tokenizer"), "subcommand");
  CHECK(!fs::exists(s.folder.path("w.model")));
}

TEST_CASE("eddy tokenizer show: it shows files and runs and how they cut a text") {
  if (!has_program()) return;
  const Studies& s = studies();
  for (const char* subject : {"v.model", "rec", "rec/tokenizer.json", "rec/tokenizer.model"}) {
    const Ended shown = s.start("tokenizer show", {subject, "--text", "the lamp\n1\xff"});
    CAPTURE(shown.err);
    CHECK(shown.status == 0);
    CHECK(contains(shown.out, "sentencepiece: 600 tokens"));
    CHECK(contains(shown.out, "without text: 0 1 2"));
    CHECK(contains(shown.out, "'\\xff'"));
    CHECK(contains(shown.out, "'\\x0a'"));
    CHECK(contains(shown.out, "the same text"));
  }
  const Ended counted = s.start("tokenizer show v.model --data books/valid");
  CHECK(contains(counted.out, "1000 bytes"));
  CHECK(contains(counted.out, "tokens per word: "));
  s.folder.write("bad.model", "text");
  check_study_refused(s.start("tokenizer show bad.model"), "bad.model is no model");
  check_study_refused(s.start("tokenizer show nowhere"), "nowhere");
}

TEST_CASE("eddy compare: two runs give a list and a page") {
  if (!has_program()) return;
  const Studies& s = studies();
  const Ended compared = s.start("compare rec slide --data books/valid/c.txt --top 3 --html page.html");
  CAPTURE(compared.err);
  REQUIRE(compared.status == 0);
  CHECK(contains(compared.out, "tokens that A predicts better:"));
  CHECK(contains(compared.out, "page: page.html"));
  CHECK(contains(read_text_file(s.folder.path("page.html")), "Loss up to a position"));
  const Ended folder = s.start("compare rec slide --data books --top 100000 --html folder.html");
  CHECK(contains(folder.out, "3: valid/c.txt"));
  const Ended cleared = s.start("compare rec --clear-state --data books/valid/c.txt --html cleared.html");
  CAPTURE(cleared.err);
  CHECK(cleared.status == 0);
  CHECK(contains(cleared.out, "the state cleared at each"));
}

TEST_CASE("eddy compare: what cannot be compared is refused") {
  if (!has_program()) return;
  const Studies& s = studies();
  check_study_refused(s.start("compare rec --data books"), "add --clear-state");
  check_study_refused(s.start("compare rec nowhere --data books"), "nowhere");
  check_study_refused(s.start("compare rec slide --data nothing"), "no such file or folder");
  check_study_refused(s.start("compare rec slide"), "--data");
  check_study_refused(s.start("compare rec slide --data books --device tpu"), "--device");
  const Ended bytes = s.start(
      "train --run bytes --data books/valid/c.txt --data.tokenizer byte --model.dim 8 --model.heads 2 "
      "--model.context 16 --train.steps 1 --train.batch 1 --train.eval_every 0 --train.sample_tokens 0");
  REQUIRE_MESSAGE(bytes.status == 0, bytes.err);
  check_study_refused(s.start("compare rec bytes --data books"), "different tokenizers");
  check_study_refused(s.start("compare bytes --clear-state --data books"), "carries no state");
}

TEST_CASE("eddy compare: on a GPU it gives the same list or says why there is none") {
  if (!has_program()) return;
  const Ended compared =
      studies().start("compare rec slide --data books/valid/c.txt --device cuda --html gpu.html");
  CAPTURE(compared.err);
  if (compared.status == 0)
    CHECK(contains(compared.out, "tokens that A predicts better:"));
  else
    CHECK(contains(compared.err, "cuda: "));
}

TEST_CASE("eddy eval: a page of losses by position has both curves where a state is carried") {
  if (!has_program()) return;
  const Studies& s = studies();
  const Ended measured = s.start("eval rec --by-position position.html");
  CAPTURE(measured.err);
  REQUIRE(measured.status == 0);
  CHECK(contains(measured.out, "loss with the state cleared: "));
  CHECK(contains(measured.out, "chance: "));
  CHECK(contains(measured.out, "with it cleared: what it carries "));
  CHECK(contains(measured.out, "state: carried\n"));
  CHECK(contains(measured.out, "state gate: "));
  const std::string page = read_text_file(s.folder.path("position.html"));
  CHECK(contains(page, "state carried"));
  CHECK(contains(page, "state cleared"));
  const Ended cleared = s.start("eval rec --clear-state --by-position cleared.html");
  CHECK(cleared.status == 0);
  CHECK(contains(cleared.out, "state: cleared at every segment\n"));
  CHECK(!contains(read_text_file(s.folder.path("cleared.html")), "state carried"));
}

TEST_CASE("eddy report: runs side by side are a page, a table and points") {
  if (!has_program()) return;
  const Studies& s = studies();
  const Ended report = s.start("report rec slide --html side.html --csv side.csv");
  CAPTURE(report.err);
  REQUIRE(report.status == 0);
  for (const char* part : {"training loss", "slide  ", "model.model", "page: side.html"})
    CHECK_MESSAGE(contains(report.out, part), report.out);
  CHECK(contains(read_text_file(s.folder.path("side.html")), "2 runs side by side"));
  CHECK(contains(read_text_file(s.folder.path("side.csv")), "slide,train_loss,1,"));
  CHECK(s.start("report rec slide --html side.html --csv side.csv").status == 0);  // over its own files
  s.folder.write("mine.csv", "a,b\n");
  check_study_refused(s.start("report rec --csv mine.csv"), "mine.csv exists and is not");
  check_study_refused(s.start("report books"), "books is no run and holds none");
  check_study_refused(s.start("report"), "RUN");
}

TEST_CASE("program: models draws an outline as a picture, and replaces only a picture of its own") {
  if (!has_program()) return;
  const TempFolder folder;
  const std::string small =
      "models --explain unit_forget --model.dim 8 --model.heads 2 --model.context 8 --vocab 5";
  for (int times = 0; times < 2; ++times) {
    const Ended drawn = run_program({words_of(small + " --svg a.svg"), folder.path()});
    CHECK_MESSAGE(drawn.status == 0, drawn.err);
    CHECK_MESSAGE(contains(drawn.out, "layers.0.mlp"), drawn.out);
    CHECK_MESSAGE(drawn.out.ends_with("picture: a.svg\n"), drawn.out);
  }
  CHECK(contains(read_text_file(folder.path("a.svg")), ">layers.0.mlp<"));
  folder.write("mine.svg", "<svg/>");
  const Ended refused = run_program({words_of(small + " --svg mine.svg"), folder.path()});
  CHECK(refused.status == 1);
  CHECK(read_text_file(folder.path("mine.svg")) == "<svg/>");
}

TEST_CASE("program: draw makes pictures of runs and replaces only its own") {
  if (!has_program()) return;
  const TempFolder folder;
  const auto start = [&](const std::string& line, const Words& more = {}) {
    return run_program({words_of(line, more), folder.path()});
  };
  for (const std::string seed : {"1", "2"}) {
    const Ended made =
        start("train --run seeds/" + seed + " --train.seed " + seed +
              " --data.name parity --model.dim 8 --model.heads 2 --model.layers 1 --model.context 8 "
              "--model.positions false --train.steps 4 --train.batch 4 --train.eval_every 2 "
              "--train.threads 1");
    REQUIRE_MESSAGE(made.status == 0, made.err);
  }
  const Ended curves = start("draw curves --measure accuracy --good 0 --out a.svg", {"two seeds=seeds"});
  CHECK_MESSAGE(curves.status == 0, curves.err);
  CHECK_MESSAGE(contains(curves.out, "two seeds: 2 runs\n  1 of 2 reach 0 for good by step 0\n"), curves.out);
  CHECK(contains(read_text_file(folder.path("a.svg")), "two seeds"));
  const Ended state = start("draw state seeds/1 --length 20 --rows 3 --out a.svg");  // over the picture
  CHECK_MESSAGE(state.status == 0, state.err);
  for (const char* part :
       {"streams: 3 of 20 tokens; training had 8\n", "of 60 answers", "between odd and even:"})
    CHECK_MESSAGE(contains(state.out, part), state.out);
  CHECK(contains(read_text_file(folder.path("a.svg")), "trained on streams of 8"));
  folder.write("mine.svg", "<svg/>");
  const Ended refused = start("draw state seeds/1 --out mine.svg");
  CHECK(refused.status == 1);
  CHECK(read_text_file(folder.path("mine.svg")) == "<svg/>");
  const Ended other = start("draw curves seeds --measure accurcy");
  CHECK_MESSAGE(contains(other.err, "loss, accuracy"), other.err);
}
