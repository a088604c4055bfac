// Which sequence a row reads next, and the batches cut from them.
#include "train/tasks/sequence_reader.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "tensor/base/format.h"
#include "tensor/random/philox.h"
#include "tensor/random/random_tensors.h"
#include "tensor/random/uniform_draw.h"

namespace eddy::training {
namespace {

using nlohmann::json;

std::int64_t length_of(const Sequence& sequence) {
  return std::ssize(sequence.tokens);
}

std::int64_t integer_at(const json& object, const char* key, const std::string& file) {
  if (!object.is_object() || !object.contains(key) || !object[key].is_number_integer())
    fail<FormatError>("data: {} is damaged: reading positions lack the whole number \"{}\"", file, key);
  return object[key].get<std::int64_t>();
}

}  // namespace

SequenceReader::SequenceReader(std::vector<Sequence> sequences, const ReadingOptions& options)
    : sequences_(std::move(sequences)), options_(options) {
  if (options.rows < 1 || options.segment < 1)
    fail<ValueError>("data: {} rows of {} tokens (at least 1 each)", options.rows, options.segment);
  bool any = false;
  for (std::size_t i = 0; i < sequences_.size(); ++i) {
    const Sequence& sequence = sequences_[i];
    if (!sequence.labels.empty() && sequence.labels.size() != sequence.tokens.size())
      fail<ValueError>("data: sequence {} has {} tokens and {} labels (as many of each)", i,
                       sequence.tokens.size(), sequence.labels.size());
    const bool enough = length_of(sequence) >= tokens_needed(sequence);
    if (!enough && !options.pad)
      fail<ValueError>(
          "data: sequence {} of {} has {} tokens, and a segment needs {} (take longer texts, fewer rows by "
          "train.batch, or a shorter train.sequence)",
          i, sequences_.size(), length_of(sequence), tokens_needed(sequence));
    any = any || enough;
  }
  if (!any)
    fail<ValueError>(
        "data: none of {} sequences has a token to predict (at least 2 tokens in one are needed)",
        sequences_.size());
  rows_.resize(static_cast<std::size_t>(options.rows));
}

// The least number of tokens that one more segment of a sequence needs.
std::int64_t SequenceReader::tokens_needed(const Sequence& sequence) const {
  const std::int64_t ahead = sequence.labels.empty() ? 1 : 0;  // the target of the last token
  return (options_.pad ? 1 : options_.segment) + ahead;
}

bool SequenceReader::readable(const Row& row) const {
  if (row.sequence < 0) return false;
  const Sequence& sequence = sequences_[static_cast<std::size_t>(row.sequence)];
  return length_of(sequence) - row.position >= tokens_needed(sequence);
}

void SequenceReader::shuffle_epoch(std::int64_t epoch) {
  if (epoch == epoch_) return;
  epoch_ = epoch;
  if (options_.shuffle) {
    order_ = randperm(std::ssize(sequences_),
                      random_key(options_.seed, "data.order", static_cast<std::uint64_t>(epoch)))
                 .to_vector<std::int64_t>();
    return;
  }
  order_.resize(sequences_.size());
  std::iota(order_.begin(), order_.end(), std::int64_t{0});
}

// Gives the row the next sequence that can be read. Returns false when there is none.
bool SequenceReader::take_sequence(Row& row) {
  const auto count = std::ssize(sequences_);
  for (;; ++next_) {
    if (options_.once && next_ >= count) return false;
    const std::int64_t epoch = next_ / count;
    shuffle_epoch(epoch);
    row.sequence = order_[static_cast<std::size_t>(next_ % count)];
    row.position = 0;
    const Sequence& sequence = sequences_[static_cast<std::size_t>(row.sequence)];
    // The number of positions where a segment can begin.
    const std::int64_t room = length_of(sequence) - tokens_needed(sequence) + 1;
    if (room < 1) continue;
    if (options_.random_offset) {
      // One draw for the whole epoch: equal spans then end together, and each epoch cuts the text elsewhere.
      const RandomKey key = random_key(options_.seed, "data.offset", static_cast<std::uint64_t>(epoch));
      const std::int64_t bound = epoch == 0 ? room : std::min(room, options_.segment);
      row.position = static_cast<std::int64_t>(uniform_below(key, 0, static_cast<std::uint64_t>(bound)));
    }
    ++next_;
    return true;
  }
}

bool SequenceReader::next(Batch& batch) {
  const std::int64_t segment = options_.segment;
  const auto cells = static_cast<std::size_t>(options_.rows * segment);
  std::vector<std::int32_t> tokens(cells, 0), targets(cells, kNotScored);
  std::vector<std::int64_t> starts(rows_.size(), 0);
  std::vector<RowPosition> row_positions(rows_.size());
  bool any = false;
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    Row& row = rows_[r];
    if (!readable(row)) {
      starts[r] = 1;
      if (!take_sequence(row)) {
        row.sequence = -1;
        continue;
      }
    }
    any = true;
    row_positions[r] = {row.sequence, row.position};
    const Sequence& sequence = sequences_[static_cast<std::size_t>(row.sequence)];
    const std::int64_t left = length_of(sequence) - row.position, here = std::min(segment, left);
    const std::int32_t* from = sequence.tokens.data() + row.position;
    std::int32_t* input = tokens.data() + static_cast<std::int64_t>(r) * segment;
    std::int32_t* target = targets.data() + static_cast<std::int64_t>(r) * segment;
    std::copy_n(from, here, input);
    if (!sequence.labels.empty())
      std::copy_n(sequence.labels.data() + row.position, here, target);
    else
      std::copy_n(from + 1, options_.pad ? here - 1 : here, target);
    if (options_.skip_zero)
      for (std::int64_t t = 0; t < here; ++t)
        if (input[t] == 0 || target[t] == 0) target[t] = kNotScored;
    row.position += segment;
  }
  if (!any) return false;
  row_positions_ = std::move(row_positions);
  batch = make_batch(options_.rows, std::move(tokens), std::move(targets), starts);
  return true;
}

