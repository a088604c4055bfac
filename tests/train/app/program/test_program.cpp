// The program from its command line: what it does, what it refuses and how, and what it leaves on the disk.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <regex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ops/backends.h"
#include "ops/cpu/isa.h"
#include "tensor/files/safetensors.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/processes.h"
#include "tests/support/program.h"
#include "tests/support/tiny_run.h"
#include "tests/train/app/program/trained_runs.h"
#include "train/record/metrics.h"
#include "train/run/checkpoint.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;
using namespace eddy::test::program;
namespace fs = std::filesystem;

}  // namespace

TEST_CASE("program: version and help go to standard output and are no errors") {
  if (!has_program()) return;
  const TempFolder folder;
  const Ended version = run(folder, {"--version"});
  CHECK(version.status == 0);
  static const std::regex number(R"([0-9]+\.[0-9]+\.[0-9]+\n)");  // alone, for scripts
  CHECK(std::regex_match(version.out, number));
  CHECK(version.err.empty());

  const Ended help = run(folder, {"--help"});
  CHECK(help.status == 0);
  CHECK(help.err.empty());
  const std::vector<std::pair<std::string, Words>> commands{
      {"train",
       {"--run", "--resume", "--init-from", "--model.dim", "--train.steps", "--data.path", "--dry-run",
        "--print-config"}},
      {"plan", {"--seconds", "--preset", "--data", "--model.dim"}},
      {"reproduce", {"--rows", "--scale", "--task", "--set", "--runs", "--dry-run"}},
      {"eval", {"--data", "--split", "--batches"}},
      {"compare", {"--data", "--top", "--clear-state", "--html"}},
      {"report", {"RUN", "--html", "--csv"}},
      {"inspect", {"RUN", "--text", "--out", "--attention", "--replace-unknown"}},
      {"watch", {"RUN", "--address", "--port"}},
      {"draw", {"curves", "state"}},
      {"generate", {"--prompt", "--tokens", "--temperature", "--top-k", "--seed"}},
      {"chat", {"RUN", "--tokens"}},
      {"check", {"--all"}},
      {"tokenizer", {"train", "show"}},
      {"models", {"--config", "--vocab", "--explain", "--svg"}},
      {"keys", {"MODEL"}},
      {"tasks", {"--help"}},
      {"info", {"--measure"}},
      {"bench", {"ops", "step", "generate", "length"}},
      {"dump", {"--case", "--weights", "--out", "--grads", "--capture"}},
      {"export", {"RUN", "--out", "--format"}},
      {"import", {"--weights", "--map", "--run"}},
      {"learn", {"--folder", "--exercises"}},
      {"completion", {"bash", "zsh"}}};
  for (const auto& [command, options] : commands) {
    CAPTURE(command);
    CHECK(contains(help.out, "\n  " + command + " "));
    const Ended one = run(folder, {command, "--help"});
    CHECK(one.status == 0);
    CHECK(one.err.empty());
    for (const std::string& option : options) CHECK_MESSAGE(contains(one.out, option), option);
  }
}

TEST_CASE("program: a command line it does not take is status 2 and names the nearest") {
  if (!has_program()) return;
  const TempFolder folder;
  check_refused(run(folder, {"trian"}), 2, "unknown command 'trian' (nearest: train");
  check_refused(run(folder, {"train", "--run", "x", "--train.step", "3"}), 2, "(nearest: --train.steps)");
  check_refused(run(folder, {"train", "--run", "x", "--minutes=3"}), 2, "(nearest: --train.minutes)");
  check_refused(run(folder, {"generate", "x", "--promt", "a"}), 2, "'--promt' (nearest: --prompt)");
  check_refused(run(folder, {"train", "--run", "x", "--steps", "3"}), 2, "(nearest: --train.steps)");
  check_refused(run(folder, {"train", "--run", "x", "--lr", "3"}), 2, "(nearest: --train.learning_rate)");
  check_refused(run(folder, {"generate", "x", "--max-new-tokens", "9"}), 2, "(nearest: --tokens)");
  check_refused(run(folder, {"train", "--run", "x", "--frobnicate"}), 2, "(see eddy train --help)");
  check_refused(run(folder, words_of("train --run x --train.steps 3 --train.steps 4")), 2, "train.steps");
  check_refused(run(folder, {"eval"}), 2, "RUN is required");
  check_refused(run(folder, {"eval", "x", "--split", "some"}), 2, "--split");
  check_refused(run(folder, {"info", "--threads", "0"}), 2, "--threads");
  const Ended nothing = run(folder, {});
  CHECK(nothing.status == 2);
  CHECK(contains(nothing.err, "train"));
  CHECK(content_of(folder.path()).empty());
}

