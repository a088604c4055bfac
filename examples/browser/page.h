// What the large page computes, apart from how the browser calls it (exports.cpp): trained models that continue a text
// while their state is looked at and changed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "autograd/state.h"
#include "models/eddy/registry.h"
#include "ops/product/packed_weights.h"
#include "train/generate/generate.h"

namespace eddy::browser {

using namespace training;

// A model file of the page: parameters in bf16 under their names, and as metadata "model", the keys of [model] as JSON,
// and "tokenizer", the JSON of its vocabulary.
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

}  // namespace eddy::browser
