// What a value that a model names means, and how it stands to the tokens of a call: data of each family,
// models/<family>/values.toml. Each entry points to the line of the family's literal.cpp that has the formula; the line
// is found by its text, and the file is a part of the program.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/eddy/config.h"
#include "models/value_names.h"

namespace eddy::app {

// What a row of a state stands for: a token, and it follows the row of the token before; a token of a block, and it
// follows the same row of the block before; no token.
enum class StateRows { tokens, blocks, slots };
// What the values of a gate stand for: a token each, along the last axis; an equal part of the tokens each; nothing,
// since they are learned numbers.
enum class GateCover { last_axis, calls, nothing };

}  // namespace eddy::app

// Their names, in the order of the values.
template <>
struct eddy::ValueNames<eddy::app::StateRows> {
  static constexpr const char* all[] = {"tokens", "blocks", "slots"};
};
template <>
struct eddy::ValueNames<eddy::app::GateCover> {
  static constexpr const char* all[] = {"last axis", "calls", "nothing"};
};

namespace eddy::app {

struct ValueMeaning {
  std::string path;                   // with * for any text
  std::vector<std::string> models{};  // that it is said of; empty: all of the family
  std::string words;
  std::int64_t line = 0;  // of literal.cpp, from 1
  std::string rows{};     // of a state: StateRows; empty: no state
  std::string covers{};   // of a gate: GateCover; empty: no gate
  // Of a gate between the token and the state before it: the attention beside it that has the share of the state for
  // the first token of a call that goes on from a state.
  std::string enters{};
  // Of an attention: what its keys and its queries are, where they are no tokens.
  std::string keys{}, queries{};
  // Of an attention of state vectors to tokens: the state that it moves, a value of the scope above its own.
  std::string moves{};
};

struct FamilyMeanings {
  std::string family;
  std::string literal_name;  // "models/block_recurrent/literal.cpp"
  std::string_view literal;  // its text
  std::vector<ValueMeaning> values;
};

// Of the families of this build, in their order. Their data are checked when they are read.
// errors: ConfigError, which tests see, for a key that is none and for a line that is not in literal.cpp.
const std::vector<FamilyMeanings>& family_meanings();

// The entry of a family; null for a family of a user's program.
const FamilyMeanings* meanings_of(const ModelConfig& config);

// The first entry that fits a path of a model; null for none.
const ValueMeaning* meaning_of(const ModelConfig& config, const std::string& path);

}  // namespace eddy::app
