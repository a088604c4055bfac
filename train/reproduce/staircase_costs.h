// What a token costs the attention models of the staircase family: Eddy's counts, and beside them the closed
// formulas. Source of those for work: the costs in Ju, Roller, Sukhbaatar, Weston, "Staircase Attention for
// Recurrent Processing of Sequences" (2021), with every term counted. With L layers of width H, F in the MLP,
// inner width I = heads * head_dim, segments of T, windows of S (N chunks of C), M passes and V logits, in
// floating-point operations (two per multiply-add), forward:
//
//   staircases        M L (8 H I + 4 H F + 6 N C I)
//                     + 4 (N-M) L H I              keys and values of frozen chunks, made again in each row
//                     + 2 M (M-1) L C H I / T      those of the carried state
//   transformer_xl    L (8 H I + 4 H F + 6 S I + 4 (S/T) H I);  ladder, universal: times R repeats
//   feedback          L (8 H I + 4 H F + 6 S I)
//   all               + 2 H V
//
// Windows are full: NC keys for every query of the staircase, where the causal ones are half of the newest
// chunks'.
#pragma once

#include <cstdint>

#include "models/config.h"

namespace eddy {

struct StaircaseCosts {
  double flops = 0;          // forward, per token, as Eddy computes it: causal pairs, frozen rows once
  double formula_flops = 0;  // by the formula
  // What the backward pass of a token needs, by count, in bytes of f32 without weights, norms' statistics and
  // attention's log-sums: the input and the result of both norms, queries, keys, values, attended values and
  // the MLP's inner rows of every layer call; of context rows that are no queries the norm's input and
  // result, keys and values; the head's input and logits.
  double needed_bytes = 0;
};

// For a whole segment with a carried state.
// errors: ConfigError for another model.
StaircaseCosts staircase_costs(const ModelConfig& config);

}  // namespace eddy
