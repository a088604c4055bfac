// The interface of every model: `forward` for training and evaluation, `stream` for generation.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "autograd/state.h"
#include "models/classifier.h"
#include "models/config.h"
#include "models/dropout_site.h"
#include "models/params.h"
#include "models/recompute.h"
#include "models/state_layout.h"
#include "ops/cast/cast.h"
#include "ops/core/cost.h"

namespace eddy {

struct ModelConfig;  // models/eddy/config.h

// One call over a batch of sequences.
struct ForwardInput {
  Tensor tokens;  // [batch, time] i64 or i32
  State state;    // what the previous call returned; empty for a cold start. Models without a state
                  // accept only an empty one
  Tensor start;   // [batch, segments] i64 or undefined: 1 where a row begins a document; on any device
  std::int64_t tail = 0;   // with readout "tail": how many last positions give logits
  DropoutContext dropout;  // off by default: evaluation
  std::int64_t block = 0;  // positions per block of this call if the model has blocks; 0: config().block
  bool literal = false;    // the paper's equations word for word (literal.cpp) instead of the fast form
  bool logits = true;      // whether the logits are computed; the classifier gives their loss without them
  Recompute recompute = Recompute::none;  // what the backward pass computes again, in the fast form
};

// What a call gives.
struct ForwardOutput {
  Tensor logits;          // [batch, rows, n_out]; rows = time, 1 or tail, by the model's readout. Undefined
                          // without input.logits
  State state;            // for the next call; empty if the model carries nothing from call to call
  Classifier classifier;  // the last layer, not yet computed

  // The output of a call, from the model's last layer and its next state.
  ForwardOutput(const ForwardInput& input, Classifier last, State after)
      : logits(input.logits ? last.logits() : Tensor()),
        state(std::move(after)),
        classifier(std::move(last)) {}
};

// A key of a config with its value, and the value that helps.
struct KeySetting {
  const char *key, *value, *instead;  // the key without its section, and two of its values
};

// A model: parameters, and how they turn tokens into logits.
class Model {
 public:
  Model() = default;
  virtual ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  // The logits of whole sequences, differentiable in every parameter.
  // errors: ShapeError for tokens of other rank or longer than the position table, and for a state of other
  // sizes; ValueError for ids outside the vocabulary, and for a state that is not one of this model.
  virtual ForwardOutput forward(const ForwardInput& input) const = 0;
  // Checks, before a run begins, that forward accepts rows of `time` tokens in training. `carried`: each call
  // continues from the state of the previous one.
  // errors: those of forward.
  virtual void check_length(std::int64_t /*time*/, bool /*carried*/) const {}
  // Returns the number of segments in a call of `time` tokens: the columns of ForwardInput::start.
  virtual std::int64_t segments(std::int64_t /*time*/) const { return 1; }
  // Returns the setting that forbids rows of one call to begin documents at different times, if one does.
  virtual std::optional<KeySetting> needs_equal_starts() const { return std::nullopt; }
  // Returns whether `forward` has a loop over the sequence whose turns Recompute::block computes again.
  virtual bool has_blocks() const { return false; }
  // errors: ConfigError for Recompute::block if there is no such loop.
  void check_recompute(Recompute recompute) const;
  // Returns the axis of a tensor of the state of `forward` that counts the rows of the batch.
  virtual int state_row_axis(const std::string& /*name*/) const { return 0; }
  // Returns whether the state of `forward` is updated from call to call, and not only a cache of what was read last.
  virtual bool is_recurrent() const { return false; }

  // Returns the logits [batch, time, n_out] of the next tokens of a sequence, for generation, and updates
  // `state`. An empty state begins a sequence. Recurrent models use constant memory. By default a call of `forward`
  // that goes on from the state of the one before: for models whose state of `forward` is all that they keep.
  // errors: ValueError when the model cannot continue (context full), or when a call leaves no state.
  virtual Tensor stream(const Tensor& tokens, State& state) const;
  // The number of tokens that `stream` still accepts after this state; -1 for no limit.
  virtual std::int64_t remaining_context(const State& /*state*/) const { return -1; }
  // Returns the position of a stream inside its block, chunk or window, for an empty state or one of `stream`:
  // the part of the position that decides which work the next token needs. If two states have the same
  // signature, and their tensors have the same names and layouts, the host enqueues the same work for both. So
  // the work can be captured once and replayed (next_logits in train/generate/generate.h). Returns nothing if the
  // work differs at every position: if the model keeps the keys of all tokens, uses a position table, or
  // rotates keys by position. By default all counters of the state.
  virtual std::optional<std::vector<std::int64_t>> stream_signature(const State& state) const {
    return counts_of(state);
  }
  // Returns the number of tokens after which the work of a stream begins again: a block, a window or a chunk; 1
  // if each token needs the same work, or more than the one before.
  virtual std::int64_t stream_period() const { return 1; }
  // Returns a state of `stream` as it is after about `length` tokens, for measuring: made from one after fewer
  // tokens, without computing those between. Its place in a period is kept, and its tensors may be views of
  // those of `state`. Returns nothing if such a state can only be computed.
  virtual std::optional<State> stream_after(const State& /*state*/, std::int64_t /*length*/) const {
    return std::nullopt;
  }
  // Returns the number of elements in tables of which a token reads one row: the token table where the head has its
  // own weights, and positions.
  virtual std::int64_t table_elements() const { return config().tied ? 0 : config().vocab * config().dim; }
  // Returns how often a token passes through the layers.
  virtual std::int64_t recurrent_steps() const { return 1; }
  // Returns the operations of a sample of `tokens` tokens by the formulas of the model's paper; NaN where it has none.
  virtual double paper_operations(std::int64_t /*tokens*/) const {
    return std::numeric_limits<double>::quiet_NaN();
  }