std::int64_t SequenceReader::targets() const {
  std::int64_t total = 0;
  for (const Sequence& sequence : sequences_) {
    const std::int64_t length = length_of(sequence), ahead = sequence.labels.empty() ? 1 : 0;
    if (options_.pad)  // each segment, the last one too, has one target less than tokens
      total += length - ahead * ((length + options_.segment - 1) / options_.segment);
    else
      total += (length - ahead) / options_.segment * options_.segment;
  }
  return total;
}

json SequenceReader::save() const {
  json rows = json::array();
  for (const Row& row : rows_) rows.push_back({{"sequence", row.sequence}, {"position", row.position}});
  return {{"next", next_}, {"rows", std::move(rows)}, {"sequences", sequences_.size()}};
}

void SequenceReader::load(const json& saved, const std::string& file, bool grown) {
  std::int64_t next = integer_at(saved, "next", file);
  const auto count = std::ssize(sequences_);
  if (next < 0 || !saved.contains("rows") || !saved["rows"].is_array())
    fail<FormatError>("data: {} is damaged: reading positions without rows", file);
  const json& rows = saved["rows"];
  // The rows first: of a stream train.batch also sets the number of sequences.
  if (rows.size() != rows_.size())
    fail<ConfigError>("data: {} was read in {} rows, and train.batch is {} (resume with train.batch {})",
                      file, rows.size(), rows_.size(), rows.size());
  const std::int64_t theirs = integer_at(saved, "sequences", file);
  const bool has_more = grown && theirs > 0 && theirs < count;
  if (theirs != count && !has_more)
    fail<ConfigError>(
        "data: {} was read from {} sequences, and there are {} (resume with the same [data] keys and text)",
        file, theirs, count);
  std::vector<Row> loaded;
  for (const json& row : rows) {
    const Row place{integer_at(row, "sequence", file), integer_at(row, "position", file)};
    // A position may lie beyond the end by less than a segment: the row then takes the next sequence.
    if (place.sequence < -1 || place.sequence >= theirs || place.position < 0 ||
        place.position > (std::int64_t{1} << 60))
      fail<FormatError>("data: {} is damaged: a row at position {} of sequence {}, of {}", file,
                        place.position, place.sequence, theirs);
    loaded.push_back(place);
  }
  if (has_more) {  // the epoch after the one that they read
    const std::int64_t epoch = next / theirs + (next % theirs > 0 ? 1 : 0);
    if (epoch > (std::int64_t{1} << 60) / count)
      fail<FormatError>("data: {} is damaged: {} sequences read", file, next);
    next = epoch * count;
  }
  next_ = next;
  rows_ = std::move(loaded);
}

std::vector<Sequence> equal_spans(const Sequence& whole, std::int64_t spans) {
  if (spans < 1) fail<ValueError>("data: {} spans (at least 1)", spans);
  const std::size_t length = whole.tokens.size() / static_cast<std::size_t>(spans);
  std::vector<Sequence> parts;
  for (std::size_t i = 0; i < static_cast<std::size_t>(spans); ++i)
    parts.push_back({whole.tokens.subspan(i * length, length),
                     whole.labels.empty() ? whole.labels : whole.labels.subspan(i * length, length)});
  return parts;
}

}  // namespace eddy::training
