// The commands that measure: that each runs from its flags, writes what it is asked to, and refuses what
// belongs to another.
#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/files.h"
#include "tests/support/program.h"
#include "train/files/text_file.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

Ended run_line(const TempFolder& folder, const std::string& line) {
  return run_program({words_of(line), folder.path()});
}

}  // namespace

TEST_CASE("bench length writes its numbers and its page") {
  if (!has_program()) return;
  const TempFolder folder;
  const Ended end =
      run_line(folder,
               "bench length --models unit_forget,staircase --dim 32 --shortest 32 --longest 64 "
               "--seconds 0.001 --json length.json --html length.html");
  REQUIRE_MESSAGE(end.status == 0, end.err);
  CHECK(end.out.find("staircase") != std::string::npos);
  const nlohmann::json json = nlohmann::json::parse(read_text_file(folder.path() + "/length.json"));
  CHECK(json["bench"] == "length");
  CHECK(json["dim"] == 32);
  CHECK(json["series"][1]["points"][1]["length"] == 64);
  const nlohmann::json& measured = json["measured"][0];
  CHECK(measured["command"].get<std::string>().starts_with("eddy bench length "));
  CHECK(measured["date"].get<std::string>().size() == 10);
  CHECK(measured["machine"].get<std::string>().find(" thread") != std::string::npos);
  CHECK(measured["rows"].size() == 4);
  CHECK(measured["rows"][0].size() == measured["columns"].size());
  CHECK(read_text_file(folder.path() + "/length.html").find("<svg") != std::string::npos);
}

TEST_CASE("bench speed runs a shrunk row") {
  if (!has_program()) return;
  const TempFolder folder;
  const Ended end = run_line(folder, "bench speed --scale small --rows unit_256 --runs here");
  REQUIRE_MESSAGE(end.status == 0, end.err);
  CHECK(end.out.find("unit_256") != std::string::npos);
  CHECK(read_text_file(folder.path() + "/here/speed-small/result.json").find("unit_256") !=
        std::string::npos);
}

TEST_CASE("bench step: what there is no memory for is refused before it takes any") {
  if (!has_program()) return;
  const TempFolder folder;
  for (const char* const sizes : {"--model.layers 16384", "--batch 1000000 --sequence 100000000"}) {
    const Ended end = run_line(folder, std::string("bench step --steps 1 ") + sizes);
    CHECK(end.status == 1);
    CHECK_MESSAGE(end.err.find("error: bench step: the run takes ") == 0, end.err);
    CHECK_MESSAGE(
        end.err.find("a smaller --batch, --sequence or model; --memory-check warn") != std::string::npos,
        end.err);
  }
}

