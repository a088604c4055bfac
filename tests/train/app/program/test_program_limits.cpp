// The program where something is missing: a standard stream, a regular file, a state, ASCII letters.
#include <sys/stat.h>
#include <sys/wait.h>

#include <cstdlib>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "ops/product/blas.h"
#include "tensor/base/error.h"
#include "tensor/files/safetensors.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/program.h"
#include "tests/train/app/program/limited_shell.h"
#include "train/config/config_file.h"
#include "train/files/text_file.h"
#include "train/run/digests.h"
#include "train/text/stories/stories.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;
namespace fs = std::filesystem;

}  // namespace

TEST_CASE("program: a text that cannot be written to a closed standard output is an error") {
  if (!has_program()) return;
  const TempFolder folder;
  write_text(folder);
  const Ended trained = shell(folder, kTrain + std::string("--run run >&-"));
  CHECK_MESSAGE(trained.status == 0, trained.err);  // what it learned is in its folder
  for (const char* const command : {"generate run --tokens 3", "eval run", "models"}) {
    CAPTURE(command);
    const Ended closed = shell(folder, "$EDDY " + std::string(command) + " >&-");
    CHECK(closed.status == 1);
    CHECK_MESSAGE(contains(closed.err, "cannot write to standard output"), closed.err);
    CHECK(shell(folder, "$EDDY " + std::string(command)).status == 0);
  }
}

TEST_CASE("program: a pipe or a device is no configuration") {
  if (!has_program()) return;
  const TempFolder folder;
  REQUIRE(::mkfifo(folder.path("pipe.toml").c_str(), 0600) == 0);
  fs::create_symlink("/dev/zero", folder.path("endless.json"));
  for (const char* const file : {"pipe.toml", "endless.json"}) {
    const Ended ended = shell(folder, std::string("$EDDY train ") + file + " --run run");
    CHECK(ended.status == 1);
    CHECK_MESSAGE(contains(ended.err, std::string(file) + " is not a regular file"), ended.err);
  }
}

TEST_CASE("program: data.split says and does the same in its help and its errors") {
  if (!has_program()) return;
  const TempFolder folder;
  write_text(folder);
  const Ended help = shell(folder, "$EDDY train --help");
  const std::size_t at = help.out.find("--data.split");
  REQUIRE(at != std::string::npos);
  const std::string about = help.out.substr(at, help.out.find("--data.order", at) - at);
  CHECK_MESSAGE(contains(about, "above 0 and at most 1"), about);
  for (const char* const split : {"0", "1.5", "nan"}) {
    const Ended ended = shell(folder, kTrain + std::string("--run run --data.split ") + split);
    CHECK(ended.status != 0);
    CHECK_MESSAGE(contains(ended.err, "above 0 and at most 1"), ended.err);
  }
  CHECK_FALSE(fs::exists(folder.path("run")));
}

TEST_CASE("program: dump refuses a file that is named for the state and is a case without one") {
  if (!has_program()) return;
  const TempFolder folder;
  fs::copy(EDDY_SOURCE_DIR "/tests/golden/recurrent_transformer/unit_forget", folder.path("case"));
  const Ended good = shell(folder, "$EDDY dump --case case --out good.safetensors");
  REQUIRE_MESSAGE(good.status == 0, good.err);
  for (const char* const file : {"case/case.safetensors", "good.safetensors"}) {
    const Ended ended =
        shell(folder, std::string("$EDDY dump --case case --out x.safetensors --state ") + file);
    CHECK(ended.status == 1);
    CHECK_MESSAGE(contains(ended.err, "holds neither state.<name> nor next_state.<name>"), ended.err);
    CHECK_FALSE(fs::exists(folder.path("x.safetensors")));
  }
}

TEST_CASE("program: a validation loss that is no number is printed as nan whatever its sign") {
  if (!has_program()) return;
  const TempFolder folder;
  write_text(folder);
  REQUIRE(shell(folder, kTrain + std::string("--train.eval_every 0 --run run")).status == 0);
  const std::string checkpoint = folder.path("run/checkpoints/step-2/"),
                    file = checkpoint + "model.safetensors";
  std::map<std::string, Tensor> tensors = load_safetensors(file);
  for (auto& [name, tensor] : tensors)
    tensor = Tensor::full(tensor.shape(), -std::numeric_limits<double>::quiet_NaN(), tensor.dtype());
  save_safetensors(file, tensors);
  write_digests(checkpoint);
  const Ended ended =
      shell(folder, "$EDDY train --resume run --train.eval_every 1 --train.steps 3 --train.sample_tokens 0");
  CHECK_MESSAGE(contains(ended.out, "validation loss nan"), ended.out, ended.err);
  CHECK(!contains(ended.out, "-nan"));
  const Ended evaluated = shell(folder, "$EDDY eval run");
  CHECK(!contains(evaluated.out + evaluated.err, "-nan"));
}

TEST_CASE("config: letters beyond ASCII stand in strings and comments and nowhere else") {
  const auto refused = [](const std::string& text) {
    return error_of<ConfigError>([&] { static_cast<void>(config_from_toml(text, "a.toml")); });
  };
  for (const char* const letter : {"\u00e9", "\u03b1", "\u0416", "\u3042", "\u00a0", "\U0001F600"}) {
    const std::string c = letter;
    CAPTURE(c);
    CHECK(contains(refused("[data]\n" + c + " = 1\n"), "a.toml:2:1: a character beyond ASCII outside"));
    CHECK(contains(refused("[" + c + "]\n"), "a.toml:1:2: "));
    CHECK(contains(refused("a" + c + " = 1\n"), "a.toml:1:2: "));
    CHECK(contains(refused("a = 1" + c + "\n"), "a.toml:1:6: "));
    CHECK(contains(refused("a = \"x\"" + c + "\n"), "a.toml:1:8: "));
    CHECK(contains(refused("a = '''x'''" + c + "\n"), "a.toml:1:12: "));
    CHECK(contains(refused("a = \"\"\"x\\\n  " + c + "\"\"\"\n"),
                   "a.toml:2:3: a character beyond ASCII behind"));
    CHECK(contains(refused("a = \"\"\"\\" + c + "\"\"\"\n"), "a.toml:1:9: "));
    // The end of a value that is no string is looked for through quotes.
    for (const char* const value : {"1\"", "1[\"", "x = 1=\"", "[1=\"", "[\n1=\""})
      CHECK(contains(refused("a = " + std::string(value) + c + "\"\n"), "a quote in the middle of a word"));
    // In its place it is what it is.
    const std::string text = "\xef\xbb\xbf# " + c + "\na = \"" + c + "\\\"" + c + "\" # " + c + "\nb = '" +
                             c + "\\'\nc = \"\"\"\n" + c + "\"" + c + "\"\"\"\"\n'" + c + "' = '''" + c +
                             "'''\n";
    const nlohmann::json value = config_from_toml(text, "a.toml").value;
    CHECK(value.at("a") == c + "\"" + c);
    CHECK(value.at("b") == c + "\\");
    CHECK(value.at("c") == c + "\"" + c + "\"");
    CHECK(value.at(c) == c);
    const std::string list =
        "a=\"" + c + "\"\nb = [\"" + c + "\", '" + c + "']\nc = [\n\"" + c + "\",\n[\"" + c + "\"]]\n";
    CHECK(config_from_toml(list, "a.toml").value.at("c").at(1).at(0) == c);
  }
}
