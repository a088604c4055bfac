// Recurrent transformers (Kausik 2025): what all models of the family share, the regular transformer, and
// unit recurrence with forget. Recurrence over blocks of several positions is in block_recurrence.h.
//
//   x = dropout(embed[token] + pos_embed[position])
//
//   regular:      y = T_L(.. T_1(x))
//   unit_forget:  h_1            = T(x_1)
//                 (y_{t-1}, h_t) = T(h_{t-1} || x_t)      t = 2 .. n, one layer after the other
//                 y_n            = T(h_n)
//
//   logits = LN_f(y) Whead^T
//
// The first half of a window cannot see the second, so y_t = T(h_t) for every t: the outputs are computed
// after the loop, all at once. With one query and two keys the softmax is a gate per head; the loop that
// remains is ops/recurrence/unit_recurrence.h.
//
// With keep_state the recurrences go on from call to call: the last h of a call is the first half of the next call's
// first window, held constant. Its output is that of the call before.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/recurrent_transformer/transformer_layer.h"

namespace eddy {

// What one call takes from the call before it and leaves to the next (model.keep_state). State of `forward`:
//
//   layers.i.state    [batch, rows, dim]   h of the last block, which may be a short one
//   layers.i.spread   [batch, rows, dim]   p, half of which the next window adds to both halves       (accumulate)
//
// It also takes a state of `stream` at the end of a block, which has the keys and values of the window's first half.
struct CarriedRows {
  State before;        // empty: all rows begin with a new state
  Tensor begin;        // u8 [batch], not 0 for rows that begin with a new state; undefined: none does
  bool keeps = false;  // whether something is left
  State after;
  Tensor below;  // accumulate: the last block's outputs of the layer below, given that another block follows

  // Rows of the call before, constants; undefined without a state.
  Tensor rows(const std::string& name, Dtype dtype) const;
  // Keys and values [batch, rows, 2 dim] of h in the call before; undefined without a state.
  Tensor past(const WindowLayer& layer, Dtype dtype) const;
  // The rows of `going_on`, and of `beginning()` for rows that begin with a new state.
  template <class Beginning>
  Tensor chosen(const Tensor& going_on, Beginning&& beginning) const {
    return begin.defined() ? restart_rows(going_on, beginning(), begin) : going_on;
  }
  // Leaves rows [batch, rows, dim] to the next call.
  void keep(const std::string& name, const Tensor& kept);
};

// The base class of the variants: embeddings, readout and head.
class RecurrentTransformer : public FamilyModel<recurrent_transformer::Keys> {
 public:
  RecurrentTransformer(const recurrent_transformer::Config& config, const ParamScope& scope);
  ~RecurrentTransformer() override;

  ForwardOutput forward(const ForwardInput& input) const override;
  void check_length(std::int64_t time, bool /*carried*/) const override { check_positions(time); }
  bool is_recurrent() const override { return config().keep_state; }
  // -1, or what is left of the position table.
  std::int64_t remaining_context(const State& state) const override;
  std::int64_t stream_period() const override { return config().block; }
  std::int64_t table_elements() const override {
    return Model::table_elements() + (config().positions ? config().context * config().dim : 0);
  }
  // By Table 1 (paper_operations.h).
  double paper_operations(std::int64_t tokens) const override;
  // A state whose size does not depend on the length: only its position changes.
  std::optional<State> stream_after(const State& state, std::int64_t length) const override;

 protected:
  // The outputs of all layers for embedded tokens: those of the last `rows` positions, or of all positions in
  // the literal form.
  // shapes: x [batch, time, dim], or [time, batch, dim] if time_major(input.literal).
  virtual Tensor run_layers(const Tensor& x, std::int64_t rows, const DropoutSite& drop,
                            const ForwardInput& input, CarriedRows& carried) const = 0;
  // Returns body(inputs, carried) of one layer, which is recomputed if the call asks for it.
  using LayerBody = std::function<std::vector<Tensor>(const std::vector<Tensor>&, CarriedRows&)>;
  static std::vector<Tensor> run_layer_again(const ForwardInput& input, const std::vector<Tensor>& inputs,
                                             CarriedRows& carried, LayerBody body);
  // Whether run_layers takes and returns [time, batch, dim].
  virtual bool time_major(bool literal) const = 0;