TEST_CASE("a dry benchmark lists what it would measure and measures nothing") {
  if (!has_program()) return;
  const TempFolder folder;
  const auto dry = [&](const std::string& line) {
    const Ended end = run_line(folder, "bench " + line + " --dry-run");
    CHECK_MESSAGE(end.status == 0, end.err);
    return end.out;
  };
  CHECK(dry("ops --filter softmax --json ops.json").find("[softmax]\n") != std::string::npos);
  CHECK(dry("step --preset copy --batch 3").find("[block_accumulate] 3 x ") == 0);
  CHECK(dry("generate --configs copy").find("[copy] ") == 0);
  CHECK(dry("length --models lstm --longest 512").find("[lstm] 256 to 512 tokens, ") == 0);
  CHECK(dry("speed --rows unit_256").find("[unit_256] ") == 0);  // those of a GPU too
  for (const char* wrong : {"ops --filter nothing", "step --preset nothing", "generate --configs nothing",
                            "length --models nothing", "speed --rows nothing", "step --model.heads 5",
                            "length --longest 3", "step --json no/such.json", "step --html no/such.html"})
    CHECK_MESSAGE(run_line(folder, std::string("bench ") + wrong + " --dry-run").status == 1, wrong);
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("reproduce takes the device of every row and shows it in the rows' commands") {
  if (!has_program()) return;
  const TempFolder folder;
  const std::string line = "reproduce staircase/table-1 --scale tiny --rows lstm --dry-run ";
  for (const char* given :
       {"--device cuda", "--set train.device=cuda", "--device cuda --set train.device=cuda"}) {
    CAPTURE(given);
    const Ended shown = run_line(folder, line + given);
    REQUIRE_MESSAGE(shown.status == 0, shown.err);
    CHECK(shown.out.find("train.device = \"cuda\"") != std::string::npos);
    CHECK(shown.out.find("--rows lstm --scale tiny --device cuda\n") != std::string::npos);
  }
  const Ended none = run_line(folder, line);
  CHECK(none.out.find("device") == std::string::npos);
  const Ended both = run_line(folder, line + "--device cuda --set train.device=cpu");
  CHECK(both.status != 0);
  CHECK(both.err.find("--device cuda and --set train.device=cpu") != std::string::npos);
  const Ended unknown = run_line(folder, line + "--device tpu");
  CHECK(unknown.status != 0);
  CHECK(unknown.err.find("--device") != std::string::npos);
}

TEST_CASE("rows of a table are trained by several processes, each once") {
  if (!has_program()) return;
  const TempFolder folder;
  folder.write("my.toml", R"(title = "two"
columns = [{title = "loss", key = "loss"}]
seeds = 2
[model]
dim = 8
heads = 2
context = 8
[data]
name = "parity"
[train]
steps = 2
batch = 2
sample_tokens = 0
[[row]]
name = "unit"
model = {model = "unit_forget"}
[[row]]
name = "lstm"
model = {model = "lstm"}
)");
  const Ended end = run_line(folder, "reproduce my.toml --jobs 2 --runs runs");
  REQUIRE_MESSAGE(end.status == 0, end.err);
  CHECK(end.out.find("2 processes train rows side by side") != std::string::npos);
  std::string told;
  for (const char* log : {"runs/my/job-1.log", "runs/my/job-2.log"}) told += read_text_file(folder.path(log));
  for (const char* row : {"unit-seed-1337", "unit-seed-1338", "lstm-seed-1337", "lstm-seed-1338"}) {
    CAPTURE(row);
    const std::string measured = std::string(row) + ": measuring\n";
    const std::size_t at = told.find(measured);
    REQUIRE(at != std::string::npos);
    CHECK(told.find(measured, at + 1) == std::string::npos);
    CHECK(end.out.find(std::string(row) + ": done already") != std::string::npos);
  }
}

TEST_CASE("each benchmark is a command with its own options and help") {
  if (!has_program()) return;
  const TempFolder folder;
  for (const char* line : {"bench length --dropout 0.1", "bench ops --no-capture", "bench generate --profile",
                           "bench step --min-length 5", "bench ops --sequence 3", "bench speed --set a=b"}) {
    CAPTURE(line);
    const Ended end = run_line(folder, line);
    CHECK(end.status == 2);
    const std::string command(line, std::string(line).find(" --"));
    CHECK(end.err.find("error: " + command + ": unknown flag '") == 0);
  }
  const Ended help = run_line(folder, "bench step --help");
  CHECK(help.status == 0);
  for (const char* option : {"--preset", "--json", "--steps", "--model.dim"})
    CHECK_MESSAGE(help.out.find(option) != std::string::npos, option);
  CHECK(help.out.find("--filter") == std::string::npos);
  const Ended none = run_line(folder, "bench");
  CHECK(none.status == 2);
  CHECK(none.err.find("generate") != std::string::npos);
  const Ended unknown = run_line(folder, "bench lenght --dim 32");
  CHECK(unknown.status == 2);
  CHECK(unknown.err.find("bench: unknown command 'lenght' (nearest: length; see eddy bench --help)") !=
        std::string::npos);
  const Ended extra = run_line(folder, "bench ops softmax");
  CHECK(extra.err.find("bench ops: unexpected argument 'softmax'") != std::string::npos);
}
