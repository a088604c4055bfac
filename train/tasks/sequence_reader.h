// Reading sequences segment by segment: every row of a batch follows one sequence to its end and then takes
// the next, so that a model's state can go on from batch to batch. Serves continuous reading of a text (its
// sequences are equal spans, or the files of a folder), documents, and streams with labels of their own.
//
//   row 0   [ sequence 2: 0-7 | 8-15 | 16-20 pad ][ sequence 5: 0-7 | ...      start is 1 at each [
//   row 1   [ sequence 0: 0-7 | 8-15 | 16-23 | 24-31 | ...
//   batch         0         1        2             3
//
// Sources: S. Liang, "Block-wise Recurrent Transformer", its continuous loading; Hutchins et al.,
// "Block-recurrent transformers" (2022), its document pipeline.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "train/step/batch.h"

namespace eddy {

// Tokens and what is to be said at each of them. Both must outlive the reader.
struct Sequence {
  std::span<const std::int32_t> tokens;
  std::span<const std::int32_t> labels;  // as many, kNotScored where nothing is scored; empty: the next token
};

struct ReadingOptions {
  std::int64_t rows = 1;
  std::int64_t segment = 1;  // tokens of a row in one batch
  std::uint64_t seed = 0;    // of the order and the offset
  // false: only whole segments are read, and the last token of one has the first of the next as its target.
  // true: the last segment of a sequence is filled up with token 0, and targets lie inside the segment: its
  // last position has none.
  bool pad = false;
  bool skip_zero = false;      // positions whose input or target is 0 are not scored
  bool shuffle = false;        // each pass over the sequences takes them in an order of its own
  bool random_offset = false;  // the first pass begins anywhere, later ones within the first segment
  bool once = false;           // each sequence once, then the end; else passes without end
};

class SequenceReader {
 public:
  // errors: ValueError when a size is not positive, there is no sequence, labels differ in number from
  // tokens, or a sequence is too short: for one segment, or, with `pad`, all are too short to predict
  // anything.
  SequenceReader(std::vector<Sequence> sequences, const ReadingOptions& options);

  // Fills the next batch and goes on by one segment. Returns false, and leaves the batch alone, when `once`
  // is set and everything was read. Rows that have nothing more to read hold token 0 and nothing scored.
  bool next(Batch& batch);

  // Where a row of the last batch stood.
  struct Place {
    std::int64_t sequence = -1;  // -1: the row had nothing more to read
    std::int64_t position = 0;   // of the segment's first token in it
  };
  const std::vector<Place>& places() const { return places_; }

  // The targets of one pass from offset 0, before skip_zero.
  std::int64_t targets() const;

  // Positions as {"next", "rows", "sequences"}; load takes them over. errors of load: FormatError for damaged
  // values; ConfigError when the number of rows or sequences is another. Nothing is changed then.
  nlohmann::json save() const;
  void load(const nlohmann::json& saved, const std::string& file);

 private:
  struct Row {
    std::int64_t sequence = -1;  // -1: takes the next one
    std::int64_t position = 0;   // of the next segment
  };

  std::int64_t least(const Sequence& sequence) const;
  bool readable(const Row& row) const;
  bool take(Row& row);
  void shuffle_pass(std::int64_t pass);

  std::vector<Sequence> sequences_;
  ReadingOptions options_;
  std::vector<Row> rows_;
  std::vector<Place> places_;
  std::int64_t next_ = 0;            // sequences taken so far, counted over all passes
  std::int64_t pass_ = -1;           // whose order stands in order_
  std::vector<std::int64_t> order_;  // of the sequences in that pass
};

// Tokens cut into `spans` sequences of equal length; what is left over at the end belongs to none.
std::vector<Sequence> equal_spans(const Sequence& whole, std::int64_t spans);

}  // namespace eddy
