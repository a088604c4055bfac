// What a model does on a text or on streams of its task: the loss of each token with its state and without, what each
// token changed in each state, the numbers of the states, gates, and attention. It is read segment by segment, as an
// evaluation reads it, and the values that the model names (autograd/named_values.h) are reduced to a number for each
// token before the next segment is read:
//
//   segment --> evaluate_batch --> values by path --+--> state      norm |s|, change |s - s'| / |s'|, which to show
//                                                   +--> gate       mean over heads or channels
//                                                   +--> attention  the largest keys of each token and head, in 8 bits
//           --> the same without the state of earlier segments      its losses and states
//
// A second reading, of the states alone, keeps the numbers that are shown (state_map.h).
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "train/app/inspect/inspected_stream.h"
#include "train/app/inspect/state_map.h"
#include "train/app/report/comparison.h"
#include "train/eval/evaluate.h"

namespace eddy::app {

enum class TokenMeasure : std::uint8_t {
  loss,          // nats
  loss_cleared,  // nats, with the state cleared at every segment
  norm,          // of a state behind the token: the root of the sum of squares
  change,        // the norm of what the token, or its block, changed, divided by the norm before
  moved,         // the changes of the updates that read the token, each times the attention paid to the token
  gate,          // the mean of a value over heads or channels
};

struct TokenRange {
  std::int64_t from = 0, to = 0;

  friend bool operator==(const TokenRange&, const TokenRange&) = default;
};

// One number for each token of the text; NaN where there is none.
struct TokenSeries {
  TokenMeasure measure = TokenMeasure::loss;
  std::string path{};  // of the value; empty for losses
  std::vector<float> values{};
  // Of changes: tokens behind which a state that has just begun is still small, so that the shares by which it changes
  // are large. The list of the tokens that did most leaves them out.
  std::vector<TokenRange> settling{};
};

// Where tokens look, for the tokens [from, to) of the text and each pass and head, the mean over the heads behind the
// last one. Of a row of probabilities the `kept` largest are here, in steps of 1/255.
struct AttentionView {
  std::string path;
  std::string keys;  // what the keys are; empty: tokens
  std::int64_t passes = 1, heads = 1, kept = 0, from = 0, to = 0;
  std::vector<std::int32_t> key{};    // how many tokens before the query, or the number of the key
  std::vector<std::uint8_t> share{};  // 0 behind the last
  std::vector<std::uint8_t> rest{};   // what all other keys have together

  // The place of a row in `rest`, and of its first key, divided by `kept`, in `key` and `share`.
  std::size_t row(std::int64_t pass, std::int64_t head, std::int64_t token) const {
    return static_cast<std::size_t>((pass * (heads + 1) + head) * (to - from) + token - from);
  }
};

// What a relative position adds to a score, by distance.
struct BiasCurve {
  std::string path;
  std::int64_t heads = 1;
  std::vector<float> values{};  // [heads, distances]
};

// A learned number or several that no token changes.
struct LearnedValue {
  std::string path;
  std::vector<float> values{};
};

struct InspectOptions {
  std::int64_t from = 0, to = -1;  // tokens whose attention is kept; -1: as many as `bytes` hold
  std::int64_t kept = 12;          // keys of each token and head
  std::int64_t bytes = 4'000'000;  // of attention, where `to` is -1
  std::int64_t most_bytes = 64'000'000;
  std::int64_t state_rows = 24;        // numbers of the states that the map shows
  std::int64_t state_bytes = 400'000;  // of the map
};

struct Inspection {
  std::int64_t tokens = 0, segment = 0;
  bool carried = false;  // whether a state goes from segment to segment
  double loss = 0;       // the mean, nats
  double loss_cleared = std::numeric_limits<double>::quiet_NaN();  // where a state is carried
  std::int64_t apart = 0;  // as in InspectedStream, where the state goes from part to part inside a segment
  // Of a task: the right answer behind each token and that of the model; kNotScored: none.
  std::vector<std::int32_t> answers{}, given{};
  std::vector<TokenSeries> series{};
  StateMap states{};
  std::vector<AttentionView> attention{};
  std::vector<BiasCurve> biases{};
  std::vector<LearnedValue> learned{};
  // Tokens at the end that fill no block: what is computed once for each block has no number there, for the call fills
  // the block up with padding.
  std::int64_t unfilled = 0;
  bool has_padded_bias = false;         // a bias by distance is left out, since it is a mean with padding
  std::vector<std::string> unplaced{};  // paths of values that stand to the tokens in no known way

  // The series of a measure and a path; null for none.
  const TokenSeries* find(TokenMeasure measure, const std::string& path = "") const;
};

// How many answers of the model are right, and how many it gave.
struct RightAnswers {
  std::int64_t right = 0, answers = 0;
};
RightAnswers right_answers(const Inspection& inspection);

// Reads a stream, also without its state where it has one. It is read to its end, whatever `progress` returns.
// errors: ValueError for fewer than 2 tokens, a range of attention that is not in the stream, or one that takes more
// than options.most_bytes; those of the model.
Inspection inspect_stream(const Model& model, const InspectedStream& stream, const InspectOptions& options,
                          const training::EvalProgress& progress = {});

}  // namespace eddy::app
