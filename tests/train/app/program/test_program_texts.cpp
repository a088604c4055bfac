// The program on texts of other folders, and with names and vocabularies that are not its own.
#include <doctest/doctest.h>
#include <sentencepiece_trainer.h>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "tensor/files/descriptor.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/program.h"
#include "train/text/stories/stories.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;
namespace fs = std::filesystem;

const std::string kTinyOnText = kTinyModel +
                                "--train.threads 1 --train.eval_every 2 --train.eval_batches 2 "
                                "--train.checkpoint_every 0 --train.steps 2 ";

Ended run_in(const std::string& folder, const std::string& line, const std::vector<std::string>& more = {}) {
  return run_program({words_of(line, more), folder});
}

}  // namespace

TEST_CASE("program: a run finds its text from another folder and after both were moved") {
  if (!has_program()) return;
  const TempFolder folder;
  folder.write("a/texts/x.txt", generate_stories(3, 4000));
  folder.write("b/texts/x.txt", "another text");
  const Ended begun = run_in(folder.path("a"), "train " + kTinyOnText + "--data texts/x.txt --run r");
  REQUIRE_MESSAGE(begun.status == 0, begun.err);
  Ended ended = run_in(folder.path("b"), "train --resume ../a/r --train.steps 3");
  CHECK_MESSAGE(ended.status == 0, ended.err);
  CHECK_MESSAGE(run_in(folder.path("b"), "eval ../a/r").status == 0, ended.err);
  fs::rename(folder.path("a"), folder.path("c"));
  ended = run_in(folder.path(), "train --resume c/r --train.steps 4");
  CHECK_MESSAGE(ended.status == 0, ended.err);
}

TEST_CASE("program: a name that is not UTF-8 is named and in a folder it is read") {
  if (!has_program()) return;
  const TempFolder folder;
  folder.write("d/caf\xe9.txt", generate_stories(3, 4000));
  const Ended file = run_in(folder.path(), "train " + kTinyOnText + "--run r --data", {"d/caf\xe9.txt"});
  CHECK(file.status == 1);
  CHECK_MESSAGE(contains(file.err, "--data is \"d/caf\ufffd.txt\", which is not UTF-8"), file.err);
  const Ended whole = run_in(folder.path(), "train " + kTinyOnText + "--run r --data d");
  CHECK_MESSAGE(whole.status == 0, whole.err);
  CHECK_MESSAGE(run_in(folder.path(), "train --resume r --train.steps 3").status == 0, whole.err);
}

TEST_CASE("program: a vocabulary that does not cover the text is said in training and in an evaluation") {
  if (!has_program()) return;
  const TempFolder folder;
  const std::string text = folder.write("known.txt", generate_stories(1, 20000));
  REQUIRE(sentencepiece::SentencePieceTrainer::Train({{"input", text},
                                                      {"model_prefix", folder.path("v")},
                                                      {"model_type", "bpe"},
                                                      {"vocab_size", "60"},
                                                      {"hard_vocab_limit", "false"},
                                                      {"minloglevel", "2"}})
              .ok());
  std::string other;
  for (int i = 0; i < 600; ++i) other += i % 3 == 0 ? "a\n" : "\U0001f600 ";
  folder.write("other.txt", other);
  const Ended ended =
      run_in(folder.path(), "train " + kTinyOnText + "--data other.txt --data.tokenizer v.model --run r");
  CHECK_MESSAGE(ended.status == 0, ended.err);
  CHECK_MESSAGE(contains(ended.out, "the vocabulary v.model does not cover other.txt: "), ended.out);
  CHECK_MESSAGE(contains(run_in(folder.path(), "eval r").err, "% of its tokens are unknown"), ended.out);
}

TEST_CASE("program: word perplexity is of words or parts of words, not of characters and bytes") {
  if (!has_program()) return;
  const TempFolder folder;
  folder.write("x.txt", generate_stories(3, 20000));
  REQUIRE(run_in(folder.path(), "tokenizer train --data x.txt --vocab 512 --out v.model").status == 0);
  for (const std::string vocabulary : {"char", "byte", "v.model"}) {
    const Ended ended = run_in(folder.path(), "train " + kTinyOnText + "--data x.txt --run " + vocabulary +
                                                  "-run --data.tokenizer " + vocabulary);
    REQUIRE_MESSAGE(ended.status == 0, ended.err);
    CHECK_MESSAGE(contains(ended.out, "to compare, in bits per byte: uniform letters "), ended.out);
    CHECK_MESSAGE(contains(ended.out, "2 steps: "), ended.out);
    const std::string measured = run_in(folder.path(), "eval " + vocabulary + "-run").out;
    CHECK_MESSAGE(contains(measured, "verdict: far from done: "), measured);
    CHECK_MESSAGE(contains(measured, "word perplexity: ") == (vocabulary == "v.model"), measured);
  }
}

