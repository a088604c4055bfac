// The configuration of a model as plain values. Here are the keys that several families read; those of one family
// are in its config.h, and all together in models/eddy/config.h.
#pragma once

#include <cstdint>
#include <string>

#include "models/config_keys.h"
#include "models/value_names.h"

namespace eddy {

// model.readout: the positions that give logits.
enum class Readout { all, last, tail };
// The names of its values.
template <>
struct ValueNames<Readout> {
  // In the order of the values.
  static constexpr const char* all[] = {"all", "last", "tail"};
};

// The keys that several families read; `describe` below says what each is.
struct CommonKeys {
  // Their defaults; a 0 often stands for what follows from other keys (fill_common).
  std::string family = "recurrent_transformer";
  std::string model = "unit_forget";
  std::int64_t vocab = 0;
  std::int64_t n_out = 0;
  std::int64_t context = 256;
  std::int64_t params = 0;
  std::int64_t dim = 384;
  std::int64_t layers = 1;
  std::int64_t heads = 6;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t mlp_dim = 0;
  double dropout = 0.0;
  double norm_eps = 0;
  double init_std = 0.02;
  bool tied = true;
  std::int64_t segment = 0;
  std::int64_t window = 0;
  std::int64_t chunk = 32;
  bool mask_token_zero = true;

  friend bool operator==(const CommonKeys&, const CommonKeys&) = default;
};

// What the models of a family see: the common keys and the family's.
template <class Keys>
struct FamilyConfig : CommonKeys, Keys {
  using FamilyKeys = Keys;  // the family's
};

// Describes the common keys, each once, but for the names of family and model.
inline void describe(KeyList& keys, CommonKeys& c) {
  keys.add("vocab", c.vocab, "Number of token ids; 0: as many as the tokenizer has", {0, 1'000'000'000});
  keys.add("n_out", c.n_out, "Number of classes that the head predicts; 0: vocab", {0, 1'000'000'000})
      .read_by("-block_recurrent");
  keys.add("context", c.context, "Longest sequence with learned positions; also the default of segment",
           {1, 1'000'000'000})
      .common();
  keys.add(
          "params", c.params,
          "Number of parameters, within 3 %, for which dim (and, if need be, mlp_dim) is found; 0: dim as given",
          {0, 1'000'000'000'000'000})
      .common();
  keys.add("dim", c.dim, "Width of the residual stream", {1, 1'048'576}).common();
  keys.add("layers", c.layers, "Number of layers", {1, 65'536}).common();
  keys.add("heads", c.heads, "Number of attention heads", {1, 65'536}).read_by("-lstm").common();
  keys.add("kv_heads", c.kv_heads, "Number of heads of keys and values; 0: heads", {0, 65'536})
      .read_by("blockwise_recurrent");
  keys.add("head_dim", c.head_dim, "Width of a head; 0: dim / heads", {0, 1'048'576})
      .read_by("block_recurrent staircase -lstm");
  keys.add("mlp_dim", c.mlp_dim,
           "Width inside the MLP; 0: 4 dim (blockwise_recurrent: 8/3 dim, up to a multiple of 32)",
           {0, 16'777'216})
      .read_by("-lstm");
  keys.add("dropout", c.dropout, "Probability of dropping a value", kBelowOne).common().changes_results();
  keys.add("norm_eps", c.norm_eps,
           "Number added to the variance in norms; 0: 1e-6 in block_recurrent, else 1e-5", {.low = 0})
      .read_by("-lstm");
  keys.add("tied", c.tied, "Whether the head uses the token table as its weight")
      .read_by("recurrent_transformer blockwise_recurrent");
  keys.add("init_std", c.init_std, "Standard deviation of initial weights", {.low = 0})
      .read_by("recurrent_transformer blockwise_recurrent")
      .changes_results();
  keys.add("segment", c.segment, "Tokens of one call; the state is detached between segments; 0: context",
           {0, 1'000'000'000})
      .common();
  keys.add("window", c.window, "Number of tokens that a token sees; 0: segment", {0, 1'000'000'000})
      .read_by("block_recurrent llama_window");
  keys.add("chunk", c.chunk,
           "Rows of the memory (memory_llama), or tokens that enter a model at a step (staircase)",
           {1, 1'000'000'000})
      .read_by("memory_llama staircase -lstm");
  keys.add("mask_token_zero", c.mask_token_zero, "Whether token 0 of documents is padding, without a loss")
      .paper_quirk();
}

// Fills in the common keys whose defaults depend on others (n_out, kv_heads, head_dim, ...).
void fill_common(CommonKeys& config);

// The length of a segment, with its default.
inline std::int64_t segment_of(const CommonKeys& c) {
  return c.segment == 0 ? c.context : c.segment;
}

// The largest number that divides `length` and is at most `most`, so that a length is cut into equal parts; `length`
// itself where all of those are small (below a quarter of `most`, or 1).
std::int64_t even_part(std::int64_t length, std::int64_t most);

// Rules between common keys that hold in several families. Each throws ConfigError.
namespace rules {

// heads divides dim, and kv_heads divides heads.
void heads(const CommonKeys&);
// head_dim, if it is given, is dim / heads.
void width_of_heads(const CommonKeys&);
// kv_heads, if it is given, is heads.
void one_kind_of_heads(const CommonKeys&);
// The width of a head is even: rotary positions turn pairs.
void even_heads(const CommonKeys&);
// A tied head predicts the token ids.
void tied_head(const CommonKeys&);

}  // namespace rules

}  // namespace eddy
