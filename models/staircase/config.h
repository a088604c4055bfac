// The config keys of this family with their descriptions, and the rules between them.
#pragma once

#include <cstdint>
#include <string>

#include "models/config.h"
#include "models/value_names.h"

namespace eddy::staircase {

// The values of its keys.
// model.carry.
enum class Carry { exact, official };
// model.cold_start.
enum class ColdStart { zeros, empty };
// model.feedback_memory.
enum class FeedbackMemory { mix, last };
// model.feedback_carry.
enum class FeedbackCarry { raw, official };

}  // namespace eddy::staircase

namespace eddy {

// The names of its values.
template <>
struct ValueNames<staircase::Carry> {
  // In the order of the values.
  static constexpr const char* all[] = {"exact", "official"};
};
// The names of ColdStart.
template <>
struct ValueNames<staircase::ColdStart> {
  // In the order of the values.
  static constexpr const char* all[] = {"zeros", "empty"};
};
// The names of FeedbackMemory.
template <>
struct ValueNames<staircase::FeedbackMemory> {
  // In the order of the values.
  static constexpr const char* all[] = {"mix", "last"};
};
// The names of FeedbackCarry.
template <>
struct ValueNames<staircase::FeedbackCarry> {
  // In the order of the values.
  static constexpr const char* all[] = {"raw", "official"};
};

}  // namespace eddy

namespace eddy::staircase {

// The keys of this family; `describe` below says what each is.
struct Keys {
  // Their defaults.
  std::int64_t steps = 2;
  std::int64_t cache_after = 0;
  std::int64_t span = 0;
  bool prenorm = true;
  std::string carry = value_name(Carry::exact);
  std::string cold_start = value_name(ColdStart::zeros);
  std::int64_t repeats = 1;
  bool shared_kv = false;
  std::string feedback_memory = value_name(FeedbackMemory::mix);
  bool feedback_self = false;
  std::string feedback_carry = value_name(FeedbackCarry::raw);
  std::int64_t embed_dim = 0;
  double emb_dropout = 0.0;
  double out_dropout = 0.0;

  friend bool operator==(const Keys&, const Keys&) = default;
};
// With the common keys.
using Config = FamilyConfig<Keys>;

// Describes the keys of this family.
inline void describe(KeyList& keys, Keys& c) {
  keys.add("steps", c.steps,
           "Number of chunks in the window, and of times that a staircase passes a chunk through the layers",
           {1, 1'000'000'000})
      .read_by("staircase -lstm");
  keys.add("cache_after", c.cache_after, "Number of passes after which a chunk is frozen; 0: 1",
           {0, 1'000'000'000})
      .read_by("cached_staircase");
  keys.add("span", c.span, "Number of distances with learned positions; 0: steps * chunk", {0, 1'000'000'000})
      .read_by("staircase -lstm");
  keys.add("prenorm", c.prenorm, "Whether norms stand before attention and MLP, instead of after")
      .read_by("staircase -lstm");
  keys.add(
          "carry", c.carry,
          "What a segment leaves to the next: what the equations say, or what the code keeps; of frozen chunks (cache_after below steps) always the outputs",
          value_names<Carry>())
      .read_by("staircase/staircase cached_staircase")
      .paper_quirk();
  keys.add("cold_start", c.cold_start, "What stands before the first token: zeros, or nothing",
           value_names<ColdStart>())
      .read_by("staircase -lstm");
  keys.add("repeats", c.repeats, "Number of times that the layers are applied", {1, 1'000'000'000})
      .read_by("ladder universal");
  keys.add("shared_kv", c.shared_kv, "Whether all layers use the keys and values of layer 0")
      .read_by("feedback");
  keys.add("feedback_memory", c.feedback_memory, "What is remembered: a mix of all layers, or the last layer",
           value_names<FeedbackMemory>())
      .read_by("feedback");
  keys.add("feedback_self", c.feedback_self, "Whether a token sees itself").read_by("feedback").paper_quirk();
  keys.add("feedback_carry", c.feedback_carry,
           "Whether carried memories are normalised as in the published code", value_names<FeedbackCarry>())
      .read_by("feedback")
      .paper_quirk();
  keys.add("embed_dim", c.embed_dim, "Width of the embedding; 0: dim", {0, 1'000'000'000}).read_by("lstm");
  keys.add("emb_dropout", c.emb_dropout, "Probability of dropping a value of an embedding", kBelowOne)
      .read_by("staircase");
  keys.add("out_dropout", c.out_dropout, "Probability of dropping a value before the head", kBelowOne)
      .read_by("staircase");
}

// errors: ConfigError naming the keys and their values.
void check(const Config& config);
// Sets the sizes that are not given so that they suit the others, for a new run.
void choose_sizes(Config& config, const GivenKeys& given);
// Fills in defaults that depend on other keys. Called for the models of all families.
void fill(Config& config);

}  // namespace eddy::staircase
