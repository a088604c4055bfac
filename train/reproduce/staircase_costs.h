// What a token costs the attention models of the staircase family: Eddy's own counts, and beside them closed
// formulas. The formulas are the costs in Ju, Roller, Sukhbaatar, Weston, "Staircase Attention for Recurrent
// Processing of Sequences" (2021), with every term counted.
//
//   L   layers                     T   segment length
//   H   width                      S   window length: N chunks of C tokens
//   F   width of the MLP           M   passes over each token
//   I   heads * head_dim           V   logits
//
// In floating-point operations (two per multiply-add) of the forward pass:
//
//   staircase, cached   M L (8 H I + 4 H F + 6 N C I)
//                       + 4 (N-M) L H I              keys and values of frozen chunks, recomputed in each row
//                       + 2 M (M-1) L C H I / T      keys and values of the carried state
//   transformer_xl      L (8 H I + 4 H F + 6 S I + 4 (S/T) H I)
//   ladder, universal   the same, times the number of repeats
//   feedback            L (8 H I + 4 H F + 6 S I)
//   all                 + 2 H V
//
// The windows are full: every query of the staircase counts NC keys, where the causal mask allows half of the
// newest chunk.
#pragma once

#include <cstdint>

#include "models/config.h"

namespace eddy {

struct StaircaseCosts {
  double flops = 0;          // forward, per token, as Eddy computes it: causal pairs, frozen rows once
  double formula_flops = 0;  // by the formulas above
  // What the backward pass of a token needs, in bytes of f32, without weights, statistics of norms and
  // log-sums of attention. It counts:
  //   every layer call               input and result of both norms, queries, keys, values, result of
  //                                  attention, inner rows of the MLP
  //   context rows without queries   input and result of the norm, keys, values
  //   the head                       its input and the logits
  double needed_bytes = 0;
};

// Returns the costs of a token of a whole segment with a carried state.
// errors: ConfigError for a model outside this family.
StaircaseCosts staircase_costs(const ModelConfig& config);

}  // namespace eddy
