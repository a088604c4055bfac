// The commands above the measured tables of the documents (docs/measured/README.md), each in its dry form: that the
// program accepts it, and that what the table's file says of its rows or columns is what the command would give.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/files.h"
#include "tests/support/program.h"
#include "train/config/config_file.h"
#include "train/config/run_config.h"
#include "train/files/text_file.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;
using nlohmann::json;
namespace fs = std::filesystem;

// The words of a shell's command; 'a b' is one.
std::vector<std::string> shell_words(const std::string& line) {
  std::vector<std::string> words;
  std::string word;
  bool quoted = false, open = false;
  for (const char c : line + " ") {
    if (c == '\'') {
      quoted = !quoted;
      open = true;
    } else if (c == ' ' && !quoted) {
      if (open) words.push_back(std::exchange(word, {}));
      open = false;
    } else {
      word += c;
      open = true;
    }
  }
  return words;
}

// A command with what a row gives for its words in capitals: NAME, N and so on.
// errors: std::runtime_error for a word that the command does not have.
std::string filled(std::string command, const json& words) {
  for (const auto& [word, text] : words.items()) {
    const std::regex whole("\\b" + word + "\\b");
    if (!std::regex_search(command, whole)) throw std::runtime_error("no " + word + " in: " + command);
    command = std::regex_replace(command, whole, text.get<std::string>());
  }
  return command;
}

// What a command would give: the names of its rows, or when it evaluates.
struct Given {
  std::set<std::string> names;
  std::optional<TrainConfig> training;
};

std::set<std::string> names_in(const std::string& output) {
  static const std::regex name(R"((^|\n)\[([^\]\n]+)\])");
  std::set<std::string> names;
  for (std::sregex_iterator match(output.begin(), output.end(), name), end; match != end; ++match)
    names.insert((*match)[2].str());
  return names;
}

// Whether a folder of tests has the file that a doctest program is told to run: --source-file='*part/of/its/path'.
bool has_source(const std::string& pattern) {
  const std::string end = pattern.substr(pattern.find('*') + 1);
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(EDDY_SOURCE_DIR "/tests"))
    if (entry.path().generic_string().ends_with(end)) return true;
  return false;
}

// Runs commands in their dry form, each once.
class DryRuns {
 public:
  DryRuns() { fs::create_directory_symlink(EDDY_SOURCE_DIR "/examples", folder_.path("examples")); }

  // errors: std::runtime_error for a command that is not accepted, or has no dry form.
  const Given& of(const std::string& command) {
    const auto [found, is_new] = known_.try_emplace(command);
    if (is_new) found->second = run(command);
    return found->second;
  }

 private:
  Given run(const std::string& command) const {
    std::vector<std::string> words = shell_words(command), environment;
    static const std::regex assignment("[A-Z_]+=.*");
    while (!words.empty() && std::regex_match(words.front(), assignment)) {
      environment.push_back(words.front());
      words.erase(words.begin());
    }
    const std::string program = words.empty() ? "" : fs::path(words.front()).filename().string();
    if (program.starts_with("test_") && words.size() == 2 && words[1].starts_with("--source-file=")) {
      if (!has_source(words[1])) throw std::runtime_error("no such test: " + command);
      return {};
    }
    if (program == "count_gpu_steps")
      words = counted_steps(words);
    else if (program != "eddy" || words.size() < 2)
      throw std::runtime_error("not a command of eddy, nor a program of its tests: " + command);
    words.erase(words.begin());
    const bool trains = words.front() == "train" || words.front() == "plan";
    if (words.front() == "plan") {
      words.front() = "train";  // takes the same configuration
      const auto seconds = std::find(words.begin(), words.end(), "--seconds");
      if (seconds != words.end()) words.erase(seconds, seconds + 2);
    }
    words.emplace_back(trains ? "--print-config" : "--dry-run");
    const Ended end = run_program({.arguments = words, .folder = folder_.path(), .environment = environment});
    if (end.status != 0) throw std::runtime_error("not accepted: " + command + "\n" + end.err);
    Given given;
    if (!trains) given.names = names_in(end.out);
    if (trains) given.training = load_run_config(folder_.write("printed.toml", end.out)).train;
    return given;
  }

  // count_gpu_steps counts the rows of `bench speed`, or a step of a preset.
  static std::vector<std::string> counted_steps(const std::vector<std::string>& words) {
    const auto preset = std::find(words.begin(), words.end(), "--preset");
    if (preset == words.end()) return {"eddy", "bench", "speed"};
    const auto batch = std::find(words.begin(), words.end(), "--batch");
    return {"eddy", "bench", "step", "--preset", preset[1], "--batch", batch == words.end() ? "1" : batch[1]};
  }

  TempFolder folder_;
  std::map<std::string, Given> known_;
};