TEST_CASE("program: a flag without its value, and a hidden one given twice, are named") {
  if (!has_program()) return;
  const TempFolder folder;
  const std::string wanted = "--train.tensorboard needs a value, true|false: Whether";
  check_refused(run(folder, words_of("train --train.tensorboard --data a.txt --run x")), 2, wanted);
  check_refused(run(folder, words_of("train --data a.txt --run x --train.tensorboard")), 2, wanted);
  check_refused(run(folder, words_of("train --run x --train.steps --dta a.txt")), 2,
                "--train.steps needs a value, INT");
  check_refused(run(folder, words_of("generate x --prompt --tokens 3")), 2, "is given by --prompt=--tokens");
  check_refused(run(folder, words_of("train --run x --train.tensorboard true --train.tensorboard false")), 2,
                "--train.tensorboard is given more than once");
  CHECK(content_of(folder.path()).empty());
}

TEST_CASE("program: a configuration that is wrong is refused with its place before a folder is made") {
  if (!has_program()) return;
  const TempFolder folder;
  folder.write("text.txt", generate_stories(3, 4000));
  const auto refused = [&](const std::string& config, const Words& flags, const std::string& what) {
    folder.write("run.toml", config);
    check_refused(run(folder, Words{"train", "run.toml", "--run", "out", "--data", "text.txt"} + flags), 1,
                  what);
  };
  refused("[model]\nlayesr = 2\n", {}, "run.toml:2:1: unknown key \"layesr\" in [model] (nearest: layers)");
  refused("[modle]\nlayers = 2\n", {}, "unknown section \"modle\" (nearest: model");
  refused("[train]\nlayers = 2\n", {}, "it belongs to [model]");
  refused("[model]\ndim = 16\nheads = 3\n", {}, "heads must divide model.dim: dim 16, heads 3");
  refused("[model]\ndim = \n", {}, "run.toml:2");
  refused("", {"--train.steps", "-3"}, "train.steps is -3");
  refused("", {"--model.model", "unit_forgot"}, "unit_forget");
  refused("", {"--train.device", "abacus"}, "train.device");
  refused("[model]\ncontext = 100000\n", {}, "too few tokens");
  check_refused(run(folder, {"train", "none.toml", "--run", "out"}), 1, "none.toml");
  check_refused(run(folder, {"train", "--data", "text.txt"}), 1, "--run DIR");
  CHECK(!fs::exists(folder.path("out")));
}

TEST_CASE("program: a text that is missing or empty or no text is refused before a folder is made") {
  if (!has_program()) return;
  const TempFolder folder;
  folder.write("empty.txt", "");
  folder.write("binary.txt", std::string("ab\xff\xfe", 4));
  fs::create_directory(folder.path("texts"));
  const auto refused = [&](const std::string& data, const std::string& what) {
    check_refused(run(folder, {"train", "--run", "out", "--data", data}), 1, what);
  };
  refused("none.txt", "no such file or folder: 'none.txt'");
  refused("tinyshakespear", "(the data set of a like name is tinyshakespeare; eddy tasks lists them)");
  refused("empty.txt", "the file 'empty.txt' is empty");
  refused("binary.txt", "not UTF-8: byte 0xff at offset 2");
  refused("texts", "no text in the folder 'texts'");
  CHECK(!fs::exists(folder.path("out")));
}

