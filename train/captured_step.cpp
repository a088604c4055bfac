// Kinds of steps, and the graphs of those that come again.
#include "train/captured_step.h"

#include <algorithm>

#include "ops/capture.h"
#include "tensor/error.h"
#include "tensor/format.h"

namespace eddy {
namespace {

// What makes two steps one kind, as text that is only compared.
class KindText {
 public:
  void add(std::int64_t number) { text_ += std::to_string(number) + ' '; }
  void add(const std::string& name) { text_ += name + ' '; }
  // Shape, layout and dtype; on the host also the contents, by which models decide.
  void add(const Tensor& x) {
    if (!x.defined()) return add("none");
    add(static_cast<std::int64_t>(x.dtype()));
    for (int i = 0; i < x.rank(); ++i) {
      add(x.dim(i));
      add(x.strides()[i]);
    }
    add(";");
    if (!(x.device() == kCpu)) return;
    const Tensor packed = raw::contiguous(x);
    text_.append(static_cast<const char*>(packed.raw_data()), static_cast<std::size_t>(packed.bytes()));
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

// The state that the first batch of a step is given; empty when it begins cold.
State handed_over(const std::vector<Batch>& batches, const CarriedState& carried, const Model& model,
                  const StepOptions& options) {
  ForwardInput input;
  if (options.carry_state && !batches.empty()) carried.enter(input, batches[0], model.config());
  return input.state;
}

// 0 when no row begins anew, 2 when all do, which is a cold start, 1 for some: which ones is data.
int rows_that_begin(const Tensor& start) {
  if (!start.defined()) return 0;
  const std::int64_t* const flags = start.data<std::int64_t>();
  return std::all_of(flags, flags + start.elements(), [](std::int64_t flag) { return flag != 0; }) ? 2 : 1;
}

// A tensor of the same layout with memory of its own, uninitialised.
Tensor place_like(const Tensor& x) {
  std::int64_t span = 1;
  for (int i = 0; i < x.rank(); ++i) span += (x.dim(i) - 1) * x.strides()[i];
  const Tensor storage = Tensor::empty({x.elements() == 0 ? 0 : span}, x.dtype(), x.device());
  return Tensor::over(storage.buffer(), 0, x.shape(), x.strides(), x.dtype());
}

// Makes the copy of the parameters in bf16, where the model has one and it is of older values.
void round_values(const ParamStore& params) {
  if (params.activations() == Dtype::bf16) static_cast<void>(raw::to_bf16(params.values()));
}

}  // namespace

// A recorded step: where its inputs lie, what it leaves, and the graph, which goes first.
struct CapturedStep::Graph {
  StepInputs inputs;
  CarriedState before;
  StepWork work;
  std::unique_ptr<CapturedWork> graph;
};

struct CapturedStep::Kind {
  std::string text;
  int seen = 0;
  bool refused = false;  // recording failed
  std::unique_ptr<Graph> graph;
};

CapturedStep::CapturedStep(Model& model, Optimizer& optimizer, bool wanted)
    : model_(model),
      optimizer_(optimizer),
      wanted_(wanted && can_capture(model.params().values().device())) {}

CapturedStep::~CapturedStep() = default;

StepResult CapturedStep::step(const std::vector<Batch>& batches, CarriedState& carried,
                              const StepOptions& options) {
  Kind* const kind = wanted_ ? kind_of(batches, carried, options) : nullptr;
  if (kind != nullptr && kind->graph == nullptr && !kind->refused && kind->seen >= kWarmUp) {
    if (graphs_ == kMostGraphs) {
      kind->refused = true;
      say(fmt::format("steps of more than {} kinds (shapes, block sizes, flags): the others run uncaptured",
                      kMostGraphs));
    } else {
      try {
        kind->graph = record(batches, carried, options);
        ++graphs_;
      } catch (const Error& error) {
        kind->refused = true;
        say(fmt::format("steps run uncaptured: {}", error.what()));
      }
    }
  }
  if (kind != nullptr && kind->graph != nullptr) return replay(*kind->graph, batches, carried, options);
  if (kind != nullptr) ++kind->seen;
  return train_step(model_, optimizer_, batches, carried, options);
}

CapturedStep::Kind* CapturedStep::kind_of(const std::vector<Batch>& batches, const CarriedState& carried,
                                          const StepOptions& options) {
  KindText text;
  text.add(static_cast<std::int64_t>(options.seed));
  text.add(options.carry_state ? 1 : 0);
  for (const Batch& batch : batches) {
    for (const Tensor* tensor : {&batch.tokens, &batch.targets}) {
      text.add(static_cast<std::int64_t>(tensor->dtype()));
      text.add(to_string(tensor->shape()));
    }
    text.add(batch.block);
    text.add(batch.tail);
    text.add(batch.scored > 0 ? 1 : 0);
    text.add(rows_that_begin(batch.start));
  }
  for (const auto& [name, tensor] : handed_over(batches, carried, model_, options)) {
    text.add(name);
    text.add(tensor);
  }
  const std::string key = text.take();
  for (const std::unique_ptr<Kind>& kind : kinds_)
    if (kind->text == key) return kind.get();
  if (kinds_.size() == kMostKinds) {
    say(fmt::format(
        "more than {} kinds of steps (shapes, flags, counts in the state): new ones run uncaptured",
        kMostKinds));
    return nullptr;
  }
  kinds_.push_back(std::make_unique<Kind>());
  kinds_.back()->text = key;
  return kinds_.back().get();
}

std::unique_ptr<CapturedStep::Graph> CapturedStep::record(const std::vector<Batch>& batches,
                                                          const CarriedState& carried,
                                                          const StepOptions& options) {
  const Tensor& values = model_.params().values();
  CarriedState before;
  for (const auto& [name, tensor] : handed_over(batches, carried, model_, options))
    before.state.set(name, tensor.device() == kCpu ? raw::copy(tensor) : place_like(tensor));
  before.rows = before.state.empty() ? 0 : carried.rows;
  std::unique_ptr<Graph> graph(
      new Graph{StepInputs(batches, values.dtype(), values.device()), std::move(before), {}, nullptr});
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
  for (const auto& [name, place] : graph.before.state) {
    const Tensor& from = carried.state.get(name);
    if (!(place.device() == kCpu) && from.raw_data() != place.raw_data()) raw::copy_into(place, from);
  }
  round_values(model_.params());
  graph.graph->replay();
  const Tensor& values = model_.params().values();
  wrote_in_place(values, "optimizer.step");
  // The graph has rounded what it wrote.
  Buffer& buffer = *values.buffer();
  if (buffer.bf16_copy != nullptr) buffer.bf16_copy_version = buffer.version();
  return read_step(model_, optimizer_, graph.inputs, batches, graph.before, graph.work, carried, options);
}

std::string CapturedStep::take_message() {
  return std::exchange(message_, std::string());
}

void CapturedStep::say(const std::string& text) {
  if (!said_) message_ = text;
  said_ = true;
}

}  // namespace eddy
