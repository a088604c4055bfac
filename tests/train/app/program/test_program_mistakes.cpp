// What a slip of the hand must not do: overwrite an input, go unread, or be taken for another number.

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <utility>
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

Words with_empty(const std::string& line) {
  return words_of(line, {""});
}

Ended run_mistaken(const TempFolder& folder, const std::string& line,
                   const std::string& variable = "EDDY_=") {
  return run_program({words_of(line), folder.path(), "/dev/null", 0, {variable}});
}

const std::string kTinyTraining =
    "train " + kTinyModel +
    "--train.threads 1 --train.eval_every 0 --train.eval_batches 2 --train.checkpoint_every 0 --train.steps 2 ";

// A folder with a text and the run `tiny` on it.
struct TinyRun {
  TempFolder folder;
  TinyRun() {
    folder.write("text.txt", generate_stories(3, 4000));
    const Ended end = run_mistaken(folder, kTinyTraining + "--data text.txt --run tiny");
    REQUIRE_MESSAGE(end.status == 0, end.err);
  }
};

void check_mistake(const Ended& ended, int status, const std::string& what) {
  CAPTURE(ended.err);
  CHECK(ended.status == status);
  CHECK_MESSAGE(contains(ended.err, what), what);
}

}  // namespace

TEST_CASE("program: sessions and pages and numbers replace nothing of another kind") {
  if (!has_program()) return;
  const TinyRun tiny;
  const TempFolder& folder = tiny.folder;
  folder.write("tiny.toml", "[model]\ndim = 16\n");
  const auto before = content_of(folder.path());
  for (const char* file :
       {"text.txt", "tiny/checkpoints/latest", "tiny/checkpoints/step-2/model.safetensors"})
    check_mistake(run_mistaken(folder, std::string("generate tiny --tokens 3 --save-session ") + file), 1,
                  std::string(file) + " exists and is not a session");
  for (const char* command :
       {"compare tiny tiny --data text.txt --html ", "eval tiny --by-position ", "bench generate --html "})
    check_mistake(run_mistaken(folder, std::string(command) + "tiny.toml"), 1,
                  "tiny.toml exists and is not a page of Eddy's");
  for (const char* file : {"tiny.toml", "tiny/config.json", "tiny/checkpoints/step-2/model.safetensors"})
    check_mistake(run_mistaken(folder, std::string("bench ops --json ") + file), 1,
                  std::string(file) + " exists and is not a file of numbers of Eddy's benchmarks");
  const std::string case_files =
      "dump --config tiny/config.json --weights tiny/checkpoints/step-2/model.safetensors --tokens none --out ";
  for (const char* file : {"text.txt", "tiny/checkpoints/step-2/optimizer.safetensors", "tiny/metrics.jsonl"})
    check_mistake(run_mistaken(folder, case_files + file), 1,
                  std::string(file) + " exists and is not a dump of Eddy's");
  CHECK(content_of(folder.path()) == before);
  folder.write("mine.html", "<!DOCTYPE html>\n<html><body>mine</body></html>\n");
  fs::create_symlink("nowhere", folder.path("link"));
  REQUIRE(::mkfifo(folder.path("pipe").c_str(), 0600) == 0);
  for (const auto& [file, what] : {std::pair{"mine.html", "is not a page of Eddy's"},
                                   {"link", "it is a link"},
                                   {"pipe", "it is a pipe"}})
    check_mistake(run_mistaken(folder, std::string("compare tiny tiny --data text.txt --html ") + file), 1,
                  what);
  for (const char* command : {"generate tiny --save-session ", "eval tiny --by-position ",
                              "bench ops --json ", "bench ops --html ", "dump --case nowhere --out "})
    for (const char* file : {"link", "pipe"})
      check_mistake(run_mistaken(folder, std::string(command) + file), 1,
                    std::string("cannot write ") + file + ": it is a " + file);
  fs::create_symlink("nowhere", folder.path("link.model"));
  check_mistake(run_mistaken(folder, "tokenizer train --data text.txt --out link.model"), 1, "it is a link");
  check_mistake(run_mistaken(folder, "bench ops --json page --html ./page"), 1,
                "--json and --html name the same file");
  check_mistake(run_mistaken(folder, "report tiny --csv ./runs.html"), 1,
                "--html and --csv name the same file");
  CHECK(!fs::exists(folder.path("runs.html")));
  CHECK(fs::is_symlink(folder.path("link")));
  CHECK(fs::is_fifo(folder.path("pipe")));
  folder.write("numbers", "");
  for (int twice = 0; twice < 2; ++twice)
    CHECK(run_mistaken(
              folder,
              "bench length --models unit_forget --dim 16 --shortest 16 --longest 16 --seconds 0.001 --json "
              "numbers")
              .status == 0);
  folder.write("page", "");
  for (int twice = 0; twice < 2; ++twice)
    CHECK(run_mistaken(folder, "compare tiny tiny --data text.txt --html page").status == 0);
}

