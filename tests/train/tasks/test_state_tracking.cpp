// Random Walk and Algorithm: the streams are those of the specification, number for number, and their labels
// are what a reader of the tokens alone works out.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tensor/base/error.h"
#include "train/tasks/state_tracking.h"

namespace {

using namespace eddy;
using namespace eddy::training;

// FNV-1a over the little-endian bytes; unscored labels count as token 0, `_`.
std::uint64_t checksum(const std::vector<std::int32_t>& values) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const std::int32_t value : values) {
    const auto word = static_cast<std::uint32_t>(value == kUnscored ? 0 : value);
    for (int byte = 0; byte < 4; ++byte) hash = (hash ^ ((word >> (8 * byte)) & 255)) * 0x100000001b3;
  }
  return hash;
}

template <class Task>
void check_stream(const Task& task, std::uint64_t tokens, std::uint64_t labels, std::size_t length) {
  const LabelledTokens stream = state_stream(task, 0, StateSplit::train, 5);
  CHECK(stream.tokens.size() == length);
  CHECK(stream.labels.size() == length);
  CHECK(checksum(stream.tokens) == tokens);
  CHECK(checksum(stream.labels) == labels);
  for (const std::int32_t id : stream.tokens) CHECK((id >= 0 && id < task.vocab()));
}

// Walks by names: the compass as strings, positions as two coordinates with y upwards.
void solve_walk(const RandomWalk& task, const LabelledTokens& example) {
  const std::int64_t side = task.grid;
  std::int64_t x = 0, y = side - 1;
  std::string facing = "east";
  const std::map<std::string, std::string> left{
      {"north", "west"}, {"west", "south"}, {"south", "east"}, {"east", "north"}};
  REQUIRE(task.name(example.tokens.at(0)) == "START");
  CHECK(example.labels.at(0) == kUnscored);
  const auto name_here = [&] { return "(" + std::to_string(side - 1 - y) + "," + std::to_string(x) + ")"; };
  std::size_t first = 1;
  if (task.random_start) {
    const std::int32_t cell = example.tokens.at(1) - 5;
    x = cell % side;
    y = side - 1 - cell / side;
    CHECK(task.name(example.tokens.at(1)) == name_here());
    CHECK(example.labels.at(1) == kUnscored);
    first = 2;
  }
  REQUIRE(static_cast<std::int64_t>(example.tokens.size() - first) == task.length);
  for (std::size_t i = first; i < example.tokens.size(); ++i) {
    const std::string action = task.name(example.tokens[i]);
    if (action == "L") facing = left.at(facing);
    if (action == "R") facing = left.at(left.at(left.at(facing)));
    if (action == "F") {
      std::int64_t to_x = x + (facing == "east") - (facing == "west");
      std::int64_t to_y = y + (facing == "north") - (facing == "south");
      if (task.torus) {
        to_x = (to_x + side) % side;
        to_y = (to_y + side) % side;
      }
      if (std::min(to_x, to_y) >= 0 && std::max(to_x, to_y) < side) {
        x = to_x;
        y = to_y;
      }
    }
    REQUIRE(task.name(example.labels[i]) == name_here());
  }
}

// Runs a program from its words. Returns the number of prints.
std::int64_t solve_program(const AlgorithmPrograms& task, const LabelledTokens& example) {
  std::vector<std::string> words;
  for (const std::int32_t id : example.tokens) words.push_back(task.name(id));
  std::map<std::string, int> memory;
  const auto value = [&](const std::string& word) {
    return memory.contains(word) ? memory.at(word) : std::stoi(word);
  };
  std::int64_t prints = 0, statements = 0;
  std::size_t at = 0;
  while (words.at(at) != "END") {
    ++statements;
    const std::size_t end = static_cast<std::size_t>(
        std::find(words.begin() + static_cast<std::ptrdiff_t>(at), words.end(), ";") - words.begin());
    bool run = true;
    std::size_t body = at;
    if (words[at] == "if") {
      const int a = value(words[at + 1]), b = value(words[at + 3]);
      run = words[at + 2] == "<" ? a < b : a > b;
      REQUIRE(words[at + 4] == ":");
      body = at + 5;
      REQUIRE((words[body] != "if" && words[body] != "print"));
    }
    int printed = 0;
    if (words[body] == "print") {
      printed = value(words[body + 1]);
      ++prints;
    } else if (run && words[body + 1] == "=") {
      REQUIRE(!memory.contains(words[body]));
      memory[words[body]] = std::stoi(words[body + 2]);
    } else if (run) {
      memory.at(words[body]) += words[body + 1] == "++" ? 1 : -1;
    }
    for (const auto& [name, held] : memory) REQUIRE((held >= 1 && held <= 10));
    for (std::size_t i = at; i <= end; ++i) {
      if (i == end && printed != 0)
        REQUIRE(task.name(example.labels[i]) == std::to_string(printed));
      else
        REQUIRE(example.labels[i] == kUnscored);
    }
    at = end + 1;
  }
  CHECK(statements == task.statements);
  CHECK(at + 1 == words.size());
  CHECK(example.labels.back() == kUnscored);
  return prints;
}

}  // namespace