TEST_CASE("program: unknown characters of a prompt are replaced where that is asked for") {
  if (!has_program()) return;
  const TempFolder folder;
  folder.write("x.txt", generate_stories(3, 4000));
  REQUIRE(run_in(folder.path(), "train " + kTinyOnText + "--data x.txt --run r").status == 0);
  const Ended replaced =
      run_in(folder.path(), "generate r --tokens 5 --replace-unknown --prompt", {"a~\xff"});
  REQUIRE_MESSAGE(replaced.status == 0, replaced.err);
  CHECK_MESSAGE(contains(replaced.err, "lacks '~' (U+007E), byte 0xff: each is replaced"), replaced.err);
  CHECK(contains(replaced.err, "prompt: 3 tokens"));
  const Ended known = run_in(folder.path(), "generate r --tokens 5 --replace-unknown --prompt a");
  CHECK_MESSAGE(!contains(known.err, "warning"), known.err);
}

TEST_CASE("program: a terminal sees the prompt before the text and a pipe the text alone") {
  if (!has_program()) return;
  const TempFolder folder;
  folder.write("x.txt", generate_stories(3, 4000));
  REQUIRE(run_in(folder.path(), "train " + kTinyOnText + "--data x.txt --run r").status == 0);
  const std::string line = "generate r --tokens 5 --prompt the";
  const Ended piped = run_in(folder.path(), line);
  CHECK(piped.out.size() == 5);
  CHECK_FALSE(contains(piped.err, "nothing was trained"));
  // The terminal of a pseudo-terminal: what the program writes to one end is read from the other.
  const Descriptor reader(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  REQUIRE(reader.get() >= 0);
  REQUIRE(::grantpt(reader.get()) == 0);
  REQUIRE(::unlockpt(reader.get()) == 0);
  const std::string terminal = ::ptsname(reader.get());
  const Descriptor kept_open(::open(terminal.c_str(), O_RDWR | O_NOCTTY | O_CLOEXEC));
  const Ended shown = run_program({.arguments = words_of(line), .folder = folder.path(), .output = terminal});
  CHECK_MESSAGE(shown.status == 0, shown.err);
  std::string seen;  // a busy system hands a terminal's bytes over in parts
  for (pollfd waiting{reader.get(), POLLIN, 0}; seen.size() < 8 && ::poll(&waiting, 1, 20'000) > 0;) {
    char part[256];
    const ssize_t got = ::read(reader.get(), part, sizeof part);
    REQUIRE(got > 0);
    seen.append(part, static_cast<std::size_t>(got));
  }
  CHECK_MESSAGE(seen.starts_with("the"), seen);
  CHECK_MESSAGE(seen.size() >= 8, seen);

  // The first checkpoint of a run is saved before it has learned anything.
  const Ended noise = run_in(folder.path(), "generate r --tokens 5 --checkpoint step-0");
  CHECK_MESSAGE(noise.status == 0, noise.err);
  CHECK_MESSAGE(contains(noise.err, "step 0: nothing was trained"), noise.err);
}

TEST_CASE("program: another model is one word and a key that it does not read is warned of") {
  if (!has_program()) return;
  const TempFolder folder;
  folder.write("x.txt", generate_stories(3, 4000));
  const Ended stairs =
      run_in(folder.path(), "train " + kTinyOnText + "--data x.txt --run a --model staircase");
  CHECK_MESSAGE(stairs.status == 0, stairs.err);
  CHECK_MESSAGE(contains(stairs.out, "staircase on x.txt"), stairs.out);
  CHECK_MESSAGE(contains(stairs.out, "rows, vocabulary"), stairs.out);  // read as a stream
  CHECK_FALSE_MESSAGE(contains(stairs.out, "warning"), stairs.out);
  const Ended slide =
      run_in(folder.path(),
             "train " + kTinyOnText + "--data x.txt --run b --preset slide --model.recurrent_layers 0");
  CHECK_MESSAGE(slide.status == 0, slide.err);
  CHECK_MESSAGE(contains(slide.out, "slide does not read model.recurrent_layers; block_recurrent does"),
                slide.out);
  // A saved run goes on without the warning, and with its sizes.
  const Ended again = run_in(folder.path(), "train --resume b --train.steps 3");
  CHECK_MESSAGE(again.status == 0, again.err);
  CHECK_FALSE_MESSAGE(contains(again.out, "does not read"), again.out);
  CHECK(run_in(folder.path(), "train --resume b --preset slide").status == 1);
}

TEST_CASE("program: several files are one text and a configuration may stand behind them") {
  if (!has_program()) return;
  const TempFolder folder;
  folder.write("a.txt", generate_stories(3, 3000));
  folder.write("b.txt", generate_stories(4, 3000));
  folder.write("c.toml", "[train]\nseed = 7\n");
  folder.write("two.toml", "[data]\npath = [\"a.txt\", \"b.txt\"]\n");
  for (const char* const data :
       {"--data a.txt b.txt", "--data a.txt --data b.txt", "--data a.txt b.txt c.toml",
        "--data.path a.txt --data.path b.txt c.toml", "--config two.toml", "--data ?.txt"}) {
    CAPTURE(data);
    const Ended ended = run_in(folder.path(), "train " + kTinyOnText + "--dry-run --run r " + data);
    CHECK_MESSAGE(ended.status == 0, ended.err);
    CHECK_MESSAGE(contains(ended.out, "data: a.txt, b.txt, 2 files "), ended.out);
    CHECK_MESSAGE(contains(ended.out, "the text begins: "), ended.out);
  }
  const Ended planned = run_in(folder.path(), "plan " + kTinyOnText + "--seconds 0 --data a.txt b.txt");
  CHECK_MESSAGE(contains(planned.out, "data: a.txt, b.txt, 2 files "), planned.out);
}

TEST_CASE("program: a run on standard input keeps its text and goes on") {
  if (!has_program()) return;
  const TempFolder folder;
  const std::string text = folder.write("x.txt", generate_stories(3, 4000));
  const Ended begun =
      run_program({words_of("train " + kTinyOnText + "--data - --run r"), folder.path(), text});
  REQUIRE_MESSAGE(begun.status == 0, begun.err);
  CHECK(read_bytes(folder.path("r/standard_input.txt")) == read_bytes(text));
  const Ended ended = run_in(folder.path(), "train --resume r --train.steps 3");
  CHECK_MESSAGE(ended.status == 0, ended.err);
  CHECK(run_in(folder.path(), "eval r").status == 0);
  const Ended empty = run_in(folder.path(), "train " + kTinyOnText + "--data - --run none");
  CHECK_MESSAGE(contains(empty.err, "standard input is empty"), empty.err);
  const Ended twice = run_program(
      {words_of("train " + kTinyOnText + "--data - --data - --run none --dry-run"), folder.path(), text});
  CHECK_MESSAGE(contains(twice.out, "1 read"), twice.out);
  CHECK_MESSAGE(contains(twice.out, "(named twice)"), twice.out);
  // What is piped to a run that goes on is read, and must be its text; else the run goes on with what it kept.
  const std::vector<std::string> again = words_of("train --resume r --train.steps 4 --dry-run --data -");
  CHECK(run_program({again, folder.path(), text}).status == 0);
  const Ended other =
      run_program({again, folder.path(), folder.write("other.txt", generate_stories(4, 4000))});
  CHECK(other.status == 1);
  CHECK_MESSAGE(contains(other.err, "standard input is not the text that r/"), other.err);
  CHECK(contains(run_program({again, folder.path()}).err, "standard input is empty"));
  std::filesystem::remove(folder.path("r/standard_input.txt"));
  const Ended lost = run_in(folder.path(), "train --resume r --train.steps 4");
  CHECK_MESSAGE(contains(lost.err, "standard_input.txt, which the run kept of it in its folder, is gone"),
                lost.err);
}

TEST_CASE("program: the path of a configuration in another folder is named where it is") {
  if (!has_program()) return;
  const TempFolder folder;
  folder.write("a/texts/x.txt", generate_stories(3, 4000));
  folder.write("a/c.toml", "[data]\npath = \"texts/x.txt\"\n");
  folder.write("b/empty", "");
  const Ended ended = run_in(folder.path("b"), "train ../a/c.toml --run r");
  CHECK(ended.status == 1);
  CHECK_MESSAGE(contains(ended.err, "it is beside ../a/c.toml (--data ../a/texts/x.txt)"), ended.err);
  folder.write("a/v.model", "");
  folder.write("a/pattern.toml", "[data]\npath = \"texts/*.txt\"\n");
  folder.write("a/vocabulary.toml",
               "[data]\ntokenizer = \"v.model\"\npath = \"" + folder.path("a/texts") + "\"\n");
  folder.write("a/nowhere.toml",
               "[data]\ntokenizer = \"w.model\"\npath = \"" + folder.path("a/texts") + "\"\n");
  for (const auto& [name, told] :
       {std::pair{"pattern", "it is beside ../a/pattern.toml (--data '../a/texts/*.txt')"},
        {"vocabulary", "it is beside ../a/vocabulary.toml (--data.tokenizer ../a/v.model)"},
        {"nowhere",
         "w.model: No such file or directory (check the path; it is taken from the working directory, "}}) {
    const Ended refused =
        run_in(folder.path("b"), "train --run r --train.steps 1 ../a/" + std::string(name) + ".toml");
    CHECK(refused.status == 1);
    CHECK_MESSAGE(contains(refused.err, told), refused.err);
  }
}
