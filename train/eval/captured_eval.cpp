// What is asked of the device for one batch of an evaluation, and its recording.
#include "train/eval/captured_eval.h"

#include <utility>

#include "ops/core/capture.h"
#include "ops/loss/cross_entropy.h"
#include "train/step/recorded_batches.h"

namespace eddy {

// A recorded batch: where its inputs lie, what it leaves, and the graph, which goes first.
struct CapturedEval::Graph {
  StepInputs inputs;
  CarriedState before, after;
  Output output;
  std::unique_ptr<CapturedWork> graph;
};

CapturedEval::CapturedEval(const Model& model, const EvalPlan& plan)
    : model_(model),
      carry_(plan.carry_state),
      logits_(plan.count_right),
      wanted_(plan.capture && can_capture(model.params().values().device())),
      kinds_({8, 64, "batches", "(shapes, block sizes, flags)"}) {}

CapturedEval::~CapturedEval() = default;

CapturedEval::Output CapturedEval::run(const Batch& batch, CarriedState& carried) {
  if (wanted_) {
    ForwardInput given;
    if (carry_) carried.enter(given, batch, model_.config());
    const State& before = given.state;
    if (Graph* const graph = kinds_.find(kind_text({batch}, before), [&] { return record(batch, before); })) {
      graph->inputs.write({batch}, {}, 0);
      put_state(graph->before.state, before);
      graph->graph->replay();
      if (carry_) carried = graph->after;
      return graph->output;
    }
  }
  const Device device = model_.params().values().device();
  ForwardInput input = forward_input(batch, device);
  if (carry_) carried.enter(input, batch, model_.config());
  return ask(std::move(input), raw::to_device(batch.targets, device), batch, carried);
}

CapturedEval::Output CapturedEval::ask(ForwardInput input, const Tensor& targets, const Batch& batch,
                                       CarriedState& carried) const {
  input.logits = logits_;
  const ForwardOutput output = model_.forward(input);
  if (carry_) carried.leave(output.state, batch);
  return {logits_ ? cross_entropy_rows(output.logits, targets, kNotScored)
                  : output.classifier.losses(targets, kNotScored),
          output.logits, !input.state.empty()};
}

std::unique_ptr<CapturedEval::Graph> CapturedEval::record(const Batch& batch, const State& state) const {
  const Tensor& values = model_.params().values();
  std::unique_ptr<Graph> graph(new Graph{StepInputs({batch}, values.dtype(), values.device()),
                                         {places_for(state), batch.tokens.dim(0)},
                                         {},
                                         {},
                                         {}});
  round_values(model_.params());  // before the graph, which finds them so at every replay
  graph->graph = capture(values.device(), [&] {
    const ForwardInput input =
        step_input(graph->inputs, 0, batch, carry_ ? &graph->before : nullptr, model_.config());
    graph->output = ask(input, graph->inputs.micros()[0].targets, batch, graph->after);
  });
  return graph;
}

}  // namespace eddy