TEST_CASE("state tracking: the generator gives the published numbers") {
  SplitMix64 words(0);
  CHECK(words.next() == 0xe220a8397b1dcdaf);
  CHECK(words.next() == 0x6e789e6aa1b965f4);
  CHECK(words.next() == 0x06c45d188009454f);
  SplitMix64 digits(0);
  for (const int expected : {8, 4, 0, 9, 1, 3, 1, 7, 2, 9, 3, 7}) CHECK(digits.below(10) == expected);
}

TEST_CASE("state tracking: the streams have the published checksums") {
  check_stream(RandomWalk{}, 0x626fbddbcbe76073, 0xb58070af38c8a83a, 2005);
  RandomWalk torus;
  torus.length = 100;
  torus.grid = 5;
  torus.torus = torus.random_start = true;
  check_stream(torus, 0x70baef6d04e37a22, 0xadf2f7dd5c0c0060, 510);
  check_stream(AlgorithmPrograms{}, 0x7069f2766bb9e74e, 0x7aa3f2b4bf4e116e, 2161);
  AlgorithmPrograms five;
  five.variables = 5;
  check_stream(five, 0xae6810fb413fe80c, 0x72a04b071ce452c2, 2141);
}

TEST_CASE("state tracking: an independent walker finds every label") {
  for (const std::int64_t grid : {1, 2, 5, 8})
    for (const bool torus : {false, true})
      for (const bool random_start : {false, true}) {
        RandomWalk task;
        task.length = 150;
        task.grid = grid;
        task.torus = torus;
        task.random_start = random_start;
        for (std::int64_t i = 0; i < 4; ++i) solve_walk(task, task.example(7, StateSplit::valid, i));
      }
}

TEST_CASE(
    "state tracking: an independent interpreter finds every label and the programs have their statistics") {
  for (const std::int64_t variables : {1, 2, 3, 5}) {
    AlgorithmPrograms task;
    task.variables = variables;
    double tokens = 0, prints = 0;
    constexpr std::int64_t kPrograms = 120;
    for (std::int64_t i = 0; i < kPrograms; ++i) {
      const LabelledTokens example = task.example(0, StateSplit::test, i);
      tokens += static_cast<double>(example.tokens.size());
      prints += static_cast<double>(solve_program(task, example));
    }
    if (variables != 3) continue;
    // Published means of 3000 programs: 430.6 tokens, 25.6 prints. Their standard deviations are about 25 and
    // 4, so the mean of 120 lies within 12 and 2.
    CHECK(std::abs(tokens / kPrograms - 430.6) < 12);
    CHECK(std::abs(prints / kPrograms - 25.6) < 2);
  }
}

TEST_CASE("state tracking: examples differ by seed and split and index and a stream is its examples") {
  const AlgorithmPrograms task;
  const LabelledTokens first = task.example(0, StateSplit::train, 0);
  CHECK(first.tokens != task.example(1, StateSplit::train, 0).tokens);
  CHECK(first.tokens != task.example(0, StateSplit::valid, 0).tokens);
  const LabelledTokens second = task.example(0, StateSplit::train, 1),
                       both = state_stream(task, 0, StateSplit::train, 2);
  CHECK(first.tokens != second.tokens);
  std::vector<std::int32_t> joined = first.tokens;
  joined.insert(joined.end(), second.tokens.begin(), second.tokens.end());
  CHECK(both.tokens == joined);
  CHECK(state_stream(task, 0, StateSplit::train, 0).tokens.empty());
}

TEST_CASE("state tracking: vocabularies and names are the published ones") {
  const AlgorithmPrograms three;
  CHECK(three.vocab() == 26);
  const std::vector<std::string> names{"_", "END", ";",  "=", "++", "--", "if",    "print", "<",
                                       ">", ":",   "1",  "2", "3",  "4",  "5",     "6",     "7",
                                       "8", "9",   "10", "x", "y",  "z",  "<eos>", "<unk>"};
  for (std::size_t id = 0; id < names.size(); ++id)
    CHECK(three.name(static_cast<std::int32_t>(id)) == names[id]);
  AlgorithmPrograms five;
  five.variables = 5;
  CHECK(five.vocab() == 28);
  CHECK(five.name(25) == "r");
  const RandomWalk walk;
  CHECK(walk.vocab() == 69);
  CHECK(walk.name(4) == "F");
  CHECK(walk.name(68) == "(7,7)");
}

TEST_CASE("state tracking: sizes out of range are refused") {
  RandomWalk walk;
  CHECK_THROWS_AS(static_cast<void>(walk.name(69)), ValueError);
  CHECK_THROWS_AS(static_cast<void>(walk.name(-1)), ValueError);
  walk.grid = 0;
  CHECK_THROWS_AS(static_cast<void>(walk.example(0, StateSplit::train, 0)), ValueError);
  AlgorithmPrograms programs;
  programs.variables = 6;
  CHECK_THROWS_AS(static_cast<void>(programs.example(0, StateSplit::train, 0)), ValueError);
  programs = {};
  CHECK_THROWS_AS(static_cast<void>(state_stream(programs, 0, StateSplit::train, -1)), ValueError);
}
