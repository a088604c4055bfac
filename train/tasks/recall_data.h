// A task that attention of limited reach cannot solve: a secret stands at the beginning of a document, and
// questions far behind it ask for it. It shows within seconds whether a carried state holds any information.
//
//   token   s  n  n  n  ...  n  ?  n  ...  n  ?  n  ...                        n drawn from 8 noise tokens
//   label   .  .  .  .  ...  .  s  .  ...  .  s  .  ...                        . not scored
//   place   0  1             noise noise+1      noise+1+every                  up to segments * segment - 1
//
//   id      0                  padding, does not occur
//           1                  the question
//           2 .. 1 + secrets   the secrets
//           the next 8         noise
//
// Answers occur only as labels, never in the input, so a model can learn the secret only from place 0. One
// that looks back `noise` tokens or fewer can only guess, at ln(secrets) nats. A document is read in
// `segments` segments of equal length; the answers in later segments must come from the carried state.
// Source: the idea is that of a test of recurrence for Hutchins et al., "Block-recurrent transformers"
// (2022); the construction is this project's.
#pragma once

#include <cstdint>
#include <vector>

#include "models/config_keys.h"
#include "tensor/random/philox.h"

namespace eddy::training {

// The keys of the task, beside data.noise.
struct RecallKeys {
  std::int64_t secrets = 4;   // one of which is told
  std::int64_t every = 7;     // tokens from one question to the next
  std::int64_t segments = 2;  // of a document

  friend bool operator==(const RecallKeys&, const RecallKeys&) = default;
};
void describe(KeyList& keys, RecallKeys& config);

inline constexpr std::int32_t kRecallQuestion = 1;
inline constexpr std::int64_t kRecallNoise = 8;

struct RecallShape {
  std::int64_t secrets = 4;
  std::int64_t noise = 16;    // tokens between the secret and the first question
  std::int64_t every = 7;     // from one question to the next
  std::int64_t segment = 32;  // tokens
  std::int64_t segments = 2;

  std::int64_t vocab() const { return 2 + secrets + kRecallNoise; }
  std::int64_t length() const { return segment * segments; }
  // Places of the questions, in ascending order.
  std::vector<std::int64_t> questions() const;
};

// Whole documents: tokens and labels, each [rows, length], row-major; kNotScored where there is no label.
struct RecallDocuments {
  std::vector<std::int32_t> tokens, labels;
};

// New documents; each is a pure function of (key, first_row + row).
// errors: ValueError unless all sizes are at least 1 and the first question lies in the first segment.
RecallDocuments recall_documents(const RandomKey& key, std::int64_t first_row, std::int64_t rows,
                                 const RecallShape& shape);

}  // namespace eddy::training
