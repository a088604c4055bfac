// What all optimizers have in common: their options, one step over the arenas, and the state for a checkpoint.
//
//   Adam adam(net.params(), {.learning_rate = 1e-2});  // models/optimizer/adam.h
//   adam.zero_gradients();
//   backward(loss);
//   adam.step();
//
// step() waits for its result. The loop of `eddy train` enqueues a step and does not wait: kernels read its
// numbers (learning rate, count, clipping) from device memory, and skip the step themselves if the norm is not
// finite. That loop reads the norm later and calls count_step if the step was taken. So a step can be captured
// once and replayed with other numbers.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "models/params.h"
#include "models/value_names.h"
#include "ops/optimizer/optimizer.h"

namespace eddy {

// A value of train.optimizer.
enum class OptimizerName { adamw, adam, adafactor, sgd, lion, muon };
// Their names.
template <>
struct ValueNames<OptimizerName> {
  // In the order of the values.
  static constexpr const char* all[] = {"adamw", "adam", "adafactor", "sgd", "lion", "muon"};
};
// A value of train.schedule.
enum class ScheduleName { constant, cosine, linear, rsqrt, block_cosine };
// Their names.
template <>
struct ValueNames<ScheduleName> {
  // In the order of the values.
  static constexpr const char* all[] = {"constant", "cosine", "linear", "rsqrt", "block_cosine"};
};

// The name of an optimizer, and its numbers. The defaults are those of `eddy train`. Adafactor has its own
// constants (ops/optimizer/adafactor.h) and reads only `learning_rate` and `clip`; sgd and lion have those of
// ops/optimizer/momentum.h; muon (muon.h) reads them all.
struct OptimizerOptions {
  // An OptimizerName.
  std::string optimizer = value_name(OptimizerName::adamw);
  double learning_rate = 1e-3;    // with a schedule, the rate after the warm-up
  double beta1 = 0.9;             // decay of the running mean of the gradient; sgd: its momentum
  double beta2 = 0.95;            // and of its square; lion: of the mean that is kept
  double eps = 1e-8;              // added to the root of the latter
  double weight_decay = 0.1;      // adamw, sgd, lion, muon: for each parameter with two axes or more; 0: none
  double clip = 1.0;              // the largest global norm of the gradients; 0: no clipping
  double matrix_momentum = 0.95;  // muon: of matrices
  double matrix_rate = 1.0;       // muon: of matrices, as a multiple of the learning rate

  friend bool operator==(const OptimizerOptions&, const OptimizerOptions&) = default;
};

// The name of a schedule, its lowest rate, and its lengths in optimizer steps.
struct ScheduleOptions {
  // A ScheduleName.
  std::string schedule = value_name(ScheduleName::constant);
  double min_learning_rate = 0.0;  // at step `steps`, the first after the run
  std::int64_t steps = 5000;       // of the whole run
  std::int64_t warmup = 0;         // steps of the linear rise at the start; 0: none
  std::int64_t warmup_from = 1;    // number of the first step in the warm-up; with 0 its learning rate is 0

  friend bool operator==(const ScheduleOptions&, const ScheduleOptions&) = default;
};

// Returns the learning rate of optimizer step `step`, counted from 0. With W = warmup and T = steps:
//
//   constant, cosine, linear   a linear rise over W steps, then constant, or a fall to min_learning_rate at
//                              step T, the first after the run.
//                              During the rise it is learning_rate (step + warmup_from) / W, so with
//                              warmup_from 0 the first step has rate 0.
//
//   rsqrt          min(t, W) / W * learning_rate / sqrt(max(t, W))
//
//   block_cosine   min(t, W) / W * (min + (max - min) (1 + cos(pi s / T)) / 2)
//                  with s = max(t, W), and 2 min 2^(-s / T) beyond T
//
// In the last two, t counts from 0, max is learning_rate and min is min_learning_rate. W = 0: no warm-up.
//
// part: how much of the run is over by another measure than its steps, such as its time, from 0 to 1. Where that is
// more than step / T, the rate is that of step part * T, which need not be whole, so that warm-up and decay take the
// same parts of a run that ends before its steps are done. A schedule that does not follow the end of the run does not
// read it.
// source: rsqrt and block_cosine: Hutchins et al., "Block-recurrent transformers" (2022), as in the authors' code.
// errors: ConfigError for another schedule.
double learning_rate_at(const ScheduleOptions& options, double learning_rate, std::int64_t step,
                        double part = 0);

// Whether the rate depends on where the run ends: that of rsqrt, and a constant one without warm-up, does not.
bool follows_end(const ScheduleOptions& options);

// Neighbouring parameters of an optimizer's shard, whose statistics lie one after the other.
struct ParameterRange {
  std::size_t first = 0, last = 0;  // parameters [first, last)
  std::int64_t begin = 0, end = 0;  // in the arenas of values and gradients, padding included
  std::int64_t at = 0;              // of `begin` in an arena of statistics
};

// Which parameters are an optimizer's shard, one mark for each; empty: all. It holds these, and leaves the others
// alone.
using ParameterMask = std::vector<bool>;
// Marks the parameters for which `wanted` holds; `mask.flip()` marks the others. Two optimizers with such masks are
// parameter groups of one module.
ParameterMask parameters_where(const ParamStore& params, const std::function<bool(const Parameter&)>& wanted);

// What moves parameters along their gradients.
class Optimizer {
 public:
  // The parameters are those of a module, net.params(), or of any other store. They must outlive this object.
  // errors: ValueError for another number of marks.
  Optimizer(ParamStore& params, const OptimizerOptions& options, const ParameterMask& held = {});
  virtual ~Optimizer() = default;