// Checks one entry of rows_are or columns_are: the name of a row, a step, what its words in capitals stand for, or
// nothing.
// errors: std::runtime_error that says what is wrong.
void check_entry(DryRuns& runs, const std::vector<std::string>& commands, const json& entry) {
  if (entry.is_null()) return;
  if (entry.is_object()) {
    for (const std::string& command : commands) static_cast<void>(runs.of(filled(command, entry)));
    return;
  }
  std::string names;
  for (const std::string& command : commands) {
    const Given& given = runs.of(command);
    if (entry.is_number()) {
      const std::int64_t step = entry;
      if (given.training && step <= given.training->steps &&
          (given.training->eval_every == 0 || step % given.training->eval_every == 0))
        return;
    } else if (const std::string row = entry;
               std::any_of(given.names.begin(), given.names.end(), [&](const std::string& name) {
                 return name == row || name.starts_with(row + "-seed-");
               })) {
      return;
    }
    for (const std::string& name : given.names) names += " " + name;
  }
  throw std::runtime_error("no row of the command: " + entry.dump() + "; its rows:" + names);
}

// Checks a table's command, its rows and its columns.
// errors: std::runtime_error that says what is wrong; those of JSON.
void check_table(DryRuns& runs, const json& table) {
  std::vector<std::string> commands;
  const json& command = table.at("command");
  for (const json& one : command.is_array() ? command : json::array({command}))
    if (!one.get<std::string>().empty()) commands.push_back(one);
  if (commands.empty() || table.contains("unchecked")) return;
  const auto entries = [&](const char* key, std::size_t count) {
    if (!table.contains(key)) return false;
    const json& are = table.at(key);
    if (are.is_string()) {  // parts of what each command gives
      for (const std::string& one : commands) static_cast<void>(runs.of(one));
      return true;
    }
    if (are.size() != count)
      throw std::runtime_error(std::string(key) + " has " + std::to_string(are.size()) +
                               " entries, the table " + std::to_string(count));
    for (const json& entry : are) check_entry(runs, commands, entry);
    return true;
  };
  const bool rows = entries("rows_are", table.at("rows").size());
  const bool columns = entries("columns_are", table.at("columns").size() - 1);
  if (!rows && !columns) throw std::runtime_error("neither rows_are, columns_are nor unchecked");
}

std::string error_of_table(DryRuns& runs, const json& table) {
  try {
    check_table(runs, table);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("the command above each measured table is accepted and gives the table's rows") {
  if (!has_program()) return;
  DryRuns runs;
  int tables = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(EDDY_SOURCE_DIR "/docs/measured")) {
    if (entry.path().extension() != ".json") continue;
    ++tables;
    const std::string wrong = error_of_table(runs, json::parse(read_text_file(entry.path())));
    CHECK_MESSAGE(wrong.empty(), entry.path().filename().string() << ": " << wrong);
  }
  CHECK(tables > 10);
}

TEST_CASE("a command that does not give a table's rows is found") {
  if (!has_program()) return;
  DryRuns runs;
  const auto wrong = [&](const char* command, const char* rows_are) {
    return error_of_table(runs, {{"command", command},
                                 {"columns", {"a", "b"}},
                                 {"rows", {{"row", 1}}},
                                 {"rows_are", json::parse(rows_are)}});
  };
  const char* walk = "build/release/eddy reproduce staircase/table-1 --task random-walk";
  const char* step = "build/release/eddy bench step --preset NAME";
  CHECK(wrong(walk, R"(["lstm"])").empty());
  CHECK(wrong(walk, R"(["gru"])").find("no row of the command") == 0);
  CHECK(wrong(walk, R"(["lstm", "lstm"])").find("2 entries, the table 1") != std::string::npos);
  CHECK(wrong("build/release/eddy reproduce staircase/table-9", R"(["lstm"])").find("not accepted") == 0);
  CHECK(wrong("build/release/eddy reproduce staircase/tables-2-3 --data a --set train.steps=2",
              R"(["feedback"])")
            .find("warmup 50, steps 2") != std::string::npos);
  CHECK(wrong(step, R"([{"NAME": "copy"}])").empty());
  CHECK(wrong(step, R"([{"NAME": "copie"}])").find("not accepted") == 0);
  CHECK(wrong(step, R"([{"BATCH": "3"}])").find("no BATCH") == 0);
  const char* parity = "build/release/eddy train examples/configs/parity.toml --run runs/a";
  CHECK(wrong(parity, "[400]").empty());
  CHECK(wrong(parity, "[405]").find("no row") == 0);
  CHECK(wrong(parity, "[410]").find("no row") == 0);
  CHECK(wrong("time ninja", "[null]").empty());
  CHECK(wrong("build/release/bin/test_models --source-file='*test_slow_bf16.cpp'", "[null]").empty());
  CHECK(wrong("time ninja", R"("all of it")").find("not a command of eddy") == 0);
}