TEST_CASE("program: the commands that it suggests begin with its own name") {
  if (!has_program()) return;
  const TempFolder folder;
  const std::string text = folder.write("text.txt", generate_stories(3, 4000));
  Start start{tiny_train(text) + Words{"--run", "out"}, folder.path()};
  start.name = "somewhere/my_eddy";
  const Ended trained = run_program(start);
  CHECK_MESSAGE(trained.status == 0, trained.err);
  CHECK_MESSAGE(contains(trained.out, "to train on: my_eddy train --resume out "), trained.out);
}

TEST_CASE("program: a run's folder that exists is refused and stays as it is") {
  if (!has_program()) return;
  const TempFolder folder;
  const std::string text = folder.write("text.txt", generate_stories(3, 4000));
  folder.write("out/notes.txt", "mine");
  folder.write("file", "mine too");
  const auto before = content_of(folder.path());
  check_refused(run(folder, tiny_train(text) + Words{"--run", "out"}), 1,
                "out exists and holds no checkpoint to continue from (choose another folder)");
  check_refused(run(folder, tiny_train(text) + Words{"--run", "file"}), 1, "file exists");
  check_refused(run(folder, tiny_train(text) + Words{"--run", "file/inside"}), 1, "file/inside");
  check_refused(run(folder, {"train", "--resume", "out"}), 1, "holds no checkpoint");
  check_refused(run(folder, {"train", "--resume", "nowhere"}), 1, "nowhere is not a folder");
  folder.write("runs/a/checkpoints/step-1/state.json", "{}");
  const auto with_runs = content_of(folder.path());
  check_refused(run(folder, {"generate", "runs/b"}), 1, "a checkpoint in it; runs has the runs a)");
  check_refused(run(folder, {"generate", "runs"}), 1, "holds checkpoints/step-N; runs has the runs a)");
  CHECK(content_of(folder.path()) == with_runs);
  fs::remove_all(folder.path("runs"));
  CHECK(content_of(folder.path()) == before);
}

TEST_CASE("program: a run trains and is evaluated and writes text and goes on to the bit") {
  if (!has_program()) return;
  const Trained& t = trained();
  CHECK(t.unit_end.err.empty());
  CHECK(contains(t.unit_end.out, "report.html"));
  for (const char* name :
       {"config.json", "tokenizer.json", "metrics.jsonl", "report.html", "checkpoints/latest"})
    CHECK_MESSAGE(fs::exists(fs::path(t.unit) / name), name);
  const std::string report = read_bytes(fs::path(t.unit) / "report.html");
  CHECK(contains(report, "<span class=\"whole\">--train.steps</span> 4"));

  const TempFolder folder;
  const std::string run_dir = t.copy_to(folder);
  const Ended eval = run(folder, {"eval", run_dir});
  CHECK(eval.status == 0);
  CHECK(eval.out.starts_with("step: 4\n"));
  CHECK(contains(eval.out, "nats per token"));
  CHECK(run(folder, {"eval", run_dir, "--split", "all", "--batches", "3", "--batch", "2"}).status == 0);
  const Ended sampled = run(folder, {"eval", run_dir, "--sampled", "3", "--batch", "2"});
  CHECK(contains(sampled.out, "loss of 3 random batches of 2: "));
  CHECK(contains(sampled.out, ", standard error "));
  const auto loss_line = [](const std::string& out) { return out.substr(out.find("loss:"), 20); };
  CHECK(loss_line(run(folder, {"eval", run_dir}).out) == loss_line(eval.out));

  const Ended written =
      run(folder, {"generate", run_dir, "--prompt", "Once", "--tokens", "40", "--seed", "5"});
  CHECK(written.status == 0);
  CHECK(written.out.size() >= 40);
  CHECK(contains(written.err, "generated: 40 tokens"));
  CHECK(contains(written.err, "prompt: 4 tokens"));
  CHECK(run_program({{"generate", run_dir, "--prompt", "-", "--tokens", "40", "--seed", "5"},
                     folder.path(),
                     folder.write("prompt.txt", "Once")})
            .out == written.out);
  CHECK(run(folder, {"generate", run_dir, "--prompt", "Once", "--tokens", "40", "--seed", "6"}).out !=
        written.out);

  const Ended resumed = run(folder, {"train", "--resume", run_dir, "--train.steps", "6"});
  CHECK_MESSAGE(resumed.status == 0, resumed.err);
  CHECK(contains(resumed.out, "resumed at step 4"));
  const std::string unbroken = folder.path("unbroken");
  CHECK(run(folder, tiny_train(t.text, 6) + Words{"--run", unbroken}).status == 0);
  for (const char* name : {"model.safetensors", "optimizer.safetensors"})
    CHECK_MESSAGE(
        read_bytes(fs::path(latest_of(run_dir)) / name) == read_bytes(fs::path(latest_of(unbroken)) / name),
        name);
}

