// A page of charts of the loss by position in a document: does a model use distant context? All losses are in nats, as
// in the terminal. Source: Hutchins et al., "Block-recurrent transformers" (2022), appendix H, cumulative
// cross-entropy, and figure 6, which also shows how many documents are that long.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/eval/evaluate.h"

namespace eddy::app {

// Points of a curve over positions.
struct PositionCurve {
  std::vector<double> positions;  // counted from 1
  std::vector<double> nats;       // per target
};

// The mean over all targets up to each position; each document counts up to its own length.
PositionCurve cumulative_nats(const training::EvalResult& result);
// The mean over the targets of each interval of positions. The length of an interval is an eighth of its
// first position, so that all look equal on a logarithmic axis. Intervals without a target are omitted.
PositionCurve local_nats(const training::EvalResult& result);

// How many texts reach a position. Scored targets are counted, so that a text ends at its last one; the first and the
// last position of each stretch of the same number are listed.
struct PositionTexts {
  std::vector<double> positions;  // counted from 1
  std::vector<double> texts;      // never rises
};
PositionTexts texts_by_position(const training::EvalResult& result);

// One line in the page's charts.
struct NamedResult {
  std::string name;  // "the state carried"
  training::EvalResult result;
};

// What the page says and draws beside the curves.
struct PositionMarks {
  std::string target = "token";  // what a loss is of: "token", "target"
  std::int64_t border = 0;       // positions before the end of the first segment; 0: not drawn
};

// What the results show, in one or two sentences: the loss before and behind the border, or at the beginning and at the
// end where there is none, with the state and with it cleared (the second result), and against chance. Empty for
// results without positions.
std::string position_sentence(const std::vector<NamedResult>& results, const PositionMarks& marks);

// The HTML page with both curves of each result, chance and the border. When no result has positions, the page says so.
std::string render_loss_by_position(const std::string& title, const std::string& subtitle,
                                    const std::vector<NamedResult>& results, const PositionMarks& marks = {});

}  // namespace eddy::app