TEST_CASE("program: --threads goes before the number of threads of a configuration and of a run") {
  if (!has_program()) return;
  const TinyRun tiny;
  const TempFolder& folder = tiny.folder;
  const std::string more = "train --resume tiny --train.steps ";
  CHECK(contains(run_mistaken(folder, more + "3").out, " 1 thread,"));
  CHECK(contains(run_mistaken(folder, more + "4 --threads 2").out, " 2 threads"));
  folder.write("c.toml",
               "[train]\nthreads = 3\nsteps = 1\neval_every = 0\nsample_tokens = 0\n"
               "[model]\ndim = 16\nheads = 2\ncontext = 16\n");
  CHECK(contains(run_mistaken(folder, "train c.toml --data text.txt --run a --threads 2").out, " 2 threads"));
  CHECK(contains(run_mistaken(folder, "train c.toml --data text.txt --run b").out, " 3 threads"));
}

TEST_CASE("program: names that are empty are refused wherever a file is named") {
  if (!has_program()) return;
  const TempFolder folder;
  for (const char* line :
       {"train --run r --init-from", "train --run r --config", "train --resume", "train --run",
        "dump --out o --case", "dump --out o --state", "dump --out o --weights", "dump --out o --tokens",
        "dump --out o --config", "models --config", "bench step --config"}) {
    CAPTURE(line);
    check_mistake(run_program({with_empty(line), folder.path()}), 2, "the name is empty");
  }
  CHECK(content_of(folder.path()).empty());
}

TEST_CASE("program: a flag that ends with its equals sign does not take the next word") {
  if (!has_program()) return;
  const TempFolder folder;
  for (const char* line : {"train --run= --data text.txt", "train --run r --data text.txt --data.separator="})
    check_mistake(run_mistaken(folder, line), 2, "= is followed by no value");
  CHECK(content_of(folder.path()).empty());
}

TEST_CASE("program: numbers that an option cannot hold are refused") {
  if (!has_program()) return;
  const TempFolder folder;
  for (const char* line : {"bench ops --seconds nan", "bench step --dropout nan",
                           "bench length --seconds nan", "bench speed --seconds nan", "eval r --seed -1",
                           "generate r --seed -1", "generate r --seed 18446744073709551616",
                           "generate r --top-k -1", "generate r --top-k 99999999999999999999"}) {
    CAPTURE(line);
    CHECK(run_mistaken(folder, line).status == 2);
  }
  for (const char* threads : {"abc", "0", "-1", "1000000", "2x"}) {
    CAPTURE(threads);
    const std::string variable = std::string("EDDY_NUM_THREADS=") + threads;
    check_mistake(run_mistaken(folder, "info", variable), 1,
                  "EDDY_NUM_THREADS: '" + std::string(threads) + "' is not a number of threads (1 to 256");
  }
}

