// Recurrent transformers (Kausik 2025): what all share, the regular transformer, and unit recurrence with
// forget. Blocks of several positions are in recurrent_transformer/block_variant.h.
//
//   regular:      y = T_L(… T_1(x))
//   unit_forget:  h_1 = T(x_1);  (y_{t-1}, h_t) = T(h_{t-1} || x_t);  y_n = T(h_n)      per layer, layer
//   after layer logits = LN_f(y) Whead^T,  x = dropout(embed[token] + pos_embed[position])
//
// The first half of a window cannot see the second, so y_t = T(h_t) for every t: outputs leave the loop. With
// one query and two keys the softmax is a gate per head; see ops/recurrence/unit_recurrence.h for the chain that
// remains.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "models/recurrent_transformer/transformer_layer.h"

namespace eddy {

// What the variants share: embeddings, readout and head.
class RecurrentTransformer : public Model {
 public:
  RecurrentTransformer(const ModelConfig& config, const ParamScope& scope);
  ~RecurrentTransformer() override;

  ForwardOutput forward(const ForwardInput& input) const override;
  void check_length(std::int64_t time, bool /*carried*/) const override { check_positions(time); }
  double forward_macs_per_token(std::int64_t time) const override;

 protected:
  // All layers over embedded tokens [batch, time, dim], or time-major where the variant says so: the last
  // `rows` positions, or all of them in the literal form.
  virtual Tensor run_layers(const Tensor& x, std::int64_t rows, const DropoutSite& drop,
                            const ForwardInput& input) const = 0;
  // Whether run_layers takes and gives [time, batch, dim].
  virtual bool time_major(bool literal) const = 0;

  void check_tokens(const Tensor& tokens, std::int64_t first_position) const;
  // errors: ValueError when so many positions do not fit into the table.
  void check_positions(std::int64_t positions) const;
  // What a stream's state holds besides its position, after `position` tokens of `batch` rows: each tensor's
  // name and shape.
  using NamedShapes = std::vector<std::pair<std::string, Shape>>;
  virtual NamedShapes stream_shapes(std::int64_t batch, std::int64_t position) const = 0;
  // Where a stream stands, 0 in an empty state. Refuses tokens that do not go on with it, and a state that is
  // not one of this model: a tensor that is missing is no cold start.
  // errors: ShapeError, ValueError.
  std::int64_t check_stream(const Tensor& tokens, const State& state) const;
  // The tokens of a whole sequence, and no state: nothing is carried from call to call.
  void check_input(const ForwardInput& input) const;
  // How many last positions give logits.
  // errors: ValueError for a tail outside the sequence.
  std::int64_t rows_read(const ForwardInput& input) const;
  // The same where no tail is known, which then counts as one row.
  std::int64_t least_rows(std::int64_t time) const { return config().readout == "all" ? time : 1; }
  // Embedded tokens of the positions from `first`; tokens [batch, time], or [time, batch] when time-major.
  Tensor embed(const Tensor& tokens, std::int64_t first, bool is_time_major) const;
  // The end of the model over hidden rows.
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
  // State: position, and keys and values of the tokens so far in layers.i.k, layers.i.v [batch, context,
  // dim], written in place: to go on twice from one state, copy its tensors first. Caches of fewer rows will
  // do as long as the tokens fit.
  Tensor stream(const Tensor& tokens, State& state) const override;
  std::int64_t stream_room(const State& state) const override;
  double forward_macs_per_token(std::int64_t time) const override;

 private:
  Tensor run_layers(const Tensor& x, std::int64_t rows, const DropoutSite& drop,
                    const ForwardInput& input) const override;
  bool time_major(bool) const override { return false; }
  NamedShapes stream_shapes(std::int64_t batch, std::int64_t position) const override;
};

class UnitForget final : public RecurrentTransformer {
 public:
  using RecurrentTransformer::RecurrentTransformer;
  // State: position, and key and value of the last h in layers.i.k, layers.i.v [batch, dim].
  Tensor stream(const Tensor& tokens, State& state) const override;
  std::int64_t stream_room(const State& state) const override;

 private:
  Tensor run_layers(const Tensor& x, std::int64_t rows, const DropoutSite& drop,
                    const ForwardInput& input) const override;
  bool time_major(bool literal) const override { return !literal; }
  NamedShapes stream_shapes(std::int64_t batch, std::int64_t position) const override;
  // One layer in the order chosen for speed, time-major: outputs of the last `rows` positions. `keys` and
  // `values` carry the last h's in and out; may be null.
  Tensor run_hoisted(const TransformerLayer& layer, const Tensor& x, std::int64_t rows,
                     const DropoutSite& drop, Tensor* key, Tensor* value) const;
  Tensor run_literal(const TransformerLayer& layer, const Tensor& x, const DropoutSite& drop) const;
};

}  // namespace eddy
