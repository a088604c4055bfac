// Drawing the examples of Random Walk and Algorithm.
#include "train/tasks/state_tracking.h"

#include <optional>

#include "tensor/base/format.h"

namespace eddy::training {
namespace {

constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15;

[[noreturn]] void no_such_token(const char* task, std::int32_t id, std::int64_t vocab) {
  fail<ValueError>("{}: there is no token {} (0 to {})", task, id, vocab - 1);
}

}  // namespace

std::uint64_t SplitMix64::mix(std::uint64_t word) {
  word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9;
  word = (word ^ (word >> 27)) * 0x94D049BB133111EB;
  return word ^ (word >> 31);
}

std::uint64_t SplitMix64::next() {
  state_ += kGolden;
  return mix(state_);
}

std::int64_t SplitMix64::below(std::int64_t n) {
  return static_cast<std::int64_t>(((next() >> 32) * static_cast<std::uint64_t>(n)) >> 32);
}

SplitMix64 example_generator(std::uint64_t seed, StateTask task, StateSplit split, std::int64_t example) {
  std::uint64_t state = SplitMix64::mix(seed + kGolden);
  for (const std::uint64_t part : {static_cast<std::uint64_t>(task), static_cast<std::uint64_t>(split),
                                   static_cast<std::uint64_t>(example)})
    state = SplitMix64::mix(state + kGolden * (1 + part));
  return SplitMix64(state);
}

// Random Walk.

std::string RandomWalk::name(std::int32_t id) const {
  constexpr const char* kNames[] = {"_", "START", "L", "R", "F"};
  if (id < 0 || id >= vocab()) no_such_token("random walk", id, vocab());
  if (id < 5) return kNames[id];
  return fmt::format("({},{})", (id - 5) / grid, (id - 5) % grid);
}

LabelledTokens RandomWalk::example(std::uint64_t seed, StateSplit split, std::int64_t index) const {
  if (length < 1) fail<ValueError>("random walk: {} actions (at least 1)", length);
  if (grid < 1 || grid > 1024) fail<ValueError>("random walk: a grid of {} cells a side (1 to 1024)", grid);
  // Headings in the order in which R turns; L turns three times.
  constexpr std::int64_t kRowStep[] = {-1, 0, 1, 0}, kColumnStep[] = {0, 1, 0, -1};
  constexpr std::int64_t kEast = 1;
  SplitMix64 draws = example_generator(seed, StateTask::walk, split, index);
  std::int64_t row = 0, column = 0, heading = kEast;
  const auto cell = [&] { return static_cast<std::int32_t>(5 + grid * row + column); };
  LabelledTokens out{{1}, {kUnscored}};
  if (random_start) {
    row = draws.below(grid);
    column = draws.below(grid);
    out.tokens.push_back(cell());
    out.labels.push_back(kUnscored);
  }
  for (std::int64_t step = 0; step < length; ++step) {
    const std::int64_t action = draws.below(3);  // L, R, F
    if (action == 0) heading = (heading + 3) % 4;
    if (action == 1) heading = (heading + 1) % 4;
    if (action == 2) {
      const std::int64_t next_row = row + kRowStep[heading], next_column = column + kColumnStep[heading];
      const bool inside = next_row >= 0 && next_row < grid && next_column >= 0 && next_column < grid;
      if (inside || torus) {
        row = (next_row + grid) % grid;
        column = (next_column + grid) % grid;
      }
    }
    out.tokens.push_back(static_cast<std::int32_t>(2 + action));
    out.labels.push_back(cell());
  }
  return out;
}

// Algorithm.

namespace {

enum Word : std::int32_t {
  kEnd = 1,
  kSemicolon,
  kAssign,
  kIncrement,
  kDecrement,
  kIf,
  kPrint,
  kLess,
  kGreater,
  kColon,
  kOne,
};
constexpr std::int32_t kFirstVariable = 21;
constexpr const char* kVariables[] = {"x", "y", "z", "p", "r"};

std::int32_t number(std::int64_t value) {
  return static_cast<std::int32_t>(kOne + value - 1);
}
std::int32_t variable(std::int64_t index) {
  return static_cast<std::int32_t>(kFirstVariable + index);
}

// Writes one program. A drawing function returns nothing when its draw is not allowed; the caller draws
// again.
class ProgramWriter {
 public:
  ProgramWriter(SplitMix64 draws, std::int64_t variables)
      : draws_(draws), values_(static_cast<std::size_t>(variables), 0) {}

  LabelledTokens program(std::int64_t statements) {
    for (std::int64_t done = 0; done < statements;)
      if (statement()) ++done;
    emit({kEnd});
    return std::move(out_);
  }

 private:
  using Values = std::vector<std::int64_t>;  // 0: not set
  using Words = std::vector<std::int32_t>;

  void emit(const Words& words, std::int32_t last_label = kUnscored) {
    out_.tokens.insert(out_.tokens.end(), words.begin(), words.end());
    out_.labels.insert(out_.labels.end(), words.size(), kUnscored);
    out_.labels.back() = last_label;
  }

