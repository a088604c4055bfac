// The training step: that of examples/05_copy_a_line.cpp, over several batches and with a recurrent state.
//
//   for each batch    forward, loss, backward: gradients add up; the state goes on to the next batch, detached
//   then              one call of the optimizer clips the gradient's norm and updates the parameters
//
// With micro-batches each batch is cut into parts of its rows, the leaves of a tree (gradient_tree.h), and with ranks
// this process has only some of them.
//
// `enqueue_step` is the step. It never waits for the device, which itself skips an update that is not finite:
// so a recorder can capture it and replay it with other inputs.
#include "train/step/train_step.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <span>

#include "ops/core/capture.h"
#include "ops/core/records.h"
#include "ops/optimizer/optimizer.h"
#include "ops/pointwise/pointwise.h"
#include "tensor/base/format.h"
#include "train/ranks/message.h"
#include "train/ranks/ranks.h"
#include "train/step/arena_buckets.h"
#include "train/step/gradient_tree.h"

namespace eddy::training {
namespace {

// What a training step reads: everything that changes from step to step is a tensor here, so that a recorder
// can send it to the device by one copy.
struct StepInputs {
  StepOptions options;
  std::size_t batches = 0;  // of the step
  std::size_t own = 1,
              first = 0;      // leaves of each batch that this process computes, and the number of the first
  std::vector<Batch> leaves;  // own of each batch
  std::vector<std::int64_t> scored;  // of all leaves of each batch
  std::vector<Tensor> shares;  // scalars: an own leaf's scored targets / those of all leaves of all batches
  Tensor scalars;              // the bytes of the optimizer's AdamScalars
  Tensor leaves_before;        // i64 scalar: of all steps before; it numbers the dropout masks

  // The inputs of a step on the host. `values` are the parameters'.
  StepInputs(const std::vector<Batch>& step_batches, const StepOptions& step_options,
             const Optimizer& optimizer, Dtype values)
      : options(step_options), batches(step_batches.size()) {
    const std::int64_t parts = options.micro_batches,
                       ranks = options.ranks != nullptr ? options.ranks->size() : 1;
    own = static_cast<std::size_t>(parts / ranks);
    if (options.ranks != nullptr) first = own * static_cast<std::size_t>(options.ranks->rank());
    scored = options.ranks != nullptr ? options.scored : scored_targets(step_batches, parts);
    if (scored.size() != batches * leaves_of_batch())
      fail<ValueError>("train_step: {} numbers of scored targets for {} batches of {} micro-batches",
                       scored.size(), batches, parts);
    for (const Batch& batch : step_batches)
      for (std::size_t leaf = 0; leaf < own; ++leaf)
        leaves.push_back(
            own == 1 ? batch
                     : part_of_batch(batch, static_cast<std::int64_t>(leaf), static_cast<std::int64_t>(own)));
    const AdamScalars numbers = optimizer.scalars(options.learning_rate);
    scalars = upload_records(kCpu, &numbers, 1);
    leaves_before = Tensor::from(
        std::vector<std::int64_t>{options.step * static_cast<std::int64_t>(scored.size())}, Shape{});
    const std::int64_t all = all_scored();
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      // 1 / (all scored targets / this leaf's): exactly 1 / leaves when all leaves have as many.
      const double inverse = static_cast<double>(all) / static_cast<double>(scored[number(i)]);
      shares.push_back(Tensor::full({}, scored[number(i)] > 0 ? 1.0 / inverse : 0.0, values));
    }
  }

  std::size_t leaves_of_batch() const { return static_cast<std::size_t>(options.micro_batches); }
  std::int64_t all_scored() const { return std::accumulate(scored.begin(), scored.end(), std::int64_t{0}); }
  // The number of own leaf i among all leaves of the step, and back. Leaves of a batch that rank r computes follow each
  // other.
  std::size_t number(std::size_t i) const { return i / own * leaves_of_batch() + first + i % own; }
  std::size_t owner(std::size_t leaf) const { return leaf % leaves_of_batch() / own; }
  std::size_t own_index(std::size_t leaf) const { return leaf / leaves_of_batch() * own + leaf % own; }