TEST_CASE("program: options that would go unread are refused") {
  if (!has_program()) return;
  const TinyRun tiny;
  const TempFolder& folder = tiny.folder;
  check_mistake(run_mistaken(folder, "models --vocab 7"), 1, "--vocab is for one model");
  check_mistake(run_mistaken(folder, "models --explain lstm --model.layers 257"), 1,
                "shows every layer, and 257 are");
  check_mistake(run_mistaken(folder, "models --svg a.svg"), 1,
                "--svg draws one model (name it by --explain)");
  check_mistake(run_mistaken(folder, "eval tiny --from 8"), 2, "--from requires --score-last");
  check_mistake(run_mistaken(folder, "train --run out --data text.txt --port 8420"), 2,
                "--port requires --watch");
  check_mistake(run_mistaken(folder, "eval tiny --seed 3"), 1, "--seed has no effect");
  CHECK(run_mistaken(folder, "eval tiny --seed 3 --batches 2").status == 0);
  REQUIRE(run_mistaken(folder, kTinyTraining + "--data text.txt --data.order stream --run read").status == 0);
  check_mistake(run_mistaken(folder, "eval read --seed 3 --batches 2"), 1,
                "--seed has no effect when valid is read");
  CHECK(run_mistaken(folder, "eval read --seed 3 --batches 2 --score-last 4").status == 0);
  const Ended copied = run_mistaken(
      folder, kTinyTraining +
                  "--data.name copy --data.noise 2 --data.noise_max 2 --data.symbols 4 --model.model "
                  "regular --model.readout tail --run copied");
  REQUIRE_MESSAGE(copied.status == 0, copied.err);
  check_mistake(run_mistaken(folder, "eval copied --sequence 5000"), 1, "leave out --sequence");
  check_mistake(run_mistaken(folder, "eval copied --data /nonexist"), 1, "leave out --data");
  check_mistake(run_mistaken(folder, "train --resume copied --train.steps 3 --data text.txt"), 1,
                "the task copy generates its examples (leave out --data)");
  CHECK(run_mistaken(folder, "eval copied --seed 3").status == 0);
  check_mistake(run_mistaken(folder, "reproduce --task x"), 1, "--task and no table");
  check_mistake(run_mistaken(folder, "reproduce --set train.steps=1"), 1, "--set and no table");
  check_mistake(run_mistaken(folder, "reproduce staircase/table-1 --windows 3 --dry-run"), 1,
                "--windows is for tables by length");
}