TEST_CASE("program: a run on documents is measured by position and with the state cleared") {
  if (!has_program()) return;
  const TempFolder folder;
  for (int i = 0; i < 5; ++i)
    folder.write("docs/" + std::to_string(i) + ".txt", generate_stories(static_cast<std::uint64_t>(i), 300));
  const Ended ended = run(folder, tiny_train("docs") + Words{"--run", "out", "--data.order", "documents",
                                                             "--data.tokenizer", "byte260"});
  CHECK_MESSAGE(ended.status == 0, ended.err);
  const Ended eval = run(folder, {"eval", "out", "--by-position", "page.html", "--clear-state"});
  CHECK_MESSAGE(eval.status == 0, eval.err);
  for (const char* part :
       {"bits per byte: ", "bigrams: ", "baselines: fitted on all", "epochs: ", "by position: page.html"})
    CHECK_MESSAGE(contains(eval.out, part), part);
  CHECK(contains(read_text_file(folder.path("page.html")), "loss by position"));
  CHECK(contains(eval.out, "state: cleared at every segment\n"));
  CHECK(contains(run(folder, {"eval", "out", "--batches", "1"}).out, "state: none to carry\n"));
  check_refused(run(folder, {"eval", "out", "--split", "test"}), 1, "no split");
  check_refused(run(folder, {"eval", "out", "--sampled", "2"}), 1, "has no random batches");
  check_refused(run(folder, {"eval", trained().unit, "--clear-state"}), 1, "carries no state");
}

TEST_CASE("program: a prompt or a text outside the vocabulary of a run is refused with the character") {
  if (!has_program()) return;
  const Trained& t = trained();
  const TempFolder folder;
  const std::string other = folder.write("other.txt", std::string(2000, '~'));
  const Ended refused = run(folder, {"generate", t.unit, "--prompt", "a~b"});
  check_refused(refused, 1, "unknown character '~' (U+007E) at byte offset 1");
  CHECK(contains(refused.err, "--replace-unknown"));
  check_refused(run(folder, {"eval", t.unit, "--data", other, "--split", "all"}), 1, "'~'");
  const Words bytes{"--data.tokenizer", "byte"};
  check_refused(run(folder, tiny_train(t.text) + bytes + Words{"--run", "out", "--init-from", t.unit}), 1,
                "data.tokenizer is byte and that of " + latest_of(t.unit) + " is char");
  check_refused(run(folder, Words{"train", "--resume", t.unit} + bytes), 1, "data.tokenizer is byte");
  check_refused(run(folder, {"generate", "nowhere"}), 1, "nowhere is not a folder");
  CHECK(!fs::exists(folder.path("out")));
}

TEST_CASE("program: a training and a file that was asked for do not need the output") {
  if (!has_program()) return;
  const Trained& t = trained();
  const TempFolder folder;
  const Words training = tiny_train(t.text) + Words{"--run"};
  const Ended full = run_program({training + Words{"full"}, folder.path(), "/dev/null", 0, {}, "/dev/full"});
  CHECK_MESSAGE(full.status == 0, full.err);
  CHECK(contains(full.err, "warning: standard output is not complete"));
  Program left({training + Words{"left"}, folder.path()});
  left.close_output();
  CHECK(left.finish().status == 0);
  for (const char* run : {"full", "left"})
    CHECK(read_bytes(latest_of(folder.path(run)) + "/model.safetensors") ==
          read_bytes(latest_of(t.unit) + "/model.safetensors"));

  const Words bench = words_of(
      "bench length --models unit_forget --dim 16 --shortest 16 --longest 16 --seconds 0.001 --json");
  Program listing({bench + Words{"numbers"}, folder.path()});
  listing.close_output();
  CHECK(listing.finish().status == 0);
  CHECK(fs::file_size(folder.path("numbers")) > 0);
  check_refused(run_program({bench + Words{"numbers"}, folder.path(), "/dev/null", 0, {}, "/dev/full"}), 1,
                "(the file that was asked for is written)");
}

