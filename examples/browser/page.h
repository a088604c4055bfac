// What the page computes, apart from how the browser calls it (exports.cpp): trained models that continue a text while their
// state is looked at and changed, and a small model that learns parity from nothing.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "autograd/state.h"
#include "models/eddy/registry.h"
#include "models/optimizer/adam.h"
#include "ops/product/packed_weights.h"
#include "train/generate/generate.h"

namespace eddy::browser {

using namespace training;

// A model file of the page: parameters in bf16 under their names, and as metadata "model", the keys of [model] as JSON, and
// "tokenizer", the JSON of its vocabulary.
inline constexpr const char *kModelKey = "model", *kTokenizerKey = "tokenizer";

// A model that reads letter by letter, with the weights packed that these products of one row need again and again.
struct Reader {
  std::unique_ptr<Model> model;
  std::shared_ptr<PackedWeights> packed = std::make_shared<PackedWeights>();
};
// The model that such a file's keys describe, with the parameters of the file in f32.
// errors: IoError; FormatError; ConfigError.
Reader load_model(const std::string& path);

// One tensor of a state as the page draws it: a matrix, with all leading axes as rows.
struct StateView {
  std::string name;
  std::int64_t rows = 0, columns = 0;
  std::vector<float> values;
  double norm = 0;  // the square root of the sum of squares
  bool frozen = false;
};

// A text in progress, with the model's state after it.
class Text {
 public:
  // Reads tokens, one after another; what is frozen keeps its values.
  // errors: those of Model::stream; ValueError for no tokens.
  void read(const Reader& reader, const std::vector<std::int32_t>& ids);
  // f32 [n_out], of the token after the last one read.
  const std::vector<float>& logits() const { return logits_; }
  // The token drawn from these logits; it is not read yet.
  // errors: those of sample_token; ValueError before anything was read.
  std::int32_t draw(const SampleOptions& options) const;
  std::int64_t position() const { return position_; }

  // The floating tensors of the state.
  std::vector<StateView> views() const;
  // Sets a tensor of the state to zeros.
  // errors: ValueError for a name that the state does not have.
  void forget(const std::string& name);
  // Keeps a tensor of the state as it is now, or lets it go.
  // errors: as forget.
  void freeze(const std::string& name, bool on);
  // Exchanges the states, and what is frozen, of two texts; what was read and the logits stay.
  void swap_state(Text& other);

 private:
  const Tensor& tensor(const std::string& name) const;

  State state_;
  std::map<std::string, Tensor> frozen_;
  std::vector<float> logits_;
  std::int64_t position_ = 0;
};

// A layer of unit recurrence that learns, behind each bit of a random stream, whether the bits so far are odd: the model of
// examples/configs/parity.toml, at a constant learning rate. Seeds 1 to 10 give 99.5 % or more right answers at 16 bits from
// step 100 on, and all of them right from step 110 to 150.
class Parity {
 public:
  explicit Parity(std::uint64_t seed);

  // One step of training, on new streams of 16 bits; returns its loss in nats.
  double step();
  std::int64_t steps() const { return adam_->steps(); }
  // The share of right answers on new streams of so many bits.
  // errors: ValueError for less than one bit.
  double accuracy(std::int64_t bits) const;

  // The state behind each bit of streams that are the same at every call, seen from two sides: sideways from the mean of
  // the even ones to the mean of the odd ones, upwards along that direction across it in which the states differ most.
  // errors: ValueError for less than one stream or bit.
  struct Point {
    float sideways, upwards;
    bool odd;
  };
  std::vector<Point> states(std::int64_t streams, std::int64_t bits) const;

 private:
  std::unique_ptr<Model> model_;
  std::unique_ptr<Adam> adam_;
  std::uint64_t seed_;
};

}  // namespace eddy::browser
