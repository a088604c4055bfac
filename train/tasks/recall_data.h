// A task that attention of limited reach cannot do: a secret is told once, at the beginning of a document,
// and asked for long after. It shows in seconds whether a state carries anything.
//
//   token   s  n  n  n  ...  n  ?  n  ...  n  ?  n  ...                        n drawn from 8 noise tokens
//   label   .  .  .  .  ...  .  s  .  ...  .  s  .  ...                        . not scored
//   place   0  1             noise noise+1      noise+1+every                  up to segments * segment - 1
//
// Ids: 0 is padding and does not occur, 1 asks, 2 .. 1 + secrets are the secrets, the next 8 are noise. The
// answer is said by the label alone and never stands in the input, so the secret at place 0 is all there is
// to find. A model that looks back `noise` tokens or fewer can but guess: ln(secrets) nats. The document is
// read in `segments` segments of equal length; what is asked in later ones must come from the carried state.
// source: the idea is that of a test of recurrence for Hutchins et al., "Block-recurrent transformers"
// (2022); the construction is this project's.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/random/philox.h"

namespace eddy {

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
  // Places of the questions, rising.
  std::vector<std::int64_t> questions() const;
};

// Whole documents, [rows, length] each, row by row; kNotScored where a label is none.
struct RecallDocuments {
  std::vector<std::int32_t> tokens, labels;
};

// Documents, a pure function of (key, first_row + row).
// errors: ValueError unless all sizes are at least 1 and the first question lies in the first segment.
RecallDocuments recall_documents(const RandomKey& key, std::int64_t first_row, std::int64_t rows,
                                 const RecallShape& shape);

}  // namespace eddy
