// What the recurrent transformers share, and the regular transformer.
#include "models/recurrent_transformer/recurrent_transformer.h"

#include <algorithm>

#include "autograd/scope.h"
#include "autograd/tape.h"
#include "ops/attention/attention.h"
#include "ops/pointwise/pointwise.h"
#include "ops/views/views.h"
#include "tensor/base/format.h"

namespace eddy {
namespace {

std::int64_t position_of(const State& state) {
  return state.size() == 0 ? 0 : state.get("position").item_int();
}

// Stands in a state's shape for rows that may be more than the tokens so far; no size of a state is 0.
constexpr std::int64_t kAtLeastPosition = 0;

std::string shape_text(const Shape& shape) {
  std::string text;
  for (int i = 0; i < shape.rank(); ++i)
    text += (i == 0 ? "" : ", ") + (shape[i] == kAtLeastPosition ? "rows" : std::to_string(shape[i]));
  return "[" + text + "]";
}

}  // namespace

RecurrentTransformer::~RecurrentTransformer() = default;

RecurrentTransformer::RecurrentTransformer(const ModelConfig& config, const ParamScope& scope)
    : Model(config),
      embed_(scope.scope("embed"), config.vocab, config.dim, config.init_std),
      positions_(config.positions
                     ? scope.scope("pos_embed")
                           .param("weight", {config.context, config.dim}, Init::normal(config.init_std))
                     : Tensor()),
      final_norm_([&] {
        layers_.reserve(static_cast<std::size_t>(config.layers));
        for (std::int64_t i = 0; i < config.layers; ++i)
          layers_.emplace_back(scope.scope("layers").scope(i), "layers." + std::to_string(i), config);
        return LayerNorm(scope.scope("final_norm"), config.dim, config.norm_eps, config.bias);
      }()),
      head_weight_(config.tied ? embed_.weight
                               : scope.scope("head").param("weight", {config.n_out, config.dim},
                                                           Init::normal(config.init_std))) {}

void RecurrentTransformer::check_tokens(const Tensor& tokens, std::int64_t first_position) const {
  if (!tokens.defined() || tokens.rank() != 2)
    fail<ShapeError>("{}: tokens have shape {} ([batch, time])", config().model,
                     tokens.defined() ? to_string(tokens.shape()) : "none");
  if (tokens.dim(0) == 0 || tokens.dim(1) == 0)
    fail<ShapeError>("{}: no tokens: {} (at least one row of one token)", config().model,
                     to_string(tokens.shape()));
  check_positions(first_position + tokens.dim(1));
}

void RecurrentTransformer::check_positions(std::int64_t positions) const {
  if (config().positions && positions > config().context)
    fail<ValueError>(
        "{}: {} positions and a position table of {} (raise model.context or shorten the sequence)",
        config().model, positions, config().context);
}

std::int64_t RecurrentTransformer::check_stream(const Tensor& tokens, const State& state) const {
  const std::int64_t position = position_of(state);
  check_tokens(tokens, position);
  if (state.empty()) return 0;
  if (position < 1)
    fail<ValueError>("{}: the state's position is {} (at least 1; an empty state begins a stream)",
                     config().model, position);
  const NamedShapes expected = stream_shapes(tokens.dim(0), position);
  for (const auto& [name, shape] : expected) {
    const Tensor& tensor = state.get(name);
    if (tensor.rank() == shape.rank() && tensor.dim(0) != shape[0])
      fail<ShapeError>("{}: {} rows of tokens and a state of {} rows (one batch size for a whole stream)",
                       config().model, shape[0], tensor.dim(0));
    bool fits = tensor.rank() == shape.rank();
    for (int i = 0; fits && i < shape.rank(); ++i)
      fits = shape[i] == kAtLeastPosition ? tensor.dim(i) >= position : tensor.dim(i) == shape[i];
    if (!fits)
      fail<ShapeError>("{}: the state's {} has shape {} after {} tokens (here {})", config().model, name,
                       to_string(tensor.shape()), position, shape_text(shape));
  }
  if (state.size() != expected.size() + 1)
    fail<ValueError>("{}: a state of {} tensors, which has {} after {} tokens (a state that `stream` left)",
                     config().model, state.size(), expected.size() + 1, position);
  return position;
}

void RecurrentTransformer::check_input(const ForwardInput& input) const {
  if (!input.state.empty())
    fail<ValueError>("{}: a state for a model that carries none from call to call (leave it empty)",
                     config().model);
  check_tokens(input.tokens, 0);
}

Tensor RecurrentTransformer::embed(const Tensor& tokens, std::int64_t first, bool is_time_major) const {
  const ScopeGuard scope("embed");
  if (!positions_.defined()) return embed_(tokens, params().activations());
  const std::int64_t time = tokens.dim(is_time_major ? 0 : 1);
  Tensor rows = narrow(positions_, 0, first, time);
  if (is_time_major) rows = reshape(rows, {time, 1, config().dim});
  return embed_(tokens, params().activations(), rows);
}

Classifier RecurrentTransformer::head(const Tensor& y, bool is_time_major) const {
  const ScopeGuard scope("head");
  return {final_norm_(y), head_weight_, {}, is_time_major};
}

std::int64_t RecurrentTransformer::rows_read(const ForwardInput& input) const {
  const std::int64_t time = input.tokens.dim(1);
  if (config().readout == "last") return 1;
  if (config().readout != "tail") return time;
  if (input.tail < 1 || input.tail > time)
    fail<ValueError>("{}: readout tail of {} positions in a sequence of {} (from 1 to the sequence's length)",
                     config().model, input.tail, time);
  return input.tail;
}

ForwardOutput RecurrentTransformer::forward(const ForwardInput& input) const {
  check_input(input);
  const std::int64_t time = input.tokens.dim(1), rows = rows_read(input);
  const bool swapped = time_major(input.literal);
  const DropoutSite drop{input.dropout, config().dropout};
  const Tensor tokens = swapped ? raw::copy(raw::transpose(input.tokens, 0, 1)) : input.tokens;
  Tensor y = run_layers(drop(embed(tokens, 0, swapped), "embed.drop"), rows, drop, input);
  if (y.dim(swapped ? 0 : 1) != rows) y = narrow(y, swapped ? 0 : 1, time - rows, rows);
  return {input, head(y, swapped), {}};
}

double RecurrentTransformer::forward_macs_per_token(std::int64_t time) const {
  const auto dim = static_cast<double>(config().dim), mlp = static_cast<double>(config().mlp_dim);
  const auto layers = static_cast<double>(config().layers);
  const double read = static_cast<double>(least_rows(time)) / static_cast<double>(time);
  // q, k, v of x; k, v of h; the output projection and the MLP for h, and again for the outputs that are
  // read; the gate (specification section 4.1).
  const double finish = dim * dim + 2 * dim * mlp, chain = 3 * dim * dim + 2 * dim * dim + finish + 4 * dim;
  return layers * chain + (layers - 1 + read) * finish + read * dim * static_cast<double>(config().n_out);
}

double RegularTransformer::forward_macs_per_token(std::int64_t time) const {
  const auto dim = static_cast<double>(config().dim), mlp = static_cast<double>(config().mlp_dim);
  const auto layers = static_cast<double>(config().layers), length = static_cast<double>(time);
  const auto rows = static_cast<double>(least_rows(time));
  const double read = rows / length;
  // Allowed pairs only, for scores and for values: the last `rows` queries see length - (rows - 1) / 2 keys
  // on average.
  const auto of_rows = [&](double share, double keys) {
    return share * (2 * dim * dim + 2 * dim * mlp + 2 * dim * keys);
  };
  return layers * 2 * dim * dim + (layers - 1) * of_rows(1, (length + 1) / 2) +
         of_rows(read, length - (rows - 1) / 2) + read * dim * static_cast<double>(config().n_out);
}

Tensor RegularTransformer::run_layers(const Tensor& x, std::int64_t rows, const DropoutSite& drop,
                                      const ForwardInput& input) const {
  Tensor y = x;
  for (std::size_t i = 0; i + 1 < layers_.size(); ++i) y = layers_[i](y, drop);
  const TransformerLayer& last = layers_.back();
  if (input.literal || rows == x.dim(1)) return last(y, drop);
  const ScopeGuard scope(last.path);
  const WindowLayer window(last, drop);
  return window.output(y, window.key_value(y), x.dim(1) - rows, 0);
}

RecurrentTransformer::NamedShapes RegularTransformer::stream_shapes(std::int64_t batch, std::int64_t) const {
  NamedShapes shapes;
  for (const TransformerLayer& layer : layers_)
    for (const char* part : {".k", ".v"})
      shapes.emplace_back(layer.path + part, Shape{batch, kAtLeastPosition, config().dim});
  return shapes;
}

std::int64_t RegularTransformer::stream_room(const State& state) const {
  return config().context - position_of(state);
}

Tensor RegularTransformer::stream(const Tensor& tokens, State& state) const {
  const NoGrad no_grad;
  const std::int64_t first = check_stream(tokens, state);
  const std::int64_t batch = tokens.dim(0), time = tokens.dim(1), dim = config().dim, heads = config().heads;
  if (first + time > config().context)
    fail<ValueError>("{}: {} positions and a context of {} (the cache is full)", config().model, first + time,
                     config().context);
  Tensor y = embed(tokens, first, false);
  const DropoutSite off;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const TransformerLayer& layer = layers_[i];
    const std::string name = "layers." + std::to_string(i);
    if (first == 0) {
      state.set(name + ".k", Tensor::zeros({batch, config().context, dim}, y.dtype(), y.device()));
      state.set(name + ".v", Tensor::zeros({batch, config().context, dim}, y.dtype(), y.device()));
    }
    const Tensor qkv = layer.wqkv(layer.attn_norm(y));
    const auto heads_of = [&](const Tensor& rows) {
      return raw::reshape(rows, {batch, rows.dim(1), heads, dim / heads});
    };
    const auto extended = [&](const char* which, int part) {
      const Tensor& cache = state.get(name + which);
      if (cache.dim(1) < first + time)
        fail<ValueError>("{}: {} positions and a cache of {} rows (the cache is full)", config().model,
                         first + time, cache.dim(1));
      raw::copy_into(raw::narrow(cache, 1, first, time), raw::narrow(qkv, 2, part * dim, dim));
      return heads_of(raw::narrow(cache, 1, 0, first + time));
    };
    AttentionOptions options;
    options.causal = true;
    const Tensor attended =
        attention(heads_of(raw::narrow(qkv, 2, 0, dim)), extended(".k", 1), extended(".v", 2), options);
    y = layer.mlp(y, layer.wo(raw::reshape(attended, {batch, time, dim})), off, 0);
  }
  state.set("position", Tensor::from(std::vector<std::int64_t>{first + time}, {1}));
  return head(y, false).logits();
}

}  // namespace eddy
