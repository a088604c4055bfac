// The splits of a text that grew while it was trained on, phase by phase.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "train/tasks/sequence_reader.h"
#include "train/tasks/text_data.h"
#include "train/text/corpus.h"

namespace eddy::training {
namespace {

using Tokens = std::span<const std::int32_t>;

// A text of a split, with the name of its file.
struct Named {
  Tokens tokens;
  std::string file;
};
struct Splits {
  std::vector<Named> train, valid, test;
};

// Spans for the rows of a batch, fewer where the text is short.
void add_spans(std::vector<Named>& split, Tokens tokens, std::int64_t rows, std::int64_t segment) {
  const std::int64_t fitting = std::ssize(tokens) / (segment + 1);
  if (fitting < 1) return;
  for (const Sequence& span : equal_spans({tokens, {}}, std::min(rows, fitting)))
    split.push_back({span.tokens, ""});
}

// One text, cut by tokens as it is cut without phases.
void cut_joined(Splits& splits, Tokens all, const RunConfig& config) {
  const auto train = static_cast<std::size_t>(part_of(config.data.split, std::ssize(all)));
  const auto test = static_cast<std::size_t>(part_of(config.data.test, std::ssize(all)));
  const Tokens valid = all.subspan(train, all.size() - train - test);
  if (value_is(config.data.order, DataOrder::windows)) {
    splits.train.push_back({all.first(train), ""});
    splits.valid.push_back({valid, ""});
    splits.test.push_back({all.last(test), ""});
    return;
  }
  const std::int64_t segment = segment_length(config);
  add_spans(splits.train, all.first(train), config.train.batch, segment);
  add_spans(splits.valid, valid, config.train.batch, segment);
  add_spans(splits.test, all.last(test), config.train.batch, segment);
}

// How many files of a phase are trained on and validated. The first phase is cut as it is without others; of a later
// one, which need not validate, few files are all trained on.
std::pair<std::int64_t, std::int64_t> cut_files(std::int64_t files, bool first, const RunConfig& config,
                                                bool validates) {
  const std::int64_t rest = files - part_of(config.data.test, files);
  if (!first) {
    constexpr double kRounding = 1e-9;
    const auto train =
        static_cast<std::int64_t>(std::ceil(config.data.split * static_cast<double>(files) - kRounding));
    return {std::clamp<std::int64_t>(train, std::min<std::int64_t>(1, rest), rest), rest};
  }
  const std::int64_t most = validates && rest > 1 ? rest - 1 : rest;
  return {std::clamp<std::int64_t>(part_of(config.data.split, files), 1, most), rest};
}

}  // namespace

TextData with_own_splits(TextData data, const RunConfig& config, bool training) {
  const bool validates = !training || config.train.eval_every > 0;
  Splits splits;
  std::int64_t read = 0;
  for (const DataPhase& phase : data.phases) {
    read = phase.first + phase.parts;
    if (phase.joined) {
      cut_joined(splits, data.part(phase.first), config);
      continue;
    }
    auto [train, rest] = cut_files(phase.parts, &phase == &data.phases.front(), config, validates);
    if (data.has_splits()) {
      train = phase.train_parts;
      rest = phase.parts;
    }
    for (std::int64_t i = 0; i < phase.parts; ++i) {
      std::vector<Named>& split = i < train ? splits.train : i < rest ? splits.valid : splits.test;
      split.push_back({data.part(phase.first + i), data.files[static_cast<std::size_t>(phase.first + i)]});
    }
  }
  for (; read < data.parts(); ++read)  // the folder's own test split
    splits.test.push_back({data.part(read), data.files[static_cast<std::size_t>(read)]});

  TextData result;
  for (const std::vector<Named>* split : {&splits.train, &splits.valid, &splits.test})
    for (const Named& part : *split) result.add_part(part.tokens, part.file);
  result.train_parts = std::ssize(splits.train);
  result.valid_parts = std::ssize(splits.valid);
  data.tokens = std::move(result.tokens);
  data.ends = std::move(result.ends);
  data.files = std::move(result.files);
  data.train_parts = result.train_parts;
  data.valid_parts = result.valid_parts;
  return data;
}

}  // namespace eddy::training
