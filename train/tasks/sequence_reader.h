// Reads sequences segment by segment: each row of a batch follows one sequence to its end and then takes the
// next, so that the model's state can be carried from batch to batch. Serves streams (equal spans of a text,
// or the files of a folder), documents, and sequences with labels of their own.
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

namespace eddy::training {

// Tokens and the target at each of them. The memory behind both must outlive the reader.
struct Sequence {
  std::span<const std::int32_t> tokens;
  std::span<const std::int32_t> labels;  // one for each token, kNotScored for none; empty: the next token
};

struct ReadingOptions {
  std::int64_t rows = 1;
  std::int64_t segment = 1;  // tokens of a row in one batch
  std::uint64_t seed = 0;    // of the order and the offset
  // false: only whole segments are read; the target of a segment's last token is the next segment's first.
  // true: the last segment of a sequence is padded with token 0, and targets stay inside the segment: its
  // last position has none.
  bool pad = false;
  bool skip_zero = false;      // positions whose input or target is 0 are not scored
  bool shuffle = false;        // each epoch has its own random order of the sequences
  bool random_offset = false;  // the first epoch begins anywhere, later ones within the first segment
  bool once = false;           // one epoch; else epochs without end
};

class SequenceReader {
 public:
  // errors: ValueError when a size is not positive, when there is no sequence, when a sequence has not as
  // many labels as tokens, when one is shorter than a segment, or, with `pad`, when all are too short for a
  // target.
  SequenceReader(std::vector<Sequence> sequences, const ReadingOptions& options);

  // Fills the next batch and advances by one segment. Returns false, and leaves the batch unchanged, when
  // `once` is set and everything was read. Rows with nothing left to read hold token 0 and no targets.
  bool next(Batch& batch);

  // Where a row of the last batch stood.
  struct RowPosition {
    std::int64_t sequence = -1;  // -1: the row had nothing left to read
    std::int64_t position = 0;   // of the segment's first token in it
  };
  const std::vector<RowPosition>& row_positions() const { return row_positions_; }
  // Where the i-th token of the last batch [rows, segment] stands in its sequence.
  std::int64_t position(std::int64_t i) const {
    return row_positions_[static_cast<std::size_t>(i / options_.segment)].position + i % options_.segment;
  }

  // The number of targets of one epoch from offset 0, before skip_zero.
  std::int64_t targets() const;

  // The positions as {"next", "rows", "sequences"}.
  nlohmann::json save() const;
  // Restores saved positions; errors call them `file`. With `grown` they may be of fewer sequences, the first of
  // these: each row goes on to the end of its own, and an epoch of all begins.
  // errors: FormatError for damaged values; ConfigError for another number of rows or sequences. Nothing is
  // changed then.
  void load(const nlohmann::json& saved, const std::string& file, bool grown = false);

 private:
  struct Row {
    std::int64_t sequence = -1;  // -1: takes the next one
    std::int64_t position = 0;   // of the next segment
  };

  std::int64_t tokens_needed(const Sequence& sequence) const;
  bool readable(const Row& row) const;
  bool take_sequence(Row& row);
  void shuffle_epoch(std::int64_t epoch);

  std::vector<Sequence> sequences_;
  ReadingOptions options_;
  std::vector<Row> rows_;
  std::vector<RowPosition> row_positions_;
  std::int64_t next_ = 0;            // sequences taken so far, counted over all epochs
  std::int64_t epoch_ = -1;          // whose order stands in order_
  std::vector<std::int64_t> order_;  // of the sequences in that epoch
};

// A sequence cut into `spans` of equal length; the remainder at the end is left out.
std::vector<Sequence> equal_spans(const Sequence& whole, std::int64_t spans);

}  // namespace eddy::training