  // All tensors, and the part of the step's kind that is not in their shapes (recorder.h).
  std::vector<Tensor*> tensors() {
    std::vector<Tensor*> all{&scalars, &leaves_before};
    for (Batch& leaf : leaves) all.insert(all.end(), {&leaf.tokens, &leaf.targets, &leaf.start});
    for (Tensor& share : shares) all.push_back(&share);
    return all;
  }
  std::string kind() const {
    std::string text = fmt::format("{} {} {} {}", options.seed, options.carry_state, options.micro_batches,
                                   static_cast<int>(options.recompute));
    for (const Batch& leaf : leaves) text += batch_kind(leaf);
    return text;
  }

  // The model's input for own leaf i, with the state of its rows before it.
  ForwardInput forward(std::size_t i, const CarriedState& state, const Model& model) const {
    ForwardInput input = forward_input(leaves[i], leaves[i].tokens.device());
    if (options.carry_state) state.set_input(input, leaves[i], model);
    input.dropout = {true, options.seed, number(i),
                     static_cast<const std::uint64_t*>(leaves_before.raw_data())};
    input.logits = false;
    input.recompute = options.recompute;
    return input;
  }

  // The states of this process's rows, cut into those of its leaves and put together again.
  std::vector<CarriedState> cut(const CarriedState& whole, const Model& model) const {
    const auto parts = static_cast<std::int64_t>(own);
    if (own == 1) return {whole};
    std::vector<CarriedState> states(own);
    if (whole.state.empty() || whole.rows != leaves.front().tokens.dim(0) * parts) return states;
    for (std::size_t leaf = 0; leaf < own; ++leaf)
      states[leaf] = {part_of_state(whole.state, model, static_cast<std::int64_t>(leaf), parts),
                      whole.rows / parts};
    return states;
  }
  CarriedState join(const std::vector<CarriedState>& states, const Model& model) const {
    if (own == 1) return states.front();
    std::vector<State> parts;
    CarriedState whole;
    for (const CarriedState& state : states) {
      parts.push_back(state.state);
      whole.rows += state.rows;
    }
    whole.state = joined_state(parts, model);
    return whole;
  }
};

// The work of a step, enqueued on the device.
struct EnqueuedStep {
  Tensor
      numbers;  // bytes on the device, read by one copy: the norm of the gradient, then the losses of the batches
  Dtype loss_dtype = Dtype::f32;
  GraphStats graph;  // as StepResult::graph
  CarriedState before, after;
  Tensor gradient_norms;  // with micro-batches: of each parameter
  bool stopped = false;
};

// Number i of a step, 8 bytes: a scalar of f64, or of f32 in the first half.
Tensor step_number(const Tensor& numbers, std::size_t i, Dtype dtype) {
  const std::size_t scalars = sizeof(double) / dtype_bytes(dtype);
  const std::int64_t no_strides[1] = {};
  return Tensor::over(numbers.buffer(), static_cast<std::int64_t>(i * scalars), {}, no_strides, dtype);
}

void store(const Tensor& numbers, std::size_t i, const Tensor& value) {
  raw::copy_into(step_number(numbers, i, value.dtype()), value);
}

// The gradient of the step's loss with respect to a batch's loss l: share + (l - l). That is exactly the
// share for a finite l, and NaN for any other; a NaN makes the gradient's norm NaN.
Tensor share_if_finite(const Tensor& loss, const Tensor& share) {
  const NoGrad no_grad;
  const Tensor value = raw::alias(loss);
  return (share.dtype() == loss.dtype() ? share : raw::cast(share, loss.dtype())) + (value - value);
}

// Forward, loss and backward of own leaf i. `state` becomes that after it.
void enqueue_leaf(const Model& model, const StepInputs& inputs, std::size_t i, CarriedState& state,
                  EnqueuedStep& step) {
  const Batch& leaf = inputs.leaves[i];
  const ForwardOutput output = model.forward(inputs.forward(i, state, model));
  if (leaf.scored > 0) {
    const Tensor loss = output.classifier.loss(leaf.targets, kNotScored);
    store(step.numbers, 1 + i, loss);
    step.loss_dtype = loss.dtype();
    step.graph = graph_stats();
    backward(loss, share_if_finite(loss, inputs.shares[i]));
  }
  if (inputs.options.carry_state) state.update(output.state, leaf);  // values go on, gradients stop
}

// Whether rank 0's, or the only process's, StepOptions::stop ends the step.
bool stops(const StepOptions& options) {
  auto stop = std::byte{!capturing() && options.stop && options.stop()};
  if (options.ranks != nullptr) broadcast(*options.ranks, std::span(&stop, 1));
  return stop != std::byte{0};
}

// Which ranks have a scored target in a batch.
std::vector<bool> ranks_with_targets(const StepInputs& inputs, std::size_t batch) {
  std::vector<bool> present(inputs.leaves_of_batch() / inputs.own);
  for (std::size_t leaf = 0; leaf < inputs.leaves_of_batch(); ++leaf)
    if (inputs.scored[batch * inputs.leaves_of_batch() + leaf] > 0) present[leaf / inputs.own] = true;
  return present;
}

EnqueuedStep enqueue_step(Model& model, Optimizer& optimizer, const StepInputs& inputs,
                          const CarriedState& before) {
  EnqueuedStep step;
  step.numbers = Tensor::zeros({static_cast<std::int64_t>(sizeof(double) * (1 + inputs.leaves.size()))},
                               Dtype::u8, model.params().values().device());
  step.before = step.after = before;
  const bool is_tree = inputs.leaves_of_batch() > 1;
  Ranks* const ranks = inputs.options.ranks;
  const ArenaBuckets* const buckets = inputs.options.buckets;
  std::optional<GradientTree> tree;
  if (ranks != nullptr)
    tree.emplace(model.params(), *ranks, *buckets);
  else if (is_tree)
    tree.emplace(model.params());
  std::vector<CarriedState> states = inputs.cut(before, model);
  model.params().zero_gradients();
  for (std::size_t batch = 0; batch < inputs.batches; ++batch) {
    if (batch > 0 && stops(inputs.options)) {
      step.stopped = true;
      return step;
    }
    for (std::size_t leaf = 0; leaf < inputs.own; ++leaf) {
      const std::size_t i = batch * inputs.own + leaf;
      if (ranks != nullptr && leaf + 1 == inputs.own)
        tree->begin_last_leaf(ranks_with_targets(inputs, batch));
      else if (tree)
        tree->begin_leaf();
      enqueue_leaf(model, inputs, i, states[leaf], step);
      if (tree) tree->end_leaf(inputs.leaves[i].scored > 0);
    }
    if (tree) tree->end_batch();
  }
  if (inputs.options.carry_state) step.after = inputs.join(states, model);
  if (inputs.all_scored() == 0) return step;
  if (!tree) {
    store(step.numbers, 0, optimizer.apply(inputs.scalars));
    return step;
  }
  tree->finish();
  // The norm of the parameters' norms: ranks that hold some of the parameters get the same bits.
  step.gradient_norms = gradient_norms(model.params(), ranks, buckets);
  const Tensor norm = l2_norm(step.gradient_norms);
  optimizer.apply_with_norm(inputs.scalars, norm);
  if (ranks != nullptr && buckets->shard()) gather_values(model.params(), *ranks, *buckets);
  model.params().renew_bf16_copy();
  store(step.numbers, 0, norm);
  return step;
}

// ---- reading the numbers of a step, and the search for the source of a NaN

// Runs own leaf `bad` again, after those of its rows before it, with every result checked, to name the op and the
// module.
std::string explain_bad_loss(const Model& model, const StepInputs& inputs, std::size_t bad,
                             const CarriedState& before) {
  for (const Parameter& parameter : model.params().parameters())
    if (!all_finite(parameter.value))
      return fmt::format("parameter {} holds a NaN or infinity", parameter.name);
  const NoGrad no_grad;
  CarriedState state = inputs.cut(before, model)[bad % inputs.own];
  for (std::size_t i = bad % inputs.own; i < bad; i += inputs.own) {
    const ForwardOutput output = model.forward(inputs.forward(i, state, model));
    if (inputs.options.carry_state) state.update(output.state, inputs.leaves[i]);
  }
  const ForwardInput input = inputs.forward(bad, state, model);
  for (const auto& [name, tensor] : input.state)
    if (!all_finite(tensor)) return fmt::format("the carried state {} holds a NaN or infinity", name);
  try {
    const AnomalyMode checking;
    static_cast<void>(model.forward(input).classifier.losses(inputs.leaves[bad].targets, kNotScored));
  } catch (const NonFiniteError& error) {
    return error.what();
  }
  return "no single op gives it: the loss itself overflows";
}

// The same for any leaf: the rank that has it looks, and tells rank 0.
std::string explain_bad_leaf(const Model& model, const StepInputs& inputs, std::size_t bad,
                             const CarriedState& before) {
  Ranks* const ranks = inputs.options.ranks;
  const auto owner = static_cast<int>(inputs.owner(bad));
  if (ranks == nullptr || ranks->rank() == owner) {
    std::string text = explain_bad_loss(model, inputs, inputs.own_index(bad), before);
    if (owner == 0) return text;
    Message message;
    message.put(text);
    message.send(*ranks, 0);
    return text;
  }
  if (ranks->rank() != 0 || owner == 0) return "";
  return Message::receive(*ranks, owner).get_text();
}

// `norms`: of each parameter's gradient, where the step computed them. A rank may have no gradient to look at.
std::string explain_bad_gradient(const Model& model, const Tensor& norms) {
  const Tensor known = norms.defined() ? raw::to_device(norms, kCpu) : norms;
  const std::vector<Parameter>& parameters = model.params().parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Tensor gradient = grad(parameters[i].value);
    if (known.defined() ? !std::isfinite(known.data<double>()[i])
                        : gradient.defined() && !all_finite(gradient))
      return fmt::format("the first is grad.{}", parameters[i].name);
  }
  return "the sum of squares is too large";
}