  // Returns a copy of a state of `forward` in which the recurrent parts have their initial values; keys and
  // values of cached tokens stay. It is empty (a cold start) if the model carries nothing else.
  // errors: those of forward for a state of another model.
  virtual State without_recurrence(const State&) const { return {}; }
  // Returns named numbers that show whether the model uses its recurrence, from the parameters and a state of
  // `forward`; empty for models without such numbers.
  virtual std::vector<std::pair<std::string, double>> diagnostics(const State&) const { return {}; }

  // Checks the tokens of a call.
  // errors: ShapeError unless they are [batch, time] with at least one row of one token.
  void check_tokens(const Tensor& tokens) const;
  // x in the dtype of activations: the parameters' dtype, or bf16. Models cast the inputs of
  // layers with it; recurrent states, and sums along a recurrence, stay in the parameters' dtype.
  Tensor activation(const Tensor& x) const { return cast(x, params_.activations()); }

  // The config, resolved: the keys that all families know, or, asked of a family's class, its keys too.
  virtual const CommonKeys& config() const = 0;
  // The config with the keys of all families, as make_model resolved it.
  // errors: ValueError for a model that make_model did not make.
  const ModelConfig& full_config() const;
  const ParamStore& params() const { return params_; }
  ParamStore& params() { return params_; }

 protected:
  // Checks a state that came from outside.
  // errors: ShapeError, also for another batch; DtypeError, DeviceError; ValueError for a tensor that is missing or
  // that the layout does not have.
  void check_state(const State& state, const StateLayout& layout) const;
  // A state of zeros, without its counters.
  State zeros_of(const StateLayout& layout) const;
  // Checks ForwardInput::start.
  // errors: ShapeError unless it is [batch, segments]; DtypeError; ValueError for other flags than 0 and 1, where
  // the host can read them.
  void check_start(const Tensor& start, std::int64_t batch, std::int64_t segments) const;
  // The rows that begin a document with a segment: u8 [batch] on the model's device, not 0 for such rows;
  // undefined for none. The host does not read flags on a GPU: they count as "some rows".
  Tensor start_flags(const Tensor& start, std::int64_t segment) const;
  // All counters of a state (its i64 numbers on the host): the place of a stream whose counters are bounded.
  static std::vector<std::int64_t> counts_of(const State& state);

 private:
  friend std::unique_ptr<Model> make_model(const ModelConfig&, Dtype, Device, MatmulPrecision);
  friend std::unique_ptr<Model> make_unallocated_model(const ModelConfig&);
  std::shared_ptr<const ModelConfig> full_config_;
  ParamStore params_;
};

// A model of a family, whose config has the common keys and the family's.
template <class Keys>
class FamilyModel : public Model {
 public:
  using FamilyKeys = Keys;            // the keys of the family alone
  using Config = FamilyConfig<Keys>;  // with those of all families

  // A model of this resolved config.
  explicit FamilyModel(Config config) : config_(std::move(config)) {}
  const Config& config() const final { return config_; }

 private:
  Config config_;
};

// What a model is an example of, where one of each is shown.
enum class ExampleOf { nothing, recurrence, plain_attention };

// What the registry (models/eddy/registry.h) may know of a model.
struct ModelTraits {
  ExampleOf example = ExampleOf::nothing;  // what it is shown as
  // Common keys (models/config.h) that it reads, or with "-" does not read, other than their descriptions say:
  // "-heads tied".
  const char* common = "";
};

// A model as its family lists it. models/<family>/models.cpp has the family's list:
//
//   std::vector<ListedModel<Keys>> models();
template <class Keys>
struct ListedModel {
  const char* name;     // as model.model names it
  const char* summary;  // a line for `eddy models`
  ModelTraits traits;   // what the registry may know of it
  // Makes the model with parameters of this scope.
  std::unique_ptr<Model> (*make)(const FamilyConfig<Keys>&, const ParamScope&);
  // Makes the keys that follow from sizes fit those of a config, whose sizes a program has chosen. May be null.
  void (*fit_to_sizes)(FamilyConfig<Keys>&);
};

// Lists the class M under a name, with its fit_to_sizes if it has one.
template <class M>
ListedModel<typename M::FamilyKeys> listed(const char* name, const char* summary,
                                           const ModelTraits& traits = {}) {
  const auto make = [](const typename M::Config& config, const ParamScope& scope) -> std::unique_ptr<Model> {
    return std::make_unique<M>(config, scope);
  };
  if constexpr (requires { &M::fit_to_sizes; })
    return {name, summary, traits, make, M::fit_to_sizes};
  else
    return {name, summary, traits, make, nullptr};
}

}  // namespace eddy
