// Small models of the staircase family for its tests.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "tests/models/compare.h"
#include "tests/models/family_case.h"

namespace eddy::test {

// Widths that are no multiple of anything: heads times head_dim is not dim.
inline ModelConfig staircase_config(const std::string& model) {
  ModelConfig c;
  c.family = "staircase";
  c.model = model;
  c.vocab = 13;
  c.n_out = 11;
  c.dim = 10;
  c.mlp_dim = 17;
  c.heads = 3;
  c.head_dim = 5;
  c.layers = model == "universal" ? 1 : 2;
  c.repeats = model == "universal" || model == "ladder" ? 3 : 1;
  c.chunk = 3;
  c.steps = 3;
  c.span = model == "staircase" || model == "cached_staircase" ? 11 : 5;
  c.segment = 12;
  c.embed_dim = 7;
  return c;
}

// Every model with every switch that changes numbers.
inline std::vector<ModelCase> staircase_cases() {
  std::vector<ModelCase> all;
  const auto add = [&](const std::string& name, const std::string& model, auto&& change) {
    ModelConfig c = staircase_config(model);
    change(c);
    all.push_back({name, c});
  };
  const auto nothing = [](ModelConfig&) {};
  const auto empty = [](ModelConfig& c) { c.cold_start = "empty"; };
  add("staircase", "staircase", nothing);
  add("staircase, empty", "staircase", empty);
  add("staircase, post-norm, long window", "staircase", [](ModelConfig& c) {
    c.prenorm = false;
    c.steps = 4;
    c.chunk = 2;
    c.span = 8;
    c.segment = 2;
  });
  add("staircase, long window, empty, short segments", "staircase", [](ModelConfig& c) {
    c.steps = 5;
    c.chunk = 2;
    c.span = 10;
    c.segment = 4;
    c.cold_start = "empty";
  });
  add("staircase, official", "staircase", [](ModelConfig& c) { c.carry = "official"; });
  add("staircase, official, shortest segments", "staircase", [](ModelConfig& c) {
    c.carry = "official";
    c.segment = 6;
    c.prenorm = false;
  });
  add("staircase, one step", "staircase", [](ModelConfig& c) { c.steps = 1; });
  add("cached, one pass", "cached_staircase", [](ModelConfig& c) { c.cache_after = 1; });
  add("cached, one pass, empty, long window", "cached_staircase", [](ModelConfig& c) {
    c.cache_after = 1;
    c.steps = 5;
    c.chunk = 2;
    c.segment = 4;
    c.cold_start = "empty";
  });
  add("cached, two passes of four", "cached_staircase", [](ModelConfig& c) {
    c.cache_after = 2;
    c.steps = 4;
    c.chunk = 2;
    c.segment = 2;
  });
  add("cached, three passes of five, official, post-norm", "cached_staircase", [](ModelConfig& c) {
    c.cache_after = 3;
    c.steps = 5;
    c.chunk = 2;
    c.segment = 4;
    c.carry = "official";
    c.prenorm = false;
  });
  add("cached, all passes", "cached_staircase", [](ModelConfig& c) { c.cache_after = 3; });
  add("ladder", "ladder", nothing);
  add("xl", "transformer_xl", nothing);
  add("xl, span longer than the segment", "transformer_xl", [](ModelConfig& c) { c.segment = 4; });
  add("xl, empty, post-norm", "transformer_xl", [](ModelConfig& c) {
    c.cold_start = "empty";
    c.prenorm = false;
    c.segment = 3;
  });
  add("universal", "universal", nothing);
  add("universal, empty, post-norm", "universal", [](ModelConfig& c) {
    c.cold_start = "empty";
    c.prenorm = false;
    c.segment = 4;
  });
  add("feedback", "feedback", nothing);
  add("feedback, shared", "feedback", [](ModelConfig& c) { c.shared_kv = true; });
  add("feedback, shared, post-norm, empty", "feedback", [](ModelConfig& c) {
    c.shared_kv = true;
    c.prenorm = false;
    c.cold_start = "empty";
    c.segment = 3;
  });
  add("feedback, last, self", "feedback", [](ModelConfig& c) {
    c.feedback_memory = "last";
    c.feedback_self = true;
    c.shared_kv = true;
  });
  add("feedback, self, short span", "feedback", [](ModelConfig& c) {
    c.feedback_self = true;
    c.span = 2;
  });
  add("feedback, official", "feedback", [](ModelConfig& c) {
    c.feedback_carry = "official";
    c.segment = 3;
  });
  add("feedback, official, shared, long segments", "feedback", [](ModelConfig& c) {
    c.feedback_carry = "official";
    c.shared_kv = true;
    c.segment = 8;
  });
  add("lstm", "lstm", nothing);
  for (const char* model : {"staircase", "cached_staircase", "ladder", "transformer_xl", "feedback", "lstm"})
    add("dropout", model, [](ModelConfig& c) {
      c.cache_after = c.model == "cached_staircase" ? 2 : 0;
      c.dropout = 0.2;
      c.emb_dropout = c.out_dropout = 0.1;
    });
  return all;
}

// Whether logits do not depend on where the sequence is cut.
inline bool cuts_leave_no_trace(const ModelConfig& c) {
  return c.carry == "exact" && c.feedback_carry == "raw";
}

inline bool has_chunks(const ModelConfig& c) {
  return c.model == "staircase" || c.model == "cached_staircase";
}

inline ForwardOutput forward_of(const Model& model, const Tensor& tokens, const State& state = {},
                                bool literal = false) {
  const NoGrad no_grad;
  ForwardInput input;
  input.tokens = tokens;
  input.state = state;
  input.literal = literal;
  return model.forward(input);
}

class StaircaseCase final : public FamilyCase {
 public:
  std::vector<ModelCase> all() const override { return staircase_cases(); }
  ModelConfig plain(const std::string& model) const override { return staircase_config(model); }