// The losses of all leaves of the step, in order.
std::vector<double> all_losses(const StepInputs& inputs, const EnqueuedStep& work, const Tensor& numbers) {
  std::vector<double> own, losses(inputs.scored.size());
  for (std::size_t i = 0; i < inputs.leaves.size(); ++i)
    own.push_back(inputs.leaves[i].scored > 0 ? step_number(numbers, 1 + i, work.loss_dtype).item() : 0);
  std::vector<std::byte> bytes;
  if (inputs.options.ranks != nullptr) {
    bytes = gather_all(*inputs.options.ranks, std::as_bytes(std::span(own)));
  } else {
    const auto same = std::as_bytes(std::span(own));
    bytes.assign(same.begin(), same.end());
  }
  for (std::size_t leaf = 0; leaf < losses.size(); ++leaf) {
    const std::size_t place = inputs.owner(leaf) * own.size() + inputs.own_index(leaf);
    std::memcpy(&losses[leaf], bytes.data() + place * sizeof(double), sizeof(double));
  }
  return losses;
}

// Whether the state is finite, on all ranks.
bool finite_state(const StepInputs& inputs, const State& state) {
  const bool finite = std::all_of(state.begin(), state.end(),
                                  [](const State::Entry& entry) { return all_finite(entry.second); });
  if (inputs.options.ranks == nullptr) return finite;
  const std::byte own{finite};
  const std::vector<std::byte> all = gather_all(*inputs.options.ranks, std::span(&own, 1));
  return std::find(all.begin(), all.end(), std::byte{0}) == all.end();
}

