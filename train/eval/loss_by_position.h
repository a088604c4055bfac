// The loss against the position in what is read, as a small page: does a model profit from what lies far
// back? Source: Hutchins et al., "Block-recurrent transformers" (2022), appendix H, cumulative cross-entropy.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/eval/evaluate.h"

namespace eddy {

// Points of a curve over positions.
struct PositionCurve {
  std::vector<double> positions;  // counted from 1
  std::vector<double> bits;       // per token
};

// The mean over all targets up to each position, every document counted as far as it goes.
PositionCurve cumulative_bits(const EvalResult& result);
// The mean over the targets of a stretch of positions; stretches grow by an eighth of where they begin, so
// that a logarithmic axis shows them alike. Stretches without a target are left out.
PositionCurve local_bits(const EvalResult& result);

// What a line of the page's charts shows.
struct NamedResult {
  std::string name;  // "the state carried"
  EvalResult result;
};

// The page with both curves of each result. Works with results without positions, and says so.
std::string render_loss_by_position(const std::string& title, const std::string& subtitle,
                                    const std::vector<NamedResult>& results);

}  // namespace eddy
