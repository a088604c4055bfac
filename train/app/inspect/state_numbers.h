// What the numbers of a model's state say: which of them tells one answer from the others? The state is read after
// every token of a stream, and each of its numbers is taken as a measurement:
//
//   separation = |m - m'| / sqrt((v + v') / 2)
//
// where m and v are the mean and the variance of the number where the answer is the one asked about, and m' and v'
// where it is another one. It counts in standard deviations; 5 leaves no overlap to speak of.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "models/eddy/registry.h"
#include "train/step/batch.h"

namespace eddy::app {

struct StateNumber {
  std::string tensor;      // of the state
  std::int64_t index = 0;  // in a row of it
  double separation = 0;
  double mean = 0, other_mean = 0;

  // "layers.0.k[17]".
  std::string name() const;
};

struct StateStudy {
  std::vector<StateNumber> numbers;     // the largest separation first
  std::int64_t answers = 0, right = 0;  // of the model
  std::int64_t rows = 0, time = 0;
  std::vector<double> values;  // of the first of `numbers` after each token, [rows * time]
  std::vector<char>
      is_answer;  // whether the answer there is the one asked about, [rows * time]; 2: no answer
};

// Streams the rows of a batch through the model, token by token, twice. Numbers of the state are those of tensors with
// a row for each stream and a size that does not grow. Numbers that never change are left out.
// errors: ValueError where the model keeps no such state, or where the answers are all alike; those of Model::stream.
StateStudy study_state(const Model& model, const training::Batch& batch, std::int32_t answer,
                       const std::function<void(std::int64_t done, std::int64_t total)>& progress = {});

// What a picture of the first number says.
struct StateCaption {
  std::string answer, others;  // "odd", "even"
  std::int64_t trained = 0;    // tokens of a row in training; 0: not marked
};

// The picture as SVG: the number along the first stream, and beside it how often it takes each value in all of them.
std::string draw_state(const StateStudy& study, const StateCaption& caption);

}  // namespace eddy::app