TEST_CASE("program: a file that cannot be written is refused before the work begins") {
  if (!has_program()) return;
  const Trained& t = trained();
  const TempFolder folder;
  folder.write("text.txt", generate_stories(3, 4000));
  const std::vector<Words> commands{words_of("bench length --json"),
                                    words_of("bench generate --html"),
                                    words_of("bench ops --json"),
                                    {"eval", t.unit, "--by-position"},
                                    {"compare", t.unit, t.regular, "--data", "text.txt", "--html"},
                                    {"generate", t.unit, "--save-session"},
                                    {"dump", "--case", "nowhere", "--out"}};
  for (const Words& command : commands) {
    CAPTURE(command.front() + " " + command.back());
    check_refused(run(folder, command + Words{"nowhere/file"}), 1,
                  "cannot write nowhere/file: nowhere is not a folder");
    check_refused(run(folder, command + Words{folder.path()}), 1, "it is a folder");
    check_refused(run(folder, command + Words{""}), 2, "the name is empty");
  }
  CHECK(content_of(folder.path()).size() == 1);
}

TEST_CASE("program: a precision other than that of the training is said") {
  if (!has_program()) return;
  const TempFolder folder;
  const std::string text = folder.write("text.txt", generate_stories(3, 4000));
  const Ended made = run(folder, tiny_train(text) + Words{"--run", "a", "--train.precision", "bf16"});
  REQUIRE_MESSAGE(made.status == 0, made.err);
  CHECK(contains(made.out, ", bf16 on cpu, 1 thread, a"));
  CHECK(contains(run(folder, {"eval", "a"}).out, "precision: f32, trained in bf16\n"));
  CHECK(contains(run(folder, {"eval", "a", "--precision", "bf16"}).out, "precision: bf16\n"));
  CHECK(contains(run(folder, {"generate", "a", "--tokens", "3"}).err, "f32, trained in bf16\n"));
  const Ended compared = run(folder, {"compare", "a", "a", "--data", "text.txt", "--top", "1"});
  CHECK_MESSAGE(contains(compared.out, "f32, trained in bf16"), compared.err);
}

TEST_CASE("program: text appears while it is generated and a reader that leaves ends the program") {
  if (!has_program()) return;
  const Trained& t = trained();
  Program endless({{"generate", t.unit, "--tokens", "1000000000000"}, t.folder.path()});
  REQUIRE(endless.read_output(200));
  endless.close_output();
  const Ended ended = endless.finish();
  CHECK_MESSAGE(ended.status == 0, ended.err);
  CHECK(ended.err.empty());
}

TEST_CASE("program: the regular model writes until its context is full and says so") {
  if (!has_program()) return;
  const Trained& t = trained();
  const Ended full = run(t.folder, {"generate", t.regular, "--tokens", "100"});
  CHECK(full.status == 0);
  CHECK(full.out.size() == 16);
  CHECK(contains(full.err, "stopped: the context of 16 tokens is full after 16 of 100 tokens"));
  const Ended room = run(t.folder, {"generate", t.regular, "--tokens", "10"});
  CHECK(room.out == full.out.substr(0, 10));
  CHECK(!contains(room.err, "stopped"));
  check_refused(run(t.folder, {"generate", t.regular, "--prompt", std::string(17, 'a')}), 1,
                "a prompt of 17 tokens, and the model takes 16");
}

