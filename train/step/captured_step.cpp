// Recording a step, and replaying it.
#include "train/step/captured_step.h"

#include "ops/core/capture.h"
#include "tensor/base/format.h"
#include "train/step/recorded_batches.h"

namespace eddy {
namespace {

// The state that the first batch of a step is given; empty when it begins cold.
State handed_over(const std::vector<Batch>& batches, const CarriedState& carried, const Model& model,
                  const StepOptions& options) {
  ForwardInput input;
  if (options.carry_state && !batches.empty()) carried.enter(input, batches[0], model.config());
  return input.state;
}

}  // namespace

// A recorded step: where its inputs lie, what it leaves, and the graph, which goes first.
struct CapturedStep::Graph {
  StepInputs inputs;
  CarriedState before;
  StepWork work;
  std::unique_ptr<CapturedWork> graph;
};

CapturedStep::CapturedStep(Model& model, Optimizer& optimizer, bool wanted, std::size_t most_graphs)
    : model_(model),
      optimizer_(optimizer),
      wanted_(wanted && can_capture(model.params().values().device())),
      kinds_({most_graphs, kMostKinds, "steps", "(shapes, block sizes, flags)"}) {}

CapturedStep::~CapturedStep() = default;

StepResult CapturedStep::step(const std::vector<Batch>& batches, CarriedState& carried,
                              const StepOptions& options) {
  if (!wanted_) return train_step(model_, optimizer_, batches, carried, options);
  const State before = handed_over(batches, carried, model_, options);
  const std::string kind =
      fmt::format("{} {} {}", options.seed, options.carry_state, kind_text(batches, before));
  Graph* const graph = kinds_.find(kind, [&] { return record(batches, before, carried.rows, options); });
  if (graph != nullptr) return replay(*graph, batches, carried, options);
  return train_step(model_, optimizer_, batches, carried, options);
}

std::unique_ptr<CapturedStep::Graph> CapturedStep::record(const std::vector<Batch>& batches,
                                                          const State& given, std::int64_t rows,
                                                          const StepOptions& options) {
  const Tensor& values = model_.params().values();
  std::unique_ptr<Graph> graph(new Graph{StepInputs(batches, values.dtype(), values.device()),
                                         {places_for(given), given.empty() ? 0 : rows},
                                         {},
                                         nullptr});
  // The graph rounds the parameters to bf16 where its optimizer writes them, at its end; at its beginning the
  // copy is there, which replay sees to. What the recording says it wrote is not computed yet, or never.
  round_values(model_.params());
  struct AfterAll {
    const Tensor& values;
    ~AfterAll() { wrote_in_place(values, "captured_step"); }
  } const after_all{values};
  graph->graph = capture(values.device(), [&] {
    graph->work = ask_step(model_, optimizer_, graph->inputs, batches, graph->before, options);
  });
  return graph;
}

StepResult CapturedStep::replay(Graph& graph, const std::vector<Batch>& batches, CarriedState& carried,
                                const StepOptions& options) {
  write_step(graph.inputs, optimizer_, batches, options);
  put_state(graph.before.state, carried.state);
  round_values(model_.params());
  graph.graph->replay();
  const Tensor& values = model_.params().values();
  wrote_in_place(values, "optimizer.step");
  // The graph has rounded what it wrote.
  Buffer& buffer = *values.buffer();
  if (buffer.bf16_copy != nullptr) buffer.bf16_copy_version = buffer.version();
  return read_step(model_, optimizer_, graph.inputs, batches, graph.before, graph.work, carried, options);
}

}  // namespace eddy
