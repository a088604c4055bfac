// Staircase and Cached Staircase.
// Source: Ju, Roller, Sukhbaatar, Weston, "Staircase Attention for Recurrent Processing of Sequences" (2021),
// with the boundary between segments made exact.
//
// A sequence is cut into chunks of C tokens. At row s chunk s enters; the window holds the last N chunks, and
// each row advances the active ones (the last M; plain staircase: M = N) by one pass through the same layers:
//
//   row s:   frozen s-N+1 .. s-M | active s-M+1 .. s      queries: the active ones; keys: all, causal
//   row s+1:        s-N+2 .. s-M+1 |      s-M+2 .. s+1    chunk s-M+1 is final after row s: its output, and
//                                                         from now on keys and values only
//
// A segment of K chunks runs rows 0 .. K+M-2; the last M-1 take no new tokens (the flush). State, constant:
//   act.s.l  [batch, (M-1-s) C, dim]  what layer l saw at flush row K+s ("exact"), or gave there ("official",
//            as in the authors' code: one layer ahead); keys and values of the next segment's row s
//   done     [batch, (N-1) C, dim]    with M < N: final states of the last N-1 chunks. With M = N nothing is
//            frozen and none is written; one that is given to the cached model is taken and left out
// With an empty cold start they are shorter as long as there is no longer past.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/staircase/family.h"

namespace eddy {

class Staircase final : public StaircaseFamily {
 public:
  Staircase(const ModelConfig& config, const ParamScope& scope);

  // Specification of the cost: M passes over the visible keys, one projection of frozen chunks, and of the
  // carried state.
  double forward_macs_per_token(std::int64_t time) const override;

 private:
  // A stream's rows n = 1 .. M of the current chunk: what pass n sees; `past` finished or carried chunks lie
  // before this one (at most N-1), `filled` tokens of it are there, `since` since the segment began.
  struct Position {
    std::int64_t filled = 0, past = 0, since = 0;
  };

  Segment run_segment(const Tensor& x, const State& state, Run& run) const override;
  // What a layer saw at one of a segment's first steps, as activations; undefined where there is nothing.
  Tensor carried_rows(const State& state, std::int64_t step, std::int64_t layer) const;
  Segment run_rows(const Tensor& x, const State& state, Run& run) const;
  Segment run_literal(const Tensor& x, const State& state, Run& run) const;
  State begin_stream(const State& imported, std::int64_t batch) const override;
  Tensor run_stream(const Tensor& x, State& state) const override;
  State cold_state(std::int64_t batch) const override;
  State import_state(const State& state, std::int64_t batch) const override;
  void check_time(std::int64_t time) const override;
  bool has_outer_dropout() const override { return true; }

  // Chunks that a state of act and done holds, N-1 at most.
  std::int64_t past_chunks(const State& state) const;
  // A stream between two chunks as the state of a segment.
  State export_stream(const State& stream) const;
  void finish_chunk(State& stream, Position& position) const;
  Tensor stream_piece(const Tensor& x, State& stream, const Position& position) const;

  bool has_frozen() const { return passes_ < steps_; }
  // The cached model's state holds final states (`done`), also where M = N and nothing reads them.
  bool has_done() const { return config().model == "cached_staircase" && steps_ > 1; }
  bool official() const { return config().carry == "official"; }
  // What pass n of a chunk sees of those before it, in chunks: frozen ones and active ones.
  std::int64_t active_before(std::int64_t pass, std::int64_t past) const;
  std::int64_t frozen_before(std::int64_t pass, std::int64_t past) const;
  Tensor positions() const;

  const std::int64_t steps_, passes_, chunk_;  // N, M, C
  StaircaseCore core_;
};

}  // namespace eddy
