// The forward pass of one batch of an evaluation: eager, captured, replayed.
#include "train/eval/captured_eval.h"

#include <utility>

#include "ops/core/capture.h"
#include "ops/loss/cross_entropy.h"
#include "train/step/graph_state.h"

namespace eddy {

// A captured batch: its inputs, its results, and the graph, which is destroyed first.
struct CapturedEval::Graph {
  StepInputs inputs;
  CarriedState before, after;
  Output output;
  std::unique_ptr<CapturedWork> graph;
};

CapturedEval::CapturedEval(const Model& model, const EvalPlan& plan)
    : model_(model),
      carry_(plan.carry_state),
      logits_(plan.count_correct),
      wanted_(plan.capture && can_capture(model.params().values().device())),
      kinds_({8, 64, "batches", "(shapes, block sizes, flags)"}) {}

CapturedEval::~CapturedEval() = default;

CapturedEval::Output CapturedEval::run(const Batch& batch, CarriedState& carried) {
  if (wanted_) {
    ForwardInput given;
    if (carry_) carried.set_input(given, batch, model_.config());
    const State& before = given.state;
    if (Graph* const graph =
            kinds_.find(capture_key({batch}, before), [&] { return record(batch, before); })) {
      graph->inputs.write({batch}, {}, 0);
      copy_state_into(graph->before.state, before);
      graph->graph->replay();
      if (carry_) carried = graph->after;
      return graph->output;
    }
  }
  const Device device = model_.params().values().device();
  ForwardInput input = forward_input(batch, device);
  if (carry_) carried.set_input(input, batch, model_.config());
  return forward(std::move(input), raw::to_device(batch.targets, device), batch, carried);
}

CapturedEval::Output CapturedEval::forward(ForwardInput input, const Tensor& targets, const Batch& batch,
                                           CarriedState& carried) const {
  input.logits = logits_;
  const ForwardOutput output = model_.forward(input);
  if (carry_) carried.update(output.state, batch);
  return {logits_ ? cross_entropy_rows(output.logits, targets, kNotScored)
                  : output.classifier.losses(targets, kNotScored),
          output.logits, !input.state.empty()};
}

std::unique_ptr<CapturedEval::Graph> CapturedEval::record(const Batch& batch, const State& state) const {
  const Tensor& values = model_.params().values();
  std::unique_ptr<Graph> graph(new Graph{StepInputs({batch}, values.dtype(), values.device()),
                                         {state_buffers_like(state), batch.tokens.dim(0)},
                                         {},
                                         {},
                                         {}});
  update_bf16_copy(model_.params());  // outside the graph: the parameters do not change between replays
  graph->graph = capture(values.device(), [&] {
    const ForwardInput input =
        micro_batch_input(graph->inputs, 0, batch, carry_ ? &graph->before : nullptr, model_.config());
    graph->output = forward(input, graph->inputs.micro_batches()[0].targets, batch, graph->after);
  });
  return graph;
}

}  // namespace eddy
