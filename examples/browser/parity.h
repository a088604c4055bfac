// A small model that learns parity from nothing, as both pages train it, apart from how the browser calls it
// (parity_exports.cpp).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "models/eddy/registry.h"
#include "models/optimizer/adam.h"

namespace eddy::browser {

// One layer that learns, behind each bit of a random stream, whether the ones so far are odd, as in
// examples/configs/parity.toml, at a constant learning rate. With recurrence, seeds 1 to 10 give 99.5 % or more right
// answers at 16 bits from step 100 on, and all of them right from step 110 to 150. Without, the same layer with the
// same initial numbers attends to all bits so far: at 400 steps some 57 % are right.
class Parity {
 public:
  Parity(std::uint64_t seed, bool recurrent);

  // One step of training, on new streams of 16 bits; returns its loss in nats.
  double step();
  std::int64_t steps() const { return adam_->steps(); }
  // The share of right answers on new streams of so many bits.
  // errors: ValueError for less than one bit.
  double accuracy(std::int64_t bits) const;
  // The probability of odd behind each of these bits.
  // errors: ValueError for no bits, or for one that is neither 0 nor 1.
  std::vector<float> answers(const std::vector<std::int32_t>& bits) const;

  // The state behind each bit of streams that are the same at every call, seen from two sides: sideways from the mean
  // of the even ones to the mean of the odd ones, upwards along that direction across it in which they differ most.
  // errors: ValueError for less than one stream or bit, and without recurrence, where no state of one size is kept.
  struct Point {
    float sideways, upwards;
    bool odd;
  };
  std::vector<Point> states(std::int64_t streams, std::int64_t bits) const;

 private:
  std::unique_ptr<Model> model_;
  std::unique_ptr<Adam> adam_;
  std::uint64_t seed_;
  bool recurrent_;
};

}  // namespace eddy::browser