// Waits for the step, reads its numbers by one copy, and counts the optimizer's step if it was taken. With
// carry_state `carried` becomes the state after the step; after a loss that is not finite it is cleared, since
// it may be the cause. To find the source of a value that is not finite, the step is computed again.
StepResult collect_step(const Model& model, Optimizer& optimizer, const StepInputs& inputs,
                        const EnqueuedStep& work, CarriedState& carried) {
  StepResult result;
  result.graph = work.graph;
  result.stopped = work.stopped;
  if (work.stopped) return result;
  const Tensor numbers = raw::to_device(work.numbers, kCpu);
  const std::vector<double> losses = all_losses(inputs, work, numbers);
  const std::int64_t scored = inputs.all_scored();
  std::size_t bad = losses.size();
  for (std::size_t leaf = 0; leaf < losses.size(); ++leaf) {
    const std::int64_t own = inputs.scored[leaf];
    if (own == 0) continue;
    // The leaf's mean loss is weighted by its share of the scored targets.
    result.loss += losses[leaf] / (static_cast<double>(scored) / static_cast<double>(own));
    if (!std::isfinite(losses[leaf])) bad = std::min(bad, leaf);
  }
  if (bad < losses.size()) {
    result.finite = false;
    result.problem = "the loss is not finite; " + explain_bad_leaf(model, inputs, bad, work.before);
    carried = {};
    return result;
  }
  if (inputs.options.carry_state) carried = work.after;
  if (scored == 0) {
    result.loss = result.grad_norm = std::numeric_limits<double>::quiet_NaN();
    return result;
  }
  result.grad_norm = step_number(numbers, 0, Dtype::f64).item();
  if (std::isfinite(result.grad_norm)) {
    optimizer.count_step();
    return result;
  }
  result.finite = false;
  result.problem = "the gradient is not finite; " + explain_bad_gradient(model, work.gradient_norms);
  if (!finite_state(inputs, carried.state)) carried = {};
  return result;
}

}  // namespace

