// The data of the two state-tracking tasks: Random Walk (where is the agent now?) and Algorithm (what value
// does the variable hold now?).
// Sources: Fan et al., "Addressing Some Limitations of Transformers with Feedback Memory" (2020); Ju et al.,
// "Staircase Attention for Recurrent Processing of Sequences" (2021). The exact rules and random draws are
// this project's; they use integers only, so that any program can make the same streams.
//
//   walk        START  F        R        F        ...
//   label       .      (0,1)    (0,1)    (1,1)        the cell after the action
//
//   algorithm   x = 4 ; x ++ ; print x ; ... END
//   label             .      .         5              . not scored
//
// A label belongs to its own token; nothing is shifted. Example i of a split is a pure function of
// (seed, task, split, i).
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "models/config_keys.h"

namespace eddy::training {

// The keys of the two tasks, beside data.offset.
struct StateTrackingKeys {
  std::int64_t examples_seed = 0;
  std::int64_t examples = 10000;       // of the training split
  std::int64_t valid_examples = 1000;  // of the validation split
  std::int64_t test_examples = 1000;
  std::int64_t statements = 100;  // of a program
  std::int64_t variables = 3;
  std::int64_t walk_length = 400;  // actions
  std::int64_t walk_grid = 8;      // cells in a row and in a column
  bool walk_torus = false;
  bool walk_random_start = false;

  friend bool operator==(const StateTrackingKeys&, const StateTrackingKeys&) = default;
};
void describe(KeyList& keys, StateTrackingKeys& config);

// SplitMix64.
// source: G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators" (2014).
class SplitMix64 {
 public:
  explicit SplitMix64(std::uint64_t state) : state_(state) {}
  // The next 64 bits.
  std::uint64_t next();
  // A number in [0, n), from the upper 32 bits of the next word; n from 1 to 2^32.
  std::int64_t below(std::int64_t n);
  // The output function: one word, mixed.
  static std::uint64_t mix(std::uint64_t word);

 private:
  std::uint64_t state_;
};

enum class StateTask : std::uint8_t { walk = 1, algorithm = 2 };
enum class StateSplit : std::uint8_t { train = 0, valid = 1, test = 2 };

// The random generator of one example.
SplitMix64 example_generator(std::uint64_t seed, StateTask task, StateSplit split, std::int64_t example);

// The label of tokens that are neither trained on nor scored.
inline constexpr std::int32_t kUnscored = -1;

// Tokens and their labels, equally many.
struct LabelledTokens {
  std::vector<std::int32_t> tokens, labels;
};

// An agent on a grid. It begins in cell (0, 0) facing east. A token is START, the announced first cell (with
// random_start) or an action: turn left, turn right, or one cell forward. A wall stops the agent; a torus has
// no walls.
//
//   id   0 `_`   1 START   2 L   3 R   4 F   5 + grid * row + column: the cells
struct RandomWalk {
  std::int64_t length = 400;  // actions
  std::int64_t grid = 8;      // cells in a row and in a column
  bool torus = false;
  bool random_start = false;

  std::int64_t vocab() const { return 5 + grid * grid; }
  // "START", "F", "(3,7)".
  // errors: ValueError for an id outside the vocabulary.
  std::string name(std::int32_t id) const;
  // One example of a split.
  // errors: ValueError for a length below 1 or a grid outside 1 .. 1024.
  LabelledTokens example(std::uint64_t seed, StateSplit split, std::int64_t index) const;
};

// Programs whose variables hold values in 1 .. 10. Only the `;` after a print is labelled, with the printed
// value.
//
//   id   0 `_`   1 END   2 ;   3 =   4 ++   5 --   6 if   7 print   8 <   9 >   10 :
//        11 .. 20   the numbers 1 .. 10
//        21 ..      the variables x y z p r, then <eos> and <unk>, which never occur
struct AlgorithmPrograms {
  std::int64_t statements = 100;
  std::int64_t variables = 3;  // 1 to 5

  std::int64_t vocab() const { return 23 + variables; }
  // "++", "7", "x".
  // errors: ValueError for an id outside the vocabulary.
  std::string name(std::int32_t id) const;
  // One example of a split.
  // errors: ValueError for fewer than 1 statement or variables outside 1 .. 5.
  LabelledTokens example(std::uint64_t seed, StateSplit split, std::int64_t index) const;
};

// The first `examples` examples of a split, concatenated.
// errors: ValueError for a negative number, and those of example.
LabelledTokens state_stream(const std::variant<AlgorithmPrograms, RandomWalk>& task, std::uint64_t seed,
                            StateSplit split, std::int64_t examples);

}  // namespace eddy::training
