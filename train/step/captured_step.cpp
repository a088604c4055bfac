// Capturing a step, and replaying it.
#include "train/step/captured_step.h"

#include "ops/core/capture.h"
#include "tensor/base/format.h"
#include "train/step/graph_state.h"

namespace eddy {
namespace {

// The state that the first batch of a step starts from; empty for a cold start.
State initial_state(const std::vector<Batch>& batches, const CarriedState& carried, const Model& model,
                    const StepOptions& options) {
  ForwardInput input;
  if (options.carry_state && !batches.empty()) carried.set_input(input, batches[0], model.config());
  return input.state;
}

}  // namespace

// A captured step: its inputs, its results, and the graph, which is destroyed first.
struct CapturedStep::Graph {
  StepInputs inputs;
  CarriedState before;
  EnqueuedStep work;
  std::unique_ptr<CapturedWork> graph;
};

CapturedStep::CapturedStep(Model& model, Optimizer& optimizer, bool wanted, std::size_t max_graphs)
    : model_(model),
      optimizer_(optimizer),
      wanted_(wanted && can_capture(model.params().values().device())),
      kinds_({max_graphs, kMaxKinds, "steps", "(shapes, block sizes, flags)"}) {}

CapturedStep::~CapturedStep() = default;

StepResult CapturedStep::step(const std::vector<Batch>& batches, CarriedState& carried,
                              const StepOptions& options) {
  if (!wanted_) return train_step(model_, optimizer_, batches, carried, options);
  const State before = initial_state(batches, carried, model_, options);
  const std::string kind =
      fmt::format("{} {} {}", options.seed, options.carry_state, capture_key(batches, before));
  Graph* const graph = kinds_.find(kind, [&] { return record(batches, before, carried.rows, options); });
  if (graph != nullptr) return replay(*graph, batches, carried, options);
  return train_step(model_, optimizer_, batches, carried, options);
}

std::unique_ptr<CapturedStep::Graph> CapturedStep::record(const std::vector<Batch>& batches,
                                                          const State& given, std::int64_t rows,
                                                          const StepOptions& options) {
  const Tensor& values = model_.params().values();
  std::unique_ptr<Graph> graph(new Graph{StepInputs(batches, values.dtype(), values.device()),
                                         {state_buffers_like(given), given.empty() ? 0 : rows},
                                         {},
                                         nullptr});
  // The graph makes the parameters' bf16 copy at its end, where its optimizer writes them; replay() makes
  // sure that the copy exists when it begins. Capturing runs no kernel, so what it marked as written is not
  // computed yet, or never: AfterAll marks the values as changed once more.
  update_bf16_copy(model_.params());
  struct AfterAll {
    const Tensor& values;
    ~AfterAll() { wrote_in_place(values, "captured_step"); }
  } const after_all{values};
  StepOptions whole = options;
  whole.stop = nullptr;  // a graph holds a whole step
  graph->graph = capture(values.device(), [&] {
    graph->work = enqueue_step(model_, optimizer_, graph->inputs, batches, graph->before, whole);
  });
  return graph;
}

StepResult CapturedStep::replay(Graph& graph, const std::vector<Batch>& batches, CarriedState& carried,
                                const StepOptions& options) {
  write_step_inputs(graph.inputs, optimizer_, batches, options);
  copy_state_into(graph.before.state, carried.state);
  update_bf16_copy(model_.params());
  graph.graph->replay();
  const Tensor& values = model_.params().values();
  wrote_in_place(values, "optimizer.step");
  // The graph has updated the bf16 copy too.
  Buffer& buffer = *values.buffer();
  if (buffer.bf16_copy != nullptr) buffer.bf16_copy_version = buffer.version();
  return collect_step(model_, optimizer_, graph.inputs, batches, graph.before, graph.work, carried, options);
}

}  // namespace eddy