StepResult train_step(Model& model, Optimizer& optimizer, const std::vector<Batch>& batches,
                      CarriedState& carried, const StepOptions& options, Recorder* recorder) {
  StepInputs inputs(batches, options, optimizer, model.params().values().dtype());
  Recorder uncaptured(model.params(), {.wanted = false});
  // The state that the first batch starts from; empty for a cold start.
  ForwardInput start;
  if (options.carry_state && !batches.empty()) carried.set_input(start, batches.front(), model);
  State first = start.state;
  const EnqueuedStep step =
      (recorder != nullptr ? *recorder : uncaptured)
          .run(inputs.kind(), inputs.tensors(), first, [&](State& state) {
            EnqueuedStep work = enqueue_step(model, optimizer, inputs, {state, carried.rows});
            state = work.after.state;
            return work;
          });
  if (model.params().values().device().type == DeviceType::counting) {  // there are no numbers to read
    if (options.carry_state) carried = step.after;
    optimizer.count_step();
    StepResult counted;
    counted.loss = std::numeric_limits<double>::quiet_NaN();
    counted.graph = step.graph;
    return counted;
  }
  return collect_step(model, optimizer, inputs, step, carried);
}

std::vector<std::int64_t> scored_targets(const std::vector<Batch>& batches, std::int64_t micro_batches) {
  std::vector<std::int64_t> scored;
  for (const Batch& batch : batches)
    for (std::int64_t part = 0; part < micro_batches; ++part)
      scored.push_back(micro_batches == 1 ? batch.scored : part_of_batch(batch, part, micro_batches).scored);
  return scored;
}

}  // namespace eddy::training
