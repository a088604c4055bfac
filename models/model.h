// What every model family offers to training, evaluation and generation.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "autograd/state.h"
#include "models/classifier.h"
#include "models/config.h"
#include "models/dropout_site.h"
#include "models/params.h"
#include "ops/cast/cast.h"

namespace eddy {

// One call over a batch of sequences.
struct ForwardInput {
  Tensor tokens;           // [batch, time] i64 or i32
  State state;             // what the call before returned; empty: the family's cold start, and all that a
                           // model without a state takes
  Tensor start;            // [batch, segments] i64 or undefined: 1 where a row begins anew; on any device
  std::int64_t tail = 0;   // with readout tail: how many last positions give logits
  DropoutContext dropout;  // off by default: evaluation
  std::int64_t block = 0;  // positions per block of this call where the model has blocks; 0: config().block
  bool literal =
      false;  // the equations word for word instead of the order chosen for speed, where a family has both
  bool logits = true;  // whether the logits are computed; who wants their loss alone has it of the classifier
};

struct ForwardOutput {
  Tensor logits;  // [batch, rows, n_out]; rows = time, 1 or tail, by the model's readout; if asked for
  State state;    // to be carried on; empty for models that begin afresh with every call
  Classifier classifier;  // what the logits are made of

  // What a model returns to a call.
  ForwardOutput(const ForwardInput& input, Classifier last, State after)
      : logits(input.logits ? last.logits() : Tensor()),
        state(std::move(after)),
        classifier(std::move(last)) {}
};

class Model {
 public:
  explicit Model(ModelConfig config) : config_(std::move(config)) {}
  virtual ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  // The logits of whole sequences, differentiable in every parameter.
  // errors: ShapeError for tokens of other rank or longer than the position table, and for a state of other
  // sizes; ValueError for ids outside the vocabulary, and for a state that is not one of this model.
  virtual ForwardOutput forward(const ForwardInput& input) const = 0;
  // Refuses what forward would refuse of training calls on rows of `time` tokens, so that it is known before
  // a run begins; `carried`: each call goes on from the state of the one before.
  // errors: those of forward.
  virtual void check_length(std::int64_t /*time*/, bool /*carried*/) const {}
  // What of the model such training would leave unused, in words; "" for nothing.
  virtual std::string unused_by(std::int64_t /*time*/, bool /*carried*/) const { return {}; }

  // Generation: logits [batch, time, n_out] of the next positions, and the state moved past them. An empty
  // state begins a sequence. Constant memory for recurrent models.
  // errors: ValueError when the model cannot go on (context full).
  virtual Tensor stream(const Tensor& tokens, State& state) const = 0;
  // How many more positions `stream` takes after this state; -1 for no limit.
  virtual std::int64_t stream_room(const State& state) const = 0;

  // The state after a call of `forward` with what recurrence wrote set back to its beginning; keys and values
  // of cached tokens stay. Empty, a cold start, where a model carries nothing besides.
  // errors: those of forward for a state that is not its own.
  virtual State without_recurrence(const State&) const { return {}; }
  // Numbers by name that tell how recurrence is doing, read from the parameters and such a state; none in
  // models that have no such numbers.
  virtual std::vector<std::pair<std::string, double>> diagnostics(const State&) const { return {}; }

  // Multiply-adds of one training token's forward pass without the dead ones, for the floor in benchmarks.
  virtual double forward_macs_per_token(std::int64_t time) const = 0;

  // x as activations are computed: in the parameters' dtype, or in bf16. What enters the layers goes through
  // this; what is carried from call to call, and sums along a recurrence, stay in the parameters' dtype.
  Tensor activation(const Tensor& x) const { return cast(x, params_.activations()); }

  const ModelConfig& config() const { return config_; }
  const ParamStore& params() const { return params_; }
  ParamStore& params() { return params_; }

 private:
  friend std::unique_ptr<Model> make_model(const ModelConfig&, Dtype, Device);
  ModelConfig config_;
  ParamStore params_;
};

// A model as configured, its parameters allocated and not initialised. dtype: what it computes in; with bf16
// parameters, their gradients and all states are f32, and activations and products bf16.
// errors: ConfigError for an unknown model (the nearest is named) or sizes that contradict each other.
std::unique_ptr<Model> make_model(const ModelConfig& config, Dtype dtype = Dtype::f32, Device device = kCpu);

// The parameters such a model would have, without allocating them.
ParamStore count_parameters(const ModelConfig& config);

// One row of the registry.
struct ModelEntry {
  std::string family, model;
  std::string summary;
  std::function<std::unique_ptr<Model>(const ModelConfig&, ParamScope)> make;
};
const std::vector<ModelEntry>& model_registry();

// Configurations of the papers, by name, with the number of parameters they must have.
struct NamedConfig {
  std::string name;
  ModelConfig config;
  std::int64_t parameters;
};
std::vector<NamedConfig> paper_configs();

}  // namespace eddy