TEST_CASE("program: no control character of a name or a file reaches the terminal") {
  if (!has_program()) return;
  const TinyRun tiny;
  const TempFolder& folder = tiny.folder;
  const std::string evil = "x\x1b[2J", text = evil + ".txt";
  folder.write(text, generate_stories(3, 4000));
  folder.write("name.json", R"({"data":{"name":"\u001b[2J"}})");
  folder.write("path.json", R"({"data":{"path":"no\u001b[2J"}})");
  folder.write("tiny/checkpoints/step-2/digests", read_bytes(folder.path("tiny/checkpoints/step-2/digests")) +
                                                      std::string(32, '0') + "  5  f\x1b[2J\n");
  const auto clean = [&](const Words& words) {
    const Ended ended = run_program({words, folder.path()});
    CHECK_MESSAGE(ended.out.find('\x1b') == std::string::npos, ended.out);
    CHECK_MESSAGE(ended.err.find('\x1b') == std::string::npos, ended.err);
    return ended.status;
  };
  CHECK(clean({"train", "name.json", "--run", "a"}) == 1);
  CHECK(clean({"train", "path.json", "--run", "b"}) == 1);
  CHECK(clean({"check", "tiny"}) == 1);
  CHECK(clean({"train", evil}) == 1);
  CHECK(clean({"train", "--run", "c", evil}) != 0);
  CHECK(clean({evil}) == 2);
  CHECK(clean({"eval", evil}) == 1);
  CHECK(clean({"models", "--config", evil}) != 0);
  CHECK(clean({"dump", "--out", evil}) == 1);
  CHECK(clean(words_of(kTinyTraining, {"--data", text, "--run", evil})) == 0);
  CHECK(clean({"eval", evil}) == 0);
  CHECK(clean({"check", evil}) == 0);
  CHECK(clean({"generate", evil, "--tokens", "3", "--save-session", evil + ".s"}) == 0);
  CHECK(clean({"compare", evil, evil, "--data", text}) == 0);
  CHECK(clean({"tokenizer", "show", evil, "--data", text}) == 0);
}

TEST_CASE("program: OMP_NUM_THREADS bounds the threads where nothing else says their number") {
  if (!has_program()) return;
  const TempFolder folder;
  const auto threads = [&](const std::string& eddy, const std::string& omp) {
    const Ended ended = run_program(
        {{"info"}, folder.path(), "/dev/null", 0, {"EDDY_NUM_THREADS=" + eddy, "OMP_NUM_THREADS=" + omp}});
    const std::size_t at = ended.out.find("threads: ");
    return at == std::string::npos ? -1 : std::atoi(ended.out.c_str() + at + 9);
  };
  const int all = threads("", "");
  CHECK(all >= 1);
  CHECK(threads("", "1") == 1);
  CHECK(threads("", "1,2") == 1);
  CHECK(threads("", "256") == all);
  CHECK(threads("", "none") == all);
  CHECK(threads("3", "1") == 3);
}

TEST_CASE("program: an error names the file, the flag or the key that was wrong") {
  if (!has_program()) return;
  const TinyRun tiny;
  const TempFolder& folder = tiny.folder;
  folder.write("other.txt", "~~~");
  check_mistake(run_mistaken(folder, "compare tiny tiny --data other.txt"), 1, "compare: other.txt: ");
  check_mistake(run_mistaken(folder, "eval tiny --score-last 100"), 1,
                "--score-last 100 of rows of 16 tokens (at most 16");
  check_mistake(run_mistaken(folder, "eval tiny --data nowhere"), 1, "'nowhere' (check the path");
  check_mistake(run_mistaken(folder, "tokenizer show text.txt"), 1,
                "text.txt is no vocabulary (a .model file");
  check_mistake(run_mistaken(folder, "check tiny/checkpoints/step-2/model.safetensors"), 1,
                "is a file of a checkpoint (eddy check tiny/checkpoints/step-2 verifies all of them)");
  check_mistake(run_mistaken(folder, "check tiny/checkpoints/latest"), 1,
                "is a file of a run (eddy check tiny verifies all of them)");
  check_mistake(run_mistaken(folder, "check tiny/config.json"), 1,
                "is a file of a run (eddy check tiny verifies");
  check_mistake(run_mistaken(folder, "draw curves =tiny"), 1, "is no NAME=FOLDER");
  check_mistake(run_mistaken(folder, "draw curves mine="), 1, "is no NAME=FOLDER");
  check_mistake(run_mistaken(folder, "export tiny --out text.txt/model"), 1,
                "text.txt cannot be made: it is there");
  check_mistake(run_mistaken(folder, "help"), 2, "unknown command 'help' (see eddy --help)");
  check_mistake(run_mistaken(folder, "train --resume tiny --model staircase"), 1,
                "the model is staircase, and --resume goes on with that of the run, unit_forget");
  check_mistake(
      run_mistaken(folder, "train --run a --data text.txt --train.steps 1 --train.warmup 0 --data.split 1"),
      1, "data.split is 1, which leaves nothing to evaluate on");
  CHECK(contains(run_mistaken(folder, "train --train.steps 5000 --print-config").out,
                 "# Nothing differs from the defaults."));
  CHECK(contains(run_mistaken(folder, "train --resume tiny --train.steps 1").out,
                 "--resume tiny --train.steps 4"));
}

TEST_CASE("program: behind two dashes a path may begin with one") {
  if (!has_program()) return;
  const TinyRun tiny;
  const TempFolder& folder = tiny.folder;
  fs::rename(folder.path("tiny"), folder.path("-r"));
  folder.write("-c.toml", "[model]\ndim = 16\nheads = 2\n");
  for (const char* const line :
       {"eval --batch 4 -- -r", "generate --tokens 2 -- -r", "check -- -r", "report -- -r",
        "compare --data text.txt -- -r -r", "inspect --text text.txt --out page.html -- -r",
        "tokenizer show -- -r", "export --out out -- -r", "train --print-config -- -c.toml", "chat -- -r",
        "draw state --out state.svg -- -r"}) {
    const Ended ended = run_mistaken(folder, line);
    CHECK_MESSAGE(!contains(ended.err, "unknown flag"), line, ": ", ended.err);
    CHECK_MESSAGE(!contains(ended.err, "unexpected argument"), line, ": ", ended.err);
    if (!std::string_view(line).starts_with("draw")) CHECK_MESSAGE(ended.status == 0, line, ": ", ended.err);
  }
  check_mistake(run_mistaken(folder, "eval -- -r -s"), 2, "unknown flag '-s'");
  check_mistake(run_mistaken(folder, "models -- here"), 2, "unexpected argument 'here'");
}

TEST_CASE("program: a report says which lines of a run's records it leaves out") {
  if (!has_program()) return;
  const TinyRun tiny;
  const TempFolder& folder = tiny.folder;
  folder.write("tiny/metrics.jsonl", read_bytes(folder.path("tiny/metrics.jsonl")) + "nonsense\n");
  const Ended ended = run_mistaken(folder, "report tiny");
  CHECK(ended.status == 0);
  CHECK_MESSAGE(contains(ended.err, "tiny/metrics.jsonl has lines that are no records, 1 of them"),
                ended.err);
}

TEST_CASE("program: lines of a file from Windows are commands and turns of a chat") {
  if (!has_program()) return;
  const TinyRun tiny;
  const TempFolder& folder = tiny.folder;
  const std::string input = folder.write("lines", "the\r\n/state\r\n/save no/such.session\r\n");
  const Ended ended = run_program({words_of("chat tiny --tokens 2"), folder.path(), input});
  CHECK_MESSAGE(contains(ended.out, "tokens seen: "), ended.out);
  CHECK_MESSAGE(!contains(ended.err, "U+000D"), ended.err);
  CHECK_MESSAGE(contains(ended.err, "no is not a folder (make it first)"), ended.err);
}

TEST_CASE("program: two sources of data are refused before a folder is made") {
  if (!has_program()) return;
  const TinyRun tiny;
  const TempFolder& folder = tiny.folder;
  folder.write("parity.toml", "[data]\nname = \"parity\"\n");
  folder.write("both.toml", "[data]\nname = \"parity\"\npath = \"text.txt\"\n");
  const std::string training = kTinyTraining + "--run out ", both = "and --data is text.txt";
  check_mistake(run_mistaken(folder, training + "--data.name parity --data text.txt"), 1, both);
  check_mistake(run_mistaken(folder, training + "parity.toml --data text.txt"), 1, both);
  check_mistake(run_mistaken(folder, training + "both.toml"), 1, "and data.path is text.txt");
  check_mistake(run_mistaken(folder, training + "--data.name parity --data.path text.txt"), 1,
                "leave out data.path");
  check_mistake(run_mistaken(folder, training + "--data text.txt --data.path text.txt"), 1, "are one key");
  check_mistake(run_mistaken(folder, "plan --seconds 0 --model.dim 16 --data.name parity --data text.txt"), 1,
                both);
  REQUIRE(run_mistaken(folder, kTinyTraining + "--data.name parity --run bits").status == 0);
  check_mistake(run_mistaken(folder, training + "--init-from bits --data text.txt"), 1, both);
  check_mistake(run_mistaken(folder, "train --resume bits --train.steps 3 --data text.txt"), 1,
                "leave out --data");
  check_mistake(run_mistaken(folder, "train --resume tiny --train.steps 3 --data.name parity"), 1,
                "the task is parity, and --resume goes on with that of the run, text");
  CHECK(!fs::exists(folder.path("out")));
}

TEST_CASE("program: errors name the flags of a command in place of keys") {
  if (!has_program()) return;
  const TinyRun tiny;
  const TempFolder& folder = tiny.folder;
  const Ended eval = run_mistaken(folder, "eval tiny --sequence 100000");
  check_mistake(eval, 1, "a shorter --sequence, or --split all");
  CHECK_MESSAGE(!contains(eval.err, "train."), eval.err);
  CHECK(run_mistaken(folder, "eval tiny --sequence 3000 --split all").status == 0);
  check_mistake(run_mistaken(folder, "bench step --sequence 1000 --model.positions true --steps 1 --batch 1"),
                1, "or lower --sequence)");
  REQUIRE(run_mistaken(folder, kTinyTraining + "--data.name parity --run bits").status == 0);
  check_mistake(run_mistaken(folder, "eval bits --batch 1000000000 --sequence 1000000000"), 1,
                "(a smaller --batch or --sequence; --memory-check warn overrules this)");
  check_mistake(run_mistaken(folder, "draw state bits --rows 100000 --length 1000000"), 1,
                "(a smaller --rows or --length; --memory-check warn overrules this)");
}

TEST_CASE("program: what was meant is said where a word has no place") {
  if (!has_program()) return;
  const TinyRun tiny;
  const TempFolder& folder = tiny.folder;
  check_mistake(run_mistaken(folder, "chat tiny --session s"), 2,
                "unknown flag '--session' (nearest: --load)");
  check_mistake(run_mistaken(folder, "report tiny --out page.html"), 2, "(nearest: --html)");
  check_mistake(run_mistaken(folder, "tokenizer show tiny --save-session s"), 2,
                "(generate takes it; see eddy tokenizer show --help)");
  check_mistake(run_mistaken(folder, "check tiny --frobnicate"), 2, "'--frobnicate' (see eddy check --help)");
  check_mistake(run_mistaken(folder, "generate tiny once"), 2,
                "unexpected argument 'once' (--prompt gives a text; see");
  check_mistake(run_mistaken(folder, "eval tiny text.txt"), 2,
                "unexpected argument 'text.txt' (--data gives data; see");
  check_mistake(run_mistaken(folder, "train tiny --run out"), 1, "that of this run is tiny/config.json");
  check_mistake(run_mistaken(folder, "draw curves tiny --out curves.png"), 1, "the picture is SVG");
  check_mistake(run_program({with_empty("generate"), folder.path()}), 2, "the name is empty");
  check_mistake(run_mistaken(folder, "inspect tiny --text once"), 1,
                "printf %s once | eddy inspect tiny --text -");
  const std::string words = folder.write("words", "the man and the old man");
  const Ended read = run_program({words_of("inspect tiny --text - --replace-unknown"), folder.path(), words});
  CHECK_MESSAGE(contains(read.out, "tokens: 23\n"), read.out, read.err);
  const std::string none = folder.write("none", "");
  check_mistake(run_program({words_of("inspect tiny --text -"), folder.path(), none}), 1, "at least 2");
}

TEST_CASE("program: runs are known by their folders, whatever is in their names") {
  if (!has_program()) return;
  const TinyRun tiny;
  const TempFolder& folder = tiny.folder;
  const Ended once = run_mistaken(folder, "report tiny ./tiny tiny/");
  CHECK_MESSAGE(contains(once.out, "tiny "), once.out);
  CHECK_MESSAGE(!contains(once.out, "./tiny"), once.out);
  CHECK_MESSAGE(!contains(once.out, "tiny/"), once.out);
  fs::rename(folder.path("tiny"), folder.path("rate=0.1"));
  for (const char* const line : {"draw curves rate=0.1", "draw curves mine=rate=0.1"})
    check_mistake(run_mistaken(folder, line), 1, "draw: no evaluation of rate=0.1 has \"loss\"");
}

TEST_CASE("program: a key is explained by its name") {
  if (!has_program()) return;
  const TempFolder folder;
  for (const char* const key : {"train.batch", "batch"}) {
    const Ended keys = run_mistaken(folder, std::string("keys ") + key);
    CHECK_MESSAGE(contains(keys.out, "\ntrain.batch "), keys.out);
    CHECK_MESSAGE(!contains(keys.out, "train.steps"), keys.out);
  }
  check_mistake(run_mistaken(folder, "keys lr"), 1, "nearest key: train.learning_rate;");
  check_mistake(run_mistaken(folder, "keys unit_forgot"), 1, "nearest: unit_forget;");
  check_mistake(run_mistaken(folder, "sample tiny"), 2, "unknown command 'sample' (nearest: generate;");
}

TEST_CASE("program: a configuration without a key says so") {
  if (!has_program()) return;
  const TempFolder folder;
  folder.write("none.toml", "");
  CHECK(contains(run_mistaken(folder, "train none.toml --print-config").err, "none.toml sets no key: "));
}
