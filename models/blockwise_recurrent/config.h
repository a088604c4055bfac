// The config keys of this family with their descriptions, and the rules between them.
#pragma once

#include <string>

#include "models/config.h"
#include "models/value_names.h"

namespace eddy::blockwise_recurrent {

// The values of its keys.
// model.memory_qkv.
enum class MemoryProjections { separate, shared };
// model.memory_init.
enum class MemoryInit { learned, zero };
// model.detach.
enum class Detach { segment, chunk };

}  // namespace eddy::blockwise_recurrent

namespace eddy {

// The names of its values.
template <>
struct ValueNames<blockwise_recurrent::MemoryProjections> {
  // In the order of the values.
  static constexpr const char* all[] = {"separate", "shared"};
};
// The names of MemoryInit.
template <>
struct ValueNames<blockwise_recurrent::MemoryInit> {
  // In the order of the values.
  static constexpr const char* all[] = {"learned", "zero"};
};
// The names of Detach.
template <>
struct ValueNames<blockwise_recurrent::Detach> {
  // In the order of the values.
  static constexpr const char* all[] = {"segment", "chunk"};
};

}  // namespace eddy

namespace eddy::blockwise_recurrent {

// The keys of this family; `describe` below says what each is.
struct Keys {
  // Their defaults.
  std::string memory_qkv = value_name(MemoryProjections::separate);
  std::string memory_init = value_name(MemoryInit::learned);
  bool memory_query = false;
  bool memory_ffn = true;
  bool memory_ffn_prenorm = true;
  bool memory_norm = true;
  bool memory_proj = false;
  std::string detach = value_name(Detach::segment);
  double rope_theta = 10000.0;

  friend bool operator==(const Keys&, const Keys&) = default;
};
// With the common keys.
using Config = FamilyConfig<Keys>;

// Describes the keys of this family.
inline void describe(KeyList& keys, Keys& c) {
  keys.add("memory_qkv", c.memory_qkv, "Whether the memory has projections of its own",
           value_names<MemoryProjections>())
      .read_by("memory_llama");
  keys.add("memory_init", c.memory_init, "Memory of the first chunk", value_names<MemoryInit>())
      .read_by("memory_llama");
  keys.add("memory_query", c.memory_query,
           "Whether the memory keeps its query matrix, which has no effect on the results")
      .read_by("memory_llama")
      .paper_quirk();
  keys.add("memory_ffn", c.memory_ffn, "Whether the memory passes through an MLP between chunks")
      .read_by("memory_llama");
  keys.add("memory_ffn_prenorm", c.memory_ffn_prenorm, "Whether that MLP begins with a norm")
      .read_by("memory_llama")
      .paper_quirk();
  keys.add("memory_norm", c.memory_norm, "Whether a norm follows that MLP").read_by("memory_llama");
  keys.add("memory_proj", c.memory_proj, "Whether a square matrix stands before that MLP")
      .read_by("memory_llama")
      .paper_quirk();
  keys.add("detach", c.detach, "Where gradients through the memory stop", value_names<Detach>())
      .read_by("memory_llama");
  keys.add("rope_theta", c.rope_theta, "Base of the frequencies of rotary positions",
           {.low = 0, .low_open = true})
      .read_by("blockwise_recurrent");
}

// errors: ConfigError naming the keys and their values.
void check(const Config& config);
// Sets the sizes that are not given so that they suit the others, for a new run.
void choose_sizes(Config& config, const GivenKeys& given);
// Fills in defaults that depend on other keys. Called for the models of all families.
void fill(Config& config);

}  // namespace eddy::blockwise_recurrent
