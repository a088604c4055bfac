// The token at a place of a row is drawn from word row * length + place of the key.
#include "train/tasks/recall_data.h"

#include "tensor/base/format.h"
#include "tensor/random/uniform_draw.h"
#include "train/step/batch.h"

namespace eddy::training {

std::vector<std::int64_t> RecallShape::questions() const {
  std::vector<std::int64_t> places;
  for (std::int64_t place = noise + 1; place < length(); place += every) places.push_back(place);
  return places;
}

RecallDocuments recall_documents(const RandomKey& key, std::int64_t first_row, std::int64_t rows,
                                 const RecallShape& shape) {
  if (rows < 1 || shape.secrets < 1 || shape.noise < 1 || shape.every < 1 || shape.segments < 1 ||
      shape.noise + 1 >= shape.segment)
    fail<ValueError>(
        "recall: {} rows of {} segments of {} tokens, {} secrets, asked for behind {} tokens of noise and "
        "every {} (at least 1 each, and the first question lies in the first segment: noise + 1 < segment)",
        rows, shape.segments, shape.segment, shape.secrets, shape.noise, shape.every);
  const auto length = static_cast<std::size_t>(shape.length());
  const std::vector<std::int64_t> questions = shape.questions();
  RecallDocuments documents;
  documents.tokens.resize(static_cast<std::size_t>(rows) * length);
  documents.labels.assign(documents.tokens.size(), kNotScored);
  for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row) {
    std::int32_t* tokens = documents.tokens.data() + row * length;
    std::int32_t* labels = documents.labels.data() + row * length;
    const std::uint64_t first = (static_cast<std::uint64_t>(first_row) + row) * length;
    const auto draw = [&](std::size_t place, std::int64_t bound) {
      return static_cast<std::int32_t>(uniform_below(key, first + place, static_cast<std::uint64_t>(bound)));
    };
    tokens[0] = 2 + draw(0, shape.secrets);
    for (std::size_t place = 1; place < length; ++place)
      tokens[place] = static_cast<std::int32_t>(2 + shape.secrets) + draw(place, kRecallNoise);
    for (const std::int64_t place : questions) {
      tokens[place] = kRecallQuestion;
      labels[place] = tokens[0];
    }
  }
  return documents;
}

}  // namespace eddy::training
