// What the program says of itself: short and complete help, the keys of a model, the tasks, completion.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/program.h"
#include "train/config/run_config.h"
#include "train/tasks/task.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

std::string printed_by(const std::vector<std::string>& arguments) {
  const TempFolder folder;
  const Ended ended = run_program({arguments, folder.path()});
  CHECK_MESSAGE(ended.status == 0, ended.err);
  return ended.out;
}

std::ptrdiff_t lines_in(const std::string& text) {
  return std::count(text.begin(), text.end(), '\n');
}

}  // namespace

TEST_CASE("program: the help of train has at most 80 lines and --help-all has every key") {
  if (!has_program()) return;
  const std::string brief = printed_by({"train", "--help"}), whole = printed_by({"train", "--help-all"});
  CHECK(lines_in(brief) <= 80);
  RunConfig defaults;
  const ConfigKeys keys = keys_of(defaults);
  for (const ConfigField& field : keys.fields()) {
    const std::string flag = "--" + field.full_key() + " ";
    CHECK_MESSAGE(contains(whole, flag), flag);
    CHECK_MESSAGE(contains(brief, flag) == (field.use == KeyUse::common), flag);
  }
}

TEST_CASE("program: environment variables stand in the help of the program alone") {
  if (!has_program()) return;
  CHECK(contains(printed_by({"--help"}), "EDDY_CPU_LEVEL"));
  for (const char* const command : {"train", "eval", "models"})
    CHECK_FALSE(contains(printed_by({command, "--help"}), "EDDY_CPU_LEVEL"));
}

TEST_CASE("program: keys lists what a model reads and no quirks of published code") {
  if (!has_program()) return;
  const std::string unit = printed_by({"keys", "unit_forget"}), slide = printed_by({"keys", "slide"});
  CHECK(unit == printed_by({"keys", "recurrent_transformer/unit_forget"}));
  CHECK(contains(unit, "model.dim"));
  CHECK(contains(unit, "384"));
  CHECK(contains(unit, "a whole number, 1 to 1048576"));
  CHECK(contains(unit, "Width of the residual stream."));
  CHECK_FALSE(contains(unit, "model.window"));
  CHECK_FALSE(contains(unit, "train.steps"));
  CHECK(contains(slide, "model.window"));
  CHECK_FALSE(contains(slide, "model.scale_abs"));
  const std::string all = printed_by({"keys"});
  for (const char* const key : {"model.dim", "model.window", "data.walk_grid", "train.steps"})
    CHECK_MESSAGE(contains(all, key), key);
  const TempFolder folder;
  const Ended wrong = run_program({{"keys", "unit_forgot"}, folder.path()});
  CHECK(wrong.status == 1);
  CHECK_MESSAGE(contains(wrong.err, "nearest: unit_forget"), wrong.err);
}

TEST_CASE("program: tasks lists every task with its keys") {
  if (!has_program()) return;
  const std::string tasks = printed_by({"tasks"});
  for (const TaskEntry& task : task_registry())
    CHECK_MESSAGE(contains(tasks, std::string(task.name) + " "), task.name);
  CHECK(contains(tasks, "walk_grid"));
  const std::size_t recall = tasks.find("recall "), after = tasks.find("algorithm ");
  REQUIRE(recall < after);
  CHECK(contains(tasks.substr(recall, after - recall), "secrets"));
  CHECK_FALSE(contains(tasks.substr(recall, after - recall), "tokenizer"));
}

TEST_CASE("program: completion completes commands and flags in bash") {
  if (!has_program()) return;
  const TempFolder folder;
  const std::string script = folder.write("eddy.bash", printed_by({"completion", "bash"}));
  const auto completed = [&](const std::string& words, int word) {
    const std::string line = "bash -c '. " + script + "; COMP_WORDS=(" + words +
                             "); COMP_CWORD=" + std::to_string(word) +
                             "; _eddy; echo \"${COMPREPLY[*]}\"' > " + folder.path("out");
    CHECK(std::system(line.c_str()) == 0);
    return read_bytes(folder.path("out"));
  };
  CHECK(completed("eddy tra", 1) == "train\n");
  CHECK(completed("eddy train --model.rope", 2) == "--model.rope_theta\n");
  CHECK(completed("eddy eval --batche", 2) == "--batches\n");
  CHECK(completed("eddy bench len", 2) == "length\n");
  CHECK(contains(printed_by({"completion", "zsh"}), "#compdef eddy"));
}