TEST_CASE("program: an interrupt saves the run and is status 130") {
  if (!has_program()) return;
  const Trained& t = trained();
  const TempFolder folder;
  const std::string run_dir = t.copy_to(folder);
  Program training({{"train", "--resume", run_dir, "--train.steps", "1000000000"}, folder.path()});
  REQUIRE(wait_until([&] { return read_metrics(run_dir + "/metrics.jsonl").steps.size() > 6; }));
  training.signal(SIGINT);
  const Ended ended = training.finish();
  CHECK_MESSAGE(ended.status == 130, ended.err);
  CHECK(contains(ended.out, "go on with --resume " + run_dir));
  CHECK(fs::exists(run_dir + "/report.html"));
  const std::int64_t step = load_run(run_dir).step;
  CHECK(step > 6);
  const Ended more = run(folder, {"train", "--resume", run_dir, "--train.steps", std::to_string(step + 1)});
  CHECK_MESSAGE(more.status == 0, more.err);
  CHECK(load_run(run_dir).step == step + 1);
}

TEST_CASE("program: a checkpoint that cannot be written whole is an error and the one before it stays") {
  if (!has_program()) return;
  const Trained& t = trained();
  const TempFolder folder;
  const std::string run_dir = t.copy_to(folder), checkpoint = latest_of(run_dir);
  const auto before = content_of(run_dir + "/checkpoints");
  const std::size_t model_bytes = fs::file_size(checkpoint + "/model.safetensors");
  REQUIRE(model_bytes + 1000 < fs::file_size(checkpoint + "/optimizer.safetensors"));
  REQUIRE(fs::file_size(run_dir + "/metrics.jsonl") + 4096 < model_bytes);
  for (const std::size_t limit : {model_bytes + 1000, model_bytes - 1}) {
    CAPTURE(limit);
    const Ended ended = run_program(
        {{"train", "--resume", run_dir, "--train.steps", "6"}, folder.path(), "/dev/null", limit});
    const char* const file = limit > model_bytes ? "optimizer.safetensors" : "model.safetensors";
    CHECK(ended.status == 1);
    CHECK_MESSAGE(contains(ended.err, file), ended.err);
    CHECK_MESSAGE(contains(ended.err, "File too large"), ended.err);
    CHECK(content_of(run_dir + "/checkpoints") == before);
  }
  CHECK(run(folder, {"eval", run_dir}).status == 0);
  CHECK(run(folder, {"train", "--resume", run_dir, "--train.steps", "6"}).status == 0);
  CHECK(load_run(run_dir).step == 6);
}

TEST_CASE("program: a full standard output is an error") {
  if (!has_program() || !fs::exists("/dev/full")) return;
  const TempFolder folder;
  const Ended ended = run_program({{"models"}, folder.path(), "/dev/null", 0, {}, "/dev/full"});
  check_refused(ended, 1, "cannot write to standard output: No space left on device");
}

TEST_CASE("program: dump writes what it computed and refuses a file that is cut") {
  if (!has_program()) return;
  const TempFolder folder;
  fs::copy(EDDY_SOURCE_DIR "/tests/golden/recurrent_transformer/unit_forget", folder.path("case"));
  const std::string file = folder.path("case/case.safetensors"), whole = read_bytes(file);
  const Ended good = run(folder, {"dump", "--case", "case", "--out", "good.safetensors", "--grads"});
  CHECK_MESSAGE(good.status == 0, good.err);
  CHECK(load_safetensors(folder.path("good.safetensors")).contains("logits"));
  for (const std::size_t length :
       {std::size_t{0}, std::size_t{7}, std::size_t{100}, whole.size() / 2, whole.size() - 1}) {
    CAPTURE(length);
    folder.write("case/case.safetensors", whole.substr(0, length));
    check_refused(run(folder, {"dump", "--case", "case", "--out", "bad.safetensors"}), 1,
                  "case/case.safetensors");
  }
  check_refused(run(folder, {"dump", "--case", "nowhere", "--out", "bad.safetensors"}), 1,
                "nowhere/case.safetensors");
  CHECK(!fs::exists(folder.path("bad.safetensors")));
}

