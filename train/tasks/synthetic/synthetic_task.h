// The base of tasks whose rows are drawn at random and stand alone, with an answer behind tokens of each: a task of
// one's own needs no more than its tokens and their answers.
#pragma once

#include <cstdint>
#include <string>

#include "tensor/random/philox.h"
#include "train/tasks/task.h"

namespace eddy::training {

// A task whose rows are made from step, batch and row alone, so that nothing needs to be saved:
// what copying, recall and parity share.
class SyntheticTask : public Task {
 public:
  // Rows have the length of the configuration's segments.
  explicit SyntheticTask(const RunConfig& config) : config_(config), length_(segment_length(config)) {}

  std::int64_t row_length() const final { return length_; }
  bool uses_seed(const EvalOptions&) const final { return true; }
  Batch next(std::int64_t step, std::int64_t micro) final;
  // Fresh rows, four batches for a whole evaluation. Adds "accuracy": the share of scored answers that are right.
  // errors: ValueError for another split than valid and test.
  EvalResult evaluate(const Model& model, const EvalOptions& options,
                      const EvalProgress& progress) const final;

 protected:
  // Returns a batch of `rows` rows of row_length() tokens, from random words of its own: key.word(i) is the i-th
  // (tensor/random/philox.h). Targets of -1 are not scored.
  virtual Batch draw(const RandomKey& key, std::int64_t rows) const = 0;
  const RunConfig& config() const { return config_; }

 private:
  Batch batch_of(const std::string& stream, std::uint64_t seed, std::int64_t index, std::int64_t rows) const;

  const RunConfig config_;
  const std::int64_t length_;
};

}  // namespace eddy::training