  std::int64_t call_time(const ModelConfig& c) const override {
    return (5 + c.segment) / c.segment * c.segment;
  }
  std::int64_t uneven_time(const ModelConfig& c) const override {
    if (!has_chunks(c)) return whole_segments(c) + std::min<std::int64_t>(c.segment - 1, 5);
    return whole_segments(c) + (c.carry == "exact" && c.chunk < c.segment ? c.chunk : c.segment);
  }
  std::int64_t rest_of(const ModelConfig& c) const override { return uneven_time(c) - whole_segments(c); }
  std::vector<std::int64_t> lengths_of(const ModelConfig& c) const override {
    // A token without a past sees nothing where the past is empty: two of them.
    if (!has_chunks(c)) return {c.cold_start == "empty" ? 2 : 1, c.segment, uneven_time(c)};
    if (c.carry == "official") return {c.segment, uneven_time(c)};
    return {c.chunk, c.segment, uneven_time(c)};
  }
  StreamCut stream_cut(const ModelConfig& c) const override {
    if (!has_chunks(c)) return {};
    return {c.chunk, "1 of " + std::to_string(c.chunk) + " tokens"};
  }

  Starts starts(const ModelConfig&) const override { return Starts::segments; }
  bool mixes_starts(const ModelConfig& c) const override {
    return c.cold_start == "zeros" || c.model == "lstm";
  }

  bool has_kinks(const ModelConfig& c) const override { return c.model != "lstm"; }
  std::int64_t gradient_time(ModelConfig& c) const override {
    return c.segment = has_chunks(c) ? (c.steps + 1) * c.chunk : 7;
  }
  std::int64_t gradient_segment(const ModelConfig& c) const override { return c.segment; }
  bool forms_share_masks(const ModelConfig&) const override { return true; }

 private:
  static std::int64_t whole_segments(const ModelConfig& c) {
    return (11 + c.segment) / c.segment * c.segment;
  }
};

inline const FamilyCase& staircase_case() {
  static const StaircaseCase family;
  return family;
}

}  // namespace eddy::test