  static std::vector<std::int64_t> those(const Values& values, bool set) {
    std::vector<std::int64_t> indices;
    for (std::size_t i = 0; i < values.size(); ++i)
      if ((values[i] != 0) == set) indices.push_back(static_cast<std::int64_t>(i));
    return indices;
  }
  std::int64_t pick(const std::vector<std::int64_t>& from) {
    return from[static_cast<std::size_t>(draws_.below(std::ssize(from)))];
  }

  // Assign (kind 0), increment (1) or decrement (2), executed on `values`.
  std::optional<Words> change(std::int64_t kind, Values& values) {
    const std::vector<std::int64_t> candidates = those(values, kind != 0);
    if (candidates.empty()) return std::nullopt;
    const std::int64_t v = pick(candidates);
    std::int64_t& value = values[static_cast<std::size_t>(v)];
    if (kind == 0) {
      value = 1 + draws_.below(10);
      return Words{variable(v), kAssign, number(value), kSemicolon};
    }
    if (value == (kind == 1 ? 10 : 1)) return std::nullopt;
    value += kind == 1 ? 1 : -1;
    return Words{variable(v), kind == 1 ? kIncrement : kDecrement, kSemicolon};
  }

  bool statement() {
    const std::int64_t kind = draws_.below(5);
    if (kind < 3) {
      const std::optional<Words> words = change(kind, values_);
      if (words) emit(*words);
      return words.has_value();
    }
    return kind == 3 ? conditional() : print();
  }

  bool print() {
    const std::vector<std::int64_t> set = those(values_, true);
    if (set.empty()) return false;
    const std::int64_t v = pick(set);
    emit({kPrint, variable(v), kSemicolon}, number(values_[static_cast<std::size_t>(v)]));
    return true;
  }

  bool conditional() {
    const std::vector<std::int64_t> set = those(values_, true);
    const auto count = std::ssize(set);
    const bool with_variable = draws_.below(2) == 0;
    if (count < (with_variable ? 2 : 1)) return false;
    const std::int64_t i = draws_.below(count), left = set[static_cast<std::size_t>(i)];
    std::int64_t right_value = 0;
    std::int32_t right = 0;
    if (with_variable) {
      std::int64_t j = draws_.below(count - 1);
      if (j >= i) ++j;
      const std::int64_t other = set[static_cast<std::size_t>(j)];
      right = variable(other);
      right_value = values_[static_cast<std::size_t>(other)];
    } else {
      right_value = 1 + draws_.below(10);
      right = number(right_value);
    }
    const bool less = draws_.below(2) == 0;
    const std::int64_t left_value = values_[static_cast<std::size_t>(left)];
    const bool holds = less ? left_value < right_value : left_value > right_value;
    emit({kIf, variable(left), less ? kLess : kGreater, right, kColon});
    // A body that is not executed is drawn as if it were.
    Values aside = values_;
    std::optional<Words> body;
    while (!body) {
      const std::int64_t kind = draws_.below(5);
      if (kind < 3) body = change(kind, holds ? values_ : aside);
    }
    emit(*body);
    return true;
  }

  SplitMix64 draws_;
  Values values_;
  LabelledTokens out_;
};

}  // namespace

std::string AlgorithmPrograms::name(std::int32_t id) const {
  constexpr const char* kWords[] = {"_", "END", ";", "=", "++", "--", "if", "print", "<", ">", ":"};
  if (id < 0 || id >= vocab()) no_such_token("algorithm", id, vocab());
  if (id < kOne) return kWords[id];
  if (id < kFirstVariable) return std::to_string(id - kOne + 1);
  const std::int64_t place = id - kFirstVariable;
  if (place < variables) return kVariables[place];
  return place == variables ? "<eos>" : "<unk>";
}

LabelledTokens AlgorithmPrograms::example(std::uint64_t seed, StateSplit split, std::int64_t index) const {
  if (statements < 1) fail<ValueError>("algorithm: {} statements (at least 1)", statements);
  if (variables < 1 || variables > 5) fail<ValueError>("algorithm: {} variables (1 to 5)", variables);
  return ProgramWriter(example_generator(seed, StateTask::algorithm, split, index), variables)
      .program(statements);
}

LabelledTokens state_stream(const std::variant<AlgorithmPrograms, RandomWalk>& task, std::uint64_t seed,
                            StateSplit split, std::int64_t examples) {
  if (examples < 0) fail<ValueError>("state_stream: {} examples (at least 0)", examples);
  LabelledTokens all;
  for (std::int64_t i = 0; i < examples; ++i) {
    const LabelledTokens one =
        std::visit([&](const auto& from) { return from.example(seed, split, i); }, task);
    all.tokens.insert(all.tokens.end(), one.tokens.begin(), one.tokens.end());
    all.labels.insert(all.labels.end(), one.labels.begin(), one.labels.end());
  }
  return all;
}

}  // namespace eddy::training
