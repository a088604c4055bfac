// What the models of the staircase family share: the loop over segments, with a detached state between them,
// the embedding, the head, and the checks of tokens and states.
//
//   tokens   | segment | segment | rest |
//   state    s0 -----> s1 -----> s2 ---> s3
//
//   logits = LN_f(h) W^T + b          once for all segments; without LN_f in post-norm models
//
// Each model defines one segment, one piece of a stream, and the state before the first token.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "models/model.h"
#include "models/staircase/layer.h"
#include "models/staircase/stream_rows.h"

namespace eddy {

class StaircaseFamily : public FamilyModel<staircase::Keys> {
 public:
  StaircaseFamily(const staircase::Config& config, const ParamScope& scope);
  ~StaircaseFamily() override;

  // The logits of whole segments. input.state: a state of forward, or one of stream at a place where a
  // segment may end. input.start resets rows to the state before the first token.
  // errors: ShapeError for tokens or states of other sizes; ValueError for a state of another model, and,
  // with cold_start "empty", for flags in only some of the rows.
  ForwardOutput forward(const ForwardInput& input) const final;
  void check_length(std::int64_t time, bool /*carried*/) const final { check_time(time); }
  std::int64_t segments(std::int64_t time) const final {
    return (time + config().segment - 1) / config().segment;
  }
  std::optional<KeySetting> needs_equal_starts() const override {
    if (cold_zeros()) return std::nullopt;
    return KeySetting{"cold_start", value_name(staircase::ColdStart::empty),
                      value_name(staircase::ColdStart::zeros)};
  }
  // state: as for forward, or that of a stream, which holds computed keys and values and does not grow.
  // Copies of a state continue independently.
  Tensor stream(const Tensor& tokens, State& state) const final;
  std::int64_t remaining_context(const State&) const final { return -1; }
  std::optional<std::vector<std::int64_t>> stream_signature(const State& state) const override {
    return counts_of(state);
  }
  std::int64_t stream_period() const override { return 1; }
  // The head has its own weights.
  std::int64_t table_elements() const override { return config().vocab * config().dim; }

 protected:
  // How one call of forward runs.
  struct Run {
    DropoutSite drop;
    bool literal = false;
    std::uint64_t calls = 0;  // calls of layers so far; names their dropout masks
    Recompute recompute = Recompute::none;
    std::int64_t first = 0;  // the token of the call at which the segment begins
  };
  struct Segment {
    Tensor hidden;  // like x
    State state;    // detached
  };

  // One segment of embedded tokens.
  // shapes: x [batch, time, width], or [time, batch, width] when time_major().
  virtual Segment run_segment(const Tensor& x, const State& state, Run& run) const = 0;
  // The state of a stream that continues from the state of a segment.
  virtual State begin_stream(const State& imported, std::int64_t batch) const = 0;
  // The same numbers as run_segment, without a graph; updates the state of a stream.
  virtual Tensor run_stream(const Tensor& x, State& state) const = 0;
  virtual bool time_major() const { return false; }
  // The tensors of a segment's state behind `past` tokens or chunks, and the most of these that it keeps.
  virtual StateLayout state_layout(std::int64_t batch, std::int64_t past) const = 0;
  virtual std::int64_t most_past() const { return 0; }
  // The state before the first token; empty with cold_start "empty".
  State cold_state(std::int64_t batch) const {
    return cold_zeros() ? zeros_of(state_layout(batch, most_past())) : State();
  }
  // The state that a caller passed, checked and as the state of a segment: that of a stream is converted.
  virtual State import_state(const State& state, std::int64_t batch) const = 0;
  // The tensors of a stream's state at a position, without the position itself, whose numbers are at most these. Both
  // are empty for a model whose streams carry the state of a segment.
  virtual StateLayout stream_layout(std::int64_t batch, const std::vector<std::int64_t>& position) const = 0;
  virtual std::vector<std::int64_t> most_position() const = 0;
  // errors: ShapeError if this number of tokens cannot be cut into segments of whole chunks.
  virtual void check_time(std::int64_t) const {}
  virtual bool has_outer_dropout() const { return false; }

  // The dtype of the parameters, which states share, and their device.
  Dtype dtype() const { return head_weight_.dtype(); }
  Device device() const { return head_weight_.device(); }
  Tensor zeros(const Shape& shape) const { return Tensor::zeros(shape, dtype(), device()); }
  bool cold_zeros() const { return value_is(config().cold_start, staircase::ColdStart::zeros); }
  // Rows of a stream (stream_rows.h): their declaration, new ones of zeros, those that a state has under `name`, and
  // those under kStreamRows with room for `count` more behind `end`: where there is none, rows [begin, end) move to the
  // front.
  StateTensor rows_tensor(const std::string& name, std::int64_t layers, std::int64_t batch,
                          std::int64_t capacity) const;
  StreamRows new_rows(std::int64_t layers, std::int64_t batch, std::int64_t capacity) const;
  StreamRows rows_of(State& state, const std::string& name = kStreamRows) const;
  StreamRows rows_with_room(State& state, std::int64_t& begin, std::int64_t& end, std::int64_t count) const;
  // Rows [begin, end) of the vectors x of a stream's data, as part of a segment's state.
  Tensor stream_inputs(const Tensor& data, std::int64_t layer, std::int64_t begin, std::int64_t end) const;

 private:
  // errors: those of check_state for a stream's state that is not one of this model.
  void check_stream(const State& stream, std::int64_t batch) const;
  Tensor embed(const Tensor& tokens) const;
  Classifier head(const Tensor& hidden, const DropoutContext& context) const;
  // The state with flagged rows reset to the state before the first token.
  State restarted(const State& state, const Tensor& start, std::int64_t segment) const;

  Tensor embed_weight_;
  std::optional<LayerNorm> final_norm_;
  Tensor head_weight_, head_bias_;
};

// Whether a state is one of a stream.
bool is_stream(const State& state);

// x as part of a state: detached and row-major.
Tensor carried(const Tensor& x);
// The last `count` entries on axis 1 of `before` followed by `x`, or all if there are fewer, as part of a
// state. `before` may be null.
Tensor last_rows(const Tensor* before, const Tensor& x, std::int64_t count);
// "act.1.0": a name with two numbers.
std::string numbered(const char* name, std::int64_t a, std::int64_t b);
// a followed by b on the axis of tokens; either may be undefined.
Tensor joined(const Tensor& a, const Tensor& b);

// The core of the models with attention: the position table and the layers.
struct StaircaseCore {
  StaircaseCore(const ParamScope& scope, const staircase::Config& config, bool shared_kv);

  Tensor key_pe;  // [head_dim, span], one for all layers and heads
  std::vector<StaircaseLayer> layers;
};

}  // namespace eddy