  // errors: ValueError when the position table has fewer rows.
  void check_positions(std::int64_t positions) const;
  // The tensors of a stream's state, except `position`, after `position` tokens of `batch` rows.
  virtual StateLayout stream_layout(std::int64_t batch, std::int64_t position) const = 0;
  // The state of `forward`; empty if it carries none.
  virtual StateLayout carried_layout(std::int64_t /*batch*/) const { return {}; }
  // The same at the end of a whole block.
  virtual StateLayout whole_layout(std::int64_t batch) const { return carried_layout(batch); }
  // `rows` rows of h in each layer, or, with growing_axis 1, at least so many.
  StateLayout hidden_layout(std::int64_t batch, std::int64_t rows, int growing_axis) const;
  // Whether `stream` is to go on from a state of `forward`.
  bool is_of_call(const State& state) const {
    return config().keep_state && !state.empty() && state.find("position") == nullptr;
  }
  // `stream` from such a state, which becomes one of a stream at the end of a block.
  // errors: those of a state of `forward`; ShapeError for one whose last block is short.
  Tensor stream_from_call(const Tensor& tokens, State& state) const;
  // Sets what a stream keeps of a layer at the end of a block.
  virtual void open_layer(State& /*stream*/, const WindowLayer&, const CarriedRows&) const {}
  // The position of a stream, 0 for an empty state.
  // errors: ShapeError, ValueError for tokens that do not continue it, and for a state that is not one of
  // this model; a missing tensor is an error, not a cold start.
  std::int64_t check_stream(const Tensor& tokens, const State& state) const;
  // errors: those of tokens, and of a state and start flags that do not fit: ValueError for any state without
  // keep_state, and for that of a stream inside a block.
  void check_input(const ForwardInput& input) const;
  // What a checked call carries.
  CarriedRows carried_rows(const ForwardInput& input) const;
  // The number of last positions that give logits.
  // errors: ValueError for a tail longer than the sequence.
  std::int64_t rows_read(const ForwardInput& input) const;
  // The embedded tokens of positions from `first` on.
  // shapes: tokens [batch, time], or [time, batch] when time-major.
  Tensor embed(const Tensor& tokens, std::int64_t first, bool is_time_major) const;
  // The final norm and the head over hidden rows y.
  Classifier head(const Tensor& y, bool is_time_major) const;

  std::vector<TransformerLayer> layers_;
  Embedding embed_;
  Tensor positions_;  // [context, dim]; undefined without positions

 private:
  LayerNorm final_norm_;
  Tensor head_weight_;  // the token table when tied
};

class RegularTransformer final : public RecurrentTransformer {
 public:
  using RecurrentTransformer::RecurrentTransformer;
  // State: position, and keys and values of the tokens so far in layers.i.k, layers.i.v [batch, rows, dim]. Without a
  // position table nothing bounds them: a cache has room for `context` tokens at first, and a full one doubles.
  // aliasing: the caches are written in place. To continue twice from one state, copy its tensors first.
  Tensor stream(const Tensor& tokens, State& state) const override;
  std::optional<std::vector<std::int64_t>> stream_signature(const State&) const override {
    return std::nullopt;
  }
  // The first rows of the caches, with room for one more token. Rows that no token has written are zeros.
  std::optional<State> stream_after(const State& state, std::int64_t length) const override;

 private:
  Tensor run_layers(const Tensor& x, std::int64_t rows, const DropoutSite& drop, const ForwardInput& input,
                    CarriedRows& carried) const override;
  bool time_major(bool) const override { return false; }
  StateLayout stream_layout(std::int64_t batch, std::int64_t position) const override;
};

class UnitForget final : public RecurrentTransformer {
 public:
  using RecurrentTransformer::RecurrentTransformer;
  // State: position, and key and value of the last h in layers.i.k, layers.i.v [batch, dim]. With keep_state also that
  // of `forward`, to go on from.
  Tensor stream(const Tensor& tokens, State& state) const override;
  std::optional<std::vector<std::int64_t>> stream_signature(const State& state) const override;

 private:
  Tensor run_layers(const Tensor& x, std::int64_t rows, const DropoutSite& drop, const ForwardInput& input,
                    CarriedRows& carried) const override;
  bool time_major(bool literal) const override { return !literal; }
  StateLayout stream_layout(std::int64_t batch, std::int64_t position) const override;
  StateLayout carried_layout(std::int64_t batch) const override { return hidden_layout(batch, 1, -1); }
  void open_layer(State& stream, const WindowLayer& layer, const CarriedRows& carried) const override;
  // One layer in the fast form, time-major: the outputs of the last `rows` positions. `carried` may be null. `key` and
  // `value` are those of the last h, read and replaced; may be null.
  Tensor run_fast(const TransformerLayer& layer, const Tensor& x, std::int64_t rows, const DropoutSite& drop,
                  CarriedRows* carried, Tensor* key, Tensor* value) const;
  // qkv with the first step's value replaced by what attention mixes of it and of that of the h before: the chain,
  // which begins without a state, then goes on from that h. Dropout drops both of its probabilities at once there.
  Tensor enter(const TransformerLayer& layer, const Tensor& qkv, const DropoutSite& drop,
               const CarriedRows& carried) const;
  Tensor run_literal(const TransformerLayer& layer, const Tensor& x, const DropoutSite& drop,
                     CarriedRows& carried) const;
};

}  // namespace eddy