  // Marks all gradients as absent; call it before each backward pass, or gradients add up.
  void zero_gradients() { params_.zero_gradients(); }
  // Updates the parameters by their gradients, at the learning rate of the options or at another, and waits.
  // Returns the gradients' global norm before clipping, that of all parameters of the store, held or not. If the
  // norm is not finite, nothing changes and the step does not count.
  // errors: ValueError for a learning rate that is negative or not finite, and where no parameter is held.
  double step() { return step(learning_rate_); }
  double step(double learning_rate);
  // Returns the number of steps counted so far.
  std::int64_t steps() const { return steps_; }

  // Returns the state by name: "steps", and "<what>.<parameter>" for the statistics of each parameter that is held.
  std::map<std::string, Tensor> save() const;
  // The bytes of that state, without "steps".
  std::int64_t bytes() const;
  // Restores a state that save returned; errors name it `file`. Statistics of parameters that are not held are left
  // out.
  // errors: FormatError when a name is missing or has another shape or dtype, or a parameter that is held has
  // statistics of another optimizer; nothing is changed then.
  void load(const std::map<std::string, Tensor>& tensors, const std::string& file);
  // The same to and from a safetensors file, as a run's checkpoint holds it.
  // errors: IoError, FormatError.
  void save(const std::string& path) const;
  void load(const std::string& path);

  // The parts of step(), for a loop that does not wait.
  // Returns the numbers of the next step.
  // errors: ValueError for a learning rate that is negative or not finite.
  virtual detail::AdamScalars scalars(double learning_rate) const = 0;
  // Enqueues one step with the gradients in the arena. `numbers` holds the bytes of scalars() on the
  // parameters' device and is read when the step is computed. Returns the gradients' norm before clipping,
  // one f64 on that device. If the norm is not finite, nothing changes; nor if `before`, the norm of the step before,
  // is not.
  virtual Tensor apply(const Tensor& numbers, const Tensor& before = {});
  // The same with a norm that the caller computed, for all parameters or for those that are held. The copy of the
  // values in bf16 is not renewed, because the values of parameters that are not held may still come.
  virtual void apply_with_norm(const Tensor& numbers, const Tensor& norm) { update(numbers, norm); }
  // Counts an enqueued step whose norm was finite.
  void count_step() { ++steps_; }
  // Takes that back, for a step that was counted before its norm was known.
  void uncount_step() { --steps_; }

 protected:
  // Enqueues the kernels of a step. All gradients of held parameters are defined; `norm` is that of all.
  virtual void update(const Tensor& numbers, const Tensor& norm) = 0;
  // A part of the state: its name in a checkpoint, and a view of it.
  struct Part {
    std::string name;  // "<what>.<parameter>"
    Tensor view;       // of the arena that holds it
  };
  // All of the state but the number of steps.
  virtual std::vector<Part> parts() const = 0;

  // An arena of statistics of the held parameters, zeros; `part_of` is a parameter's part of it.
  Tensor make_statistics() const;
  Tensor part_of(const Tensor& statistics, const ParameterRange& range, const Parameter& parameter) const;

  ParamStore& params_;                // which it moves
  std::vector<ParameterRange> held_;  // of them
  std::int64_t steps_ = 0;            // counted so far

 private:
  double learning_rate_;
};

// Returns the optimizer that options.optimizer names.
// errors: ConfigError for another name, or for a constant out of its range; ValueError as Optimizer.
std::unique_ptr<Optimizer> make_optimizer(ParamStore& params, const OptimizerOptions& options,
                                          const ParameterMask& held = {});
std::unique_ptr<Optimizer> make_adafactor(ParamStore& params, const OptimizerOptions& options,
                                          const ParameterMask& held);
std::unique_ptr<Optimizer> make_momentum(ParamStore& params, const OptimizerOptions& options,
                                         const ParameterMask& held);

}  // namespace eddy
