// What all models share.
#include "models/model.h"

#include <algorithm>
#include <utility>

#include "autograd/tape.h"
#include "ops/pointwise/where.h"
#include "tensor/base/format.h"

namespace eddy {
namespace {

std::string text_of(const StateTensor& part) {
  std::string text;
  for (int i = 0; i < part.shape.rank(); ++i)
    text +=
        fmt::format("{}{}{}", i == 0 ? "" : ", ", i == part.growing_axis ? "at least " : "", part.shape[i]);
  return "[" + text + "]";
}

bool fits(const Shape& shape, const StateTensor& part) {
  if (shape.rank() != part.shape.rank()) return false;
  for (int i = 0; i < shape.rank(); ++i)
    if (i == part.growing_axis ? shape[i] < part.shape[i] : shape[i] != part.shape[i]) return false;
  return true;
}

// Counters that a GPU is still to compute are not waited for.
void check_counts(const std::string& model, const StateTensor& part, const Tensor& tensor) {
  const auto counts = raw::integers_at_hand(tensor);
  for (std::size_t i = 0; counts && i < counts->size(); ++i) {
    const std::int64_t count = (*counts)[i];
    if (i < part.most.size() && (count < 0 || count > part.most[i]))
      fail<ValueError>("{}: number {} of the state's {} is {} (0 to {})", model, i, part.name, count,
                       part.most[i]);
    if (count < 0)
      fail<ValueError>("{}: number {} of the state's {} is {} (at least 0)", model, i, part.name, count);
  }
}

}  // namespace

Tensor restart_rows(const Tensor& x, const Tensor& initial, const Tensor& flags) {
  Shape rows = x.shape();
  for (int axis = 1; axis < rows.rank(); ++axis) rows[axis] = 1;
  return where(raw::reshape(flags, rows), cast(initial, x.dtype()), x);
}

Model::~Model() = default;

Tensor Model::stream(const Tensor& tokens, State& state) const {
  const NoGrad no_grad;
  ForwardInput input;
  input.tokens = tokens;
  input.state = state;
  ForwardOutput output = forward(input);
  if (output.state.empty())
    fail<ValueError>(
        "{}: a call leaves no state that a stream could go on from (the model needs a `stream` of its own)",
        config().model);
  state = std::move(output.state);
  return output.logits;
}

std::vector<std::int64_t> Model::counts_of(const State& state) {
  std::vector<std::int64_t> counts;
  for (const auto& [name, tensor] : state) {
    if (tensor.dtype() != Dtype::i64) continue;
    if (const auto numbers = raw::integers_at_hand(tensor))
      counts.insert(counts.end(), numbers->begin(), numbers->end());
  }
  return counts;
}

void Model::check_recompute(Recompute recompute) const {
  if (recompute == Recompute::block && !has_blocks())
    fail<ConfigError>(
        "{}: train.recompute is \"block\", and no loop over the sequence is in this model whose turns could be computed "
        "again (\"layer\" recomputes its layers)",
        config().model);
}

const ModelConfig& Model::full_config() const {
  if (full_config_ == nullptr)
    fail<ValueError>("{}: no config with the keys of all families (make_model gives a model one)",
                     config().model);
  return *full_config_;
}

void Model::check_tokens(const Tensor& tokens) const {
  if (!tokens.defined() || tokens.rank() != 2)
    fail<ShapeError>("{}: tokens have shape {} ([batch, time])", config().model,
                     tokens.defined() ? to_string(tokens.shape()) : "none");
  if (tokens.dim(0) == 0 || tokens.dim(1) == 0)
    fail<ShapeError>("{}: no tokens: {} (at least one row of one token)", config().model,
                     to_string(tokens.shape()));
}

void Model::check_state(const State& state, const StateLayout& layout) const {
  const std::string& model = config().model;
  if (layout.empty() && !state.empty())
    fail<ValueError>("{}: a state for a model that carries none from call to call (leave it empty)", model);
  const Dtype parameters = params_.values().dtype(), activations = params_.activations();
  std::size_t present = 0;
  for (const StateTensor& part : layout) {
    if (part.optional && state.find(part.name) == nullptr) continue;
    ++present;
    const Tensor& tensor = state.get(part.name);
    const int axis = part.batch_axis;
    if (tensor.rank() == part.shape.rank() && tensor.dim(axis) != part.shape[axis] &&
        part.kind != StateTensor::Kind::count)
      fail<ShapeError>(
          "{}: {} rows of tokens and a state of {} rows: its {} has shape {} (one batch size for a "
          "whole stream)",
          model, part.shape[axis], tensor.dim(axis), part.name, to_string(tensor.shape()));
    if (!fits(tensor.shape(), part))
      fail<ShapeError>("{}: the state's {} has shape {} (here {})", model, part.name,
                       to_string(tensor.shape()), text_of(part));
    const Dtype dtype = tensor.dtype();
    if (part.kind == StateTensor::Kind::count) {
      if (dtype != Dtype::i64 && dtype != Dtype::i32)
        fail<DtypeError>("{}: the state's {} is {} (i64 or i32)", model, part.name, dtype_name(dtype));
      check_counts(model, part, tensor);
      continue;
    }
    const bool in_place = part.kind == StateTensor::Kind::rows;
    if (in_place ? dtype != activations : dtype != parameters && dtype != Dtype::bf16)
      fail<DtypeError>("{}: the state's {} is {} and the model {} (one dtype; cast it first)", model,
                       part.name, dtype_name(dtype), dtype_name(in_place ? activations : parameters));
    if (tensor.device() != params_.values().device())
      fail<DeviceError>("{}: the state's {} is on {} and the parameters are on {} (move it first)", model,
                        part.name, to_string(tensor.device()), to_string(params_.values().device()));
  }
  if (present == state.size()) return;  // a stream is checked at every token
  for (const auto& [name, tensor] : state) {
    if (std::any_of(layout.begin(), layout.end(),
                    [&wanted = name](const StateTensor& part) { return part.name == wanted; }))
      continue;
    std::string known;
    for (const StateTensor& part : layout) known += (known.empty() ? "" : ", ") + part.name;
    fail<ValueError>("{}: the state holds {}, which this model does not carry (it carries {})", model, name,
                     known);
  }
}

State Model::zeros_of(const StateLayout& layout) const {
  State state;
  for (const StateTensor& part : layout) {
    if (part.kind == StateTensor::Kind::count) continue;
    const Dtype dtype =
        part.kind == StateTensor::Kind::rows ? params_.activations() : params_.values().dtype();
    state.set(part.name, Tensor::zeros(part.shape, dtype, params_.values().device()));
  }
  return state;
}

void Model::check_start(const Tensor& start, std::int64_t batch, std::int64_t segments) const {
  if (!start.defined()) return;
  const std::string& model = config().model;
  if (start.dtype() != Dtype::i64 && start.dtype() != Dtype::i32)
    fail<DtypeError>("{}: start is {} (i64 or i32)", model, dtype_name(start.dtype()));
  if (start.shape() != Shape{batch, segments})
    fail<ShapeError>("{}: start has shape {} (here [{}, {}]: one flag per row and segment)", model,
                     to_string(start.shape()), batch, segments);
  const auto flags = raw::integers_at_hand(start);
  for (std::size_t i = 0; flags && i < flags->size(); ++i)
    if (const std::int64_t flag = (*flags)[i]; flag != 0 && flag != 1)
      fail<ValueError>("{}: start of row {} is {} (0 or 1)", model, static_cast<std::int64_t>(i) / segments,
                       flag);
}

Tensor Model::start_flags(const Tensor& start, std::int64_t segment) const {
  if (!start.defined()) return {};
  const Tensor column = raw::cast(raw::contiguous(raw::select(start, 1, segment)), Dtype::u8);
  const auto flags = raw::integers_at_hand(column);
  if (flags && std::find(flags->begin(), flags->end(), 1) == flags->end()) return {};
  return raw::to_device(column, params_.values().device());
}

}  // namespace eddy