TEST_CASE("program: a damaged checkpoint is an error for every command that reads one") {
  if (!has_program()) return;
  const Trained& t = trained();
  const TempFolder folder;
  const std::string run_dir = t.copy_to(folder), model = latest_of(run_dir) + "/model.safetensors";
  const std::string whole = read_bytes(model);
  folder.write("unit/checkpoints/step-4/model.safetensors", whole.substr(0, whole.size() - 5));
  const auto before = content_of(run_dir);
  check_refused(run(folder, {"eval", run_dir}), 1, "model.safetensors");
  check_refused(run(folder, {"generate", run_dir}), 1, "model.safetensors");
  check_refused(run(folder, {"train", "--resume", run_dir, "--train.steps", "6"}), 1, "model.safetensors");
  CHECK(content_of(run_dir) == before);
}

TEST_CASE("program: info and models tell what this build is") {
  if (!has_program()) return;
  const TempFolder folder;
  const Ended info = run(folder, {"info"});
  CHECK(info.status == 0);
  for (const char* word : {"compiler: ", "processor: ", "kernels: ", "threads: 1\n",
                           "blas: ", "line editing: ", "ranks: ", "libraries: "})
    CHECK_MESSAGE(contains(info.out, word), word);
  CHECK(contains(info.out, "examples: " EDDY_SOURCE_DIR "/examples\n"));
  CHECK(contains(info.out, "cuda allocator: ") == gpu_memory().has_value());
  const std::string lowest = isa_name(isa_levels().front());
  const Ended base = run_program({{"info"}, folder.path(), "/dev/null", 0, {"EDDY_CPU_LEVEL=" + lowest}});
  CHECK(contains(base.out, "kernels: " + lowest));
  // Below AVX-512 OpenBLAS computes without it, whatever core it would choose or was told.
  if (contains(info.out, "DYNAMIC_ARCH") && best_isa_level() >= IsaLevel::avx2)
    for (const char* level : {"EDDY_CPU_LEVEL=avx2", "EDDY_CPU_LEVEL=baseline"}) {
      const std::string lower =
          run_program({{"info"}, folder.path(), "/dev/null", 0, {level, "OPENBLAS_CORETYPE=SkylakeX"}}).out;
      CHECK_MESSAGE((contains(lower, "core Haswell") || contains(lower, "core Zen")), lower);
    }
  // An OpenBLAS with kernels for several processors; AVX2 is not what one with AVX-512 gets.
  if (contains(info.out, "DYNAMIC_ARCH") && contains(info.out, "best here: avx512")) {
    const auto info_with = [&](const char* core) {
      return run_program({{"info"}, folder.path(), "/dev/null", 0, {core}}).out;
    };
    CHECK(!contains(info_with("OPENBLAS_CORETYPE=Haswell"), "core Haswell"));
    CHECK(contains(info_with("OPENBLAS_CORETYPE=Zen"), "core Zen (OPENBLAS_CORETYPE=Zen keeps products off"));
  }
  check_refused(run_program({{"info"}, folder.path(), "/dev/null", 0, {"EDDY_CPU_LEVEL=mmx"}}), 1,
                "EDDY_CPU_LEVEL: unknown level 'mmx' (one of " + lowest);
  const std::string other = lowest == "neon" ? "avx512" : "neon_bf16";
  check_refused(run_program({{"info"}, folder.path(), "/dev/null", 0, {"EDDY_CPU_LEVEL=" + other}}), 1,
                "cpu level: " + other + " is one of another architecture (one of " + lowest);
  check_refused(
      run_program({{"info"}, folder.path(), "/dev/null", 0, {"EDDY_KERNELS=plain,attention=fast"}}), 1,
      "EDDY_KERNELS: set_gpu_kernels: unknown choice 'attention=fast' (a list with commas of auto, plain, "
      "attention=auto|plain|mma|wgmma, short_attention=auto|plain|mma|wgmma, recurrence=auto|plain|fused, "
      "products=auto|plain|fused");
  const Ended models = run(folder, {"models"});
  CHECK(models.status == 0);
  CHECK(contains(models.out, "recurrent_transformer/unit_forget"));
  CHECK(!contains(models.out, "DIFFERS"));
  // The smallest of the scaling study, as the paper counts and with the table of 32128 tokens.
  CHECK(contains(models.out, "  56836728       40387192  "));
}