TEST_CASE("program: help, errors and completion call a program by its own name") {
  if (!has_program()) return;
  const TempFolder folder;
  std::filesystem::create_directory(folder.path("somewhere"));
  std::filesystem::create_symlink(kProgram, folder.path("somewhere/my_eddy"));
  const auto said_by = [&](const std::vector<std::string>& arguments) {
    Start start{arguments, folder.path()};
    start.name = "somewhere/my_eddy";
    const Ended ended = run_program(start);
    const std::string said = "\n" + ended.out + ended.err;
    static const std::regex other(R"([^\n]*[^/\w]eddy\b[^\n]*)");
    std::smatch line;
    const bool found = std::regex_search(said, line, other);
    CHECK_MESSAGE(!found, line.str());
    return said;
  };
  const std::string completion = said_by({"completion", "bash"});
  CHECK(contains(completion, "complete -o filenames -F _my_eddy my_eddy\n"));
  CHECK(contains(said_by({"completion", "zsh"}), "compdef _my_eddy my_eddy\n"));
  CHECK(contains(said_by({"--help"}), "my_eddy COMMAND --help"));
  CHECK(contains(said_by({"train", "--help-all"}), "  my_eddy train --resume runs/a "));
  static const std::regex known(R"re( (\w+)\) flags="[^"]*" commands="([^"]*)")re");
  int commands = 0;
  for (std::sregex_iterator match(completion.begin(), completion.end(), known), end; match != end; ++match) {
    const std::string command = (*match)[1].str();
    CHECK(contains(said_by({command, "--help"}), "my_eddy " + command + " "));
    std::istringstream words((*match)[2].str());
    for (std::string word; words >> word; ++commands) said_by({command, word, "--help"});
    ++commands;
  }
  CHECK(commands > 25);
  const std::vector<std::pair<std::vector<std::string>, std::string>> mistakes{
      {{"--frobnicate"}, "(see my_eddy --help)"},
      {{"eval", "--frobnicate"}, "(see my_eddy eval --help)"},
      {{"eval"}, "(see my_eddy eval --help)"},
      {{"bench", "lenght"}, "see my_eddy bench --help)"},
      {{"trian"}, "see my_eddy --help)"},
      {{"info", "now"}, "(see my_eddy info --help)"},
      {{"keys", "unit_forgot"}, "my_eddy models lists them"},
      {{"keys", "unit_forget"}, "`my_eddy keys` also lists"},
      {{"tasks"}, "`my_eddy keys` explains them"},
      {{"train", "--run", "out", "--data", "tinyshakespear"}, "my_eddy tasks lists them"},
      {{"reproduce"}, "my_eddy reproduce FILE.toml"},
      {{"bench", "ops", "--filter", "abacus"}, "(my_eddy bench ops --dry-run lists them)"},
      {{"learn", "no_such"}, "my_eddy learn lists them"},
  };
  for (const auto& [arguments, text] : mistakes) {
    CAPTURE(text);
    const std::string said = said_by(arguments);
    CHECK_MESSAGE(contains(said, text), said);
  }
}

TEST_CASE("program: the documents and configurations give it commands and flags that it has") {
  if (!has_program()) return;
  namespace fs = std::filesystem;
  static const std::regex known(R"re( (\w+)\) flags="([^"]*)")re"), called(R"(\beddy ([a-z]+)\b([^`#|\n]*))"),
      flag(R"(--[a-z][a-z0-9._-]*)");
  const auto each = [](const std::string& text, const std::regex& pattern, auto&& use) {
    for (std::sregex_iterator match(text.begin(), text.end(), pattern), end; match != end; ++match)
      use(*match);
  };
  std::map<std::string, std::set<std::string>> flags;
  each(printed_by({"completion", "bash"}), known, [&](const std::smatch& match) {
    std::istringstream words(match[2].str());
    for (std::string word; words >> word;) flags[match[1].str()].insert(word);
    flags[match[1].str()].insert({"--threads", "--memory-check"});
  });
  CHECK(flags.size() > 10);
  int found = 0;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(EDDY_SOURCE_DIR)) {
    const std::string path = fs::relative(entry.path(), EDDY_SOURCE_DIR).generic_string();
    if (path.starts_with("build") || path.starts_with("runs") || path.starts_with(".git")) continue;
    if (!path.ends_with(".md") && !path.ends_with(".toml")) continue;
    const std::string text = std::regex_replace(read_bytes(entry.path()), std::regex(R"(\\\n)"), " ");
    each(text, called, [&](const std::smatch& call) {
      const auto command = flags.find(call[1].str());
      if (command == flags.end()) return;
      each(call[2].str(), flag, [&](const std::smatch& match) {
        ++found;
        CHECK_MESSAGE(command->second.contains(match.str()), path << ": " << call.str());
      });
    });
  }
  CHECK(found > 150);
}
