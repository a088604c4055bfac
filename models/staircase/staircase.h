// Staircase and Cached Staircase.
// Source: Ju, Roller, Sukhbaatar, Weston, "Staircase Attention for Recurrent Processing of Sequences" (2021),
// with exact values across the boundary between segments.
//
// A sequence is cut into chunks of C tokens. At row s chunk s enters; the window holds the last N chunks, and
// each row advances the active ones (the last M; plain staircase: M = N) by one pass through the same layers:
//
//   row s     | frozen s-N+1 .. s-M   | active s-M+1 .. s   |      queries: active chunks; keys: all, causal
//   row s+1   | frozen s-N+2 .. s-M+1 | active s-M+2 .. s+1 |
//
// Chunk s-M+1 is finished after row s: this is its output. After that it only provides keys and values.
//
// A segment of K chunks runs rows 0 .. K+M-2; in the last M-1 rows no new tokens enter (the flush). State,
// detached:
//
//   act.s.l   [batch, (M-1-s) C, dim]   source of keys and values in row s, layer l of the next segment:
//                                       the input of layer l at flush row K+s (carry = "exact"), or its
//                                       output there, one layer ahead (carry = "official", the authors' code).
//                                       With M < N this concerns the M active passes alone
//   done      [batch, (N-1) C, dim]     outputs of the last N-1 chunks; only in cached_staircase. With
//                                       M = N nothing reads it
//
// With cold_start "empty" they are shorter until the past is long enough.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "autograd/seq_buffer.h"
#include "models/staircase/family.h"

namespace eddy {

class Staircase final : public StaircaseFamily {
 public:
  Staircase(const staircase::Config& config, const ParamScope& scope);

  std::optional<std::vector<std::int64_t>> stream_signature(const State& state) const override;
  bool is_recurrent() const override { return true; }
  bool has_blocks() const override { return true; }
  std::int64_t stream_period() const override { return chunk_; }
  std::int64_t recurrent_steps() const override { return passes_; }

 private:
  // The position of a stream: tokens so far of the current chunk (`filled`), finished or carried chunks
  // before it, at most N-1 (`past`), and tokens so far of the segment (`segment_tokens`).
  struct Position {
    std::int64_t filled = 0, past = 0, segment_tokens = 0;
  };

  Segment run_segment(const Tensor& x, const State& state, Run& run) const override;
  // act.step.layer of a state, as activations; undefined where there is none.
  Tensor carried_rows(const State& state, std::int64_t step, std::int64_t layer) const;
  Segment run_rows(const Tensor& x, const State& state, Run& run) const;
  // One step of run_rows: which one, of a segment of how many chunks, and the frozen chunks that it sees, as rows
  // [frozen_begin, frozen_end) of each layer's keys and values.
  struct Step {
    std::int64_t number = 0, chunks = 0, frozen_begin = 0, frozen_end = 0;
    std::vector<SeqBuffer> frozen_keys{}, frozen_values{};
  };
  // The active chunks x after it. Steps after the segment's last chunk set their part of the next state.
  Tensor run_step(const Tensor& x, const Step& step, const State& state, const LayerCall& call,
                  Recompute recompute, State& next) const;
  Segment run_literal(const Tensor& x, const State& state, Run& run) const;
  State begin_stream(const State& imported, std::int64_t batch) const override;
  Tensor run_stream(const Tensor& x, State& state) const override;
  StateLayout state_layout(std::int64_t batch, std::int64_t past) const override;
  StateLayout stream_layout(std::int64_t batch, const std::vector<std::int64_t>& position) const override;
  std::vector<std::int64_t> most_position() const override;
  std::int64_t most_past() const override { return steps_ - 1; }
  State import_state(const State& state, std::int64_t batch) const override;
  void check_time(std::int64_t time) const override;
  bool has_outer_dropout() const override { return true; }

  // The number of chunks in a segment's state, N-1 at most.
  std::int64_t past_chunks(const State& state) const;
  // The state of a stream between two chunks, as the state of a segment.
  State export_stream(const State& stream) const;
  void finish_chunk(State& stream, Position& position) const;
  Tensor stream_piece(const Tensor& x, State& stream, const Position& position) const;

  bool has_frozen() const { return passes_ < steps_; }
  // Whether the state has `done`: in the cached model, even if M = N and nothing reads it.
  bool has_done() const { return config().model == "cached_staircase" && steps_ > 1; }
  bool official() const { return value_is(config().carry, staircase::Carry::official); }
  // The number of active and of frozen chunks that pass n of a chunk sees before it.
  std::int64_t active_before(std::int64_t pass, std::int64_t past) const;
  std::int64_t frozen_before(std::int64_t pass, std::int64_t past) const;
  // The number of tokens in both.
  std::int64_t rows_before(std::int64_t pass, std::int64_t past) const {
    return std::min(past, steps_ - pass) * chunk_;
  }
  Tensor positions() const;

  const std::int64_t steps_, passes_, chunk_;  // N, M, C
  StaircaseCore core_;
};

}  // namespace eddy
