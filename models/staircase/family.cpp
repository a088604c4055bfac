// What the models of the staircase family share: embedding, head, segments, and checks of tokens and states.
#include "models/staircase/family.h"

#include <algorithm>
#include <cmath>

#include "autograd/scope.h"
#include "autograd/tape.h"
#include "ops/cast/upcast.h"
#include "ops/ops.h"
#include "tensor/base/format.h"

namespace eddy {

Tensor carried(const Tensor& x) {
  return raw::contiguous(detach(x));
}

Tensor last_rows(const Tensor* before, const Tensor& rows, std::int64_t count) {
  const Tensor x = upcast(detach(rows));
  const std::int64_t time = x.dim(1), earlier = before != nullptr ? before->dim(1) : 0;
  if (time >= count || earlier == 0) {
    const std::int64_t kept = std::min(time, count);
    return raw::copy(raw::narrow(x, 1, time - kept, kept));
  }
  const std::int64_t kept = std::min(earlier, count - time);
  return concat({raw::narrow(*before, 1, earlier - kept, kept), x}, 1);
}

Tensor joined(const Tensor& a, const Tensor& b) {
  if (!a.defined()) return b;
  return b.defined() ? concat({a, b}, 1) : a;
}

std::string numbered(const char* name, std::int64_t a, std::int64_t b) {
  return fmt::format("{}.{}.{}", name, a, b);
}

StaircaseCore::StaircaseCore(const ParamScope& scope, const staircase::Config& config, bool shared_kv)
    : key_pe(scope.scope("pos").param("key_pe", {config.head_dim, config.span}, Init::normal(1))) {
  layers.reserve(static_cast<std::size_t>(config.layers));
  for (std::int64_t i = 0; i < config.layers; ++i)
    layers.emplace_back(scope.scope("layers").scope(i), "layers." + std::to_string(i), config,
                        shared_kv && i > 0 ? layers.data() : nullptr);
}

namespace {

bool is_lstm(const staircase::Config& config) {
  return config.model == "lstm";
}

}  // namespace

StaircaseFamily::~StaircaseFamily() = default;

StaircaseFamily::StaircaseFamily(const staircase::Config& config, const ParamScope& scope)
    : FamilyModel(config),
      embed_weight_(scope.scope("embed").param(
          "weight", {config.vocab, is_lstm(config) ? config.embed_dim : config.dim},
          is_lstm(config) ? Init::uniform(1 / std::sqrt(static_cast<double>(config.dim)))
                          : Init::normal(1))) {
  if (!is_lstm(config) && config.prenorm)
    final_norm_.emplace(scope.scope("final_norm"), config.dim, config.norm_eps, true);
  const Init init = Init::uniform(1 / std::sqrt(static_cast<double>(config.dim)));
  head_weight_ = scope.scope("head").param("weight", {config.n_out, config.dim}, init);
  head_bias_ = scope.scope("head").param("bias", {config.n_out}, init);
}

Tensor StaircaseFamily::embed(const Tensor& tokens) const {
  const ScopeGuard scope("embed");
  const Tensor ids = time_major() ? raw::copy(raw::transpose(tokens, 0, 1)) : tokens;
  return embedding_sum(embed_weight_, ids, {}, params().activations());
}

Classifier StaircaseFamily::head(const Tensor& hidden, const DropoutContext& context) const {
  const ScopeGuard scope("head");
  const DropoutSite drop{context, has_outer_dropout() ? config().out_dropout : 0};
  const Tensor y = final_norm_ ? (*final_norm_)(hidden) : hidden;
  return {drop(y, "head.drop"), head_weight_, head_bias_, time_major()};
}

State StaircaseFamily::restarted(const State& state, const Tensor& start, std::int64_t segment) const {
  const Tensor flags = start_flags(start, segment);
  if (state.empty() || !flags.defined()) return state;
  const std::int64_t batch = start.dim(0);
  const State cold = cold_state(batch);
  const Tensor column = raw::select(start, 1, segment);
  if (const auto of_rows = raw::integers_at_hand(cold.empty() ? raw::to_device(column, kCpu) : column)) {
    const std::int64_t flagged = std::count(of_rows->begin(), of_rows->end(), 1);
    if (flagged == batch) return cold;
    if (flagged == 0) return state;
    if (cold.empty())
      fail<ValueError>(
          "{}: {} of {} rows begin a document in segment {} (all or none with cold_start \"empty\", where rows "
          "without a past have another state than the others)",
          config().model, flagged, batch, segment);
  }
  State mixed;
  for (const auto& [name, tensor] : state) mixed.set(name, restart_rows(tensor, cold.get(name), flags));
  return mixed;
}

ForwardOutput StaircaseFamily::forward(const ForwardInput& input) const {
  check_tokens(input.tokens);
  const std::int64_t batch = input.tokens.dim(0), time = input.tokens.dim(1), length = config().segment;
  const std::int64_t segments = this->segments(time);
  check_time(time);
  check_start(input.start, batch, segments);
  if (is_stream(input.state)) check_stream(input.state, batch);
  State state = input.state.empty() ? cold_state(batch) : import_state(input.state, batch);

  const DropoutSite outer{input.dropout, has_outer_dropout() ? config().emb_dropout : 0};
  const Tensor x = outer(embed(input.tokens), "embed.drop");
  Run run{
      {input.dropout, config().dropout}, input.literal, 0, input.literal ? Recompute::none : input.recompute};
  const int axis = time_major() ? 0 : 1;
  std::vector<Tensor> hidden;
  for (std::int64_t i = 0; i < segments; ++i) {
    const std::int64_t begin = i * length;
    run.first = begin;
    if (input.start.defined()) state = restarted(state, input.start, i);
    Segment done = run_segment(
        segments == 1 ? x : contiguous(narrow(x, axis, begin, std::min(length, time - begin))), state, run);
    state = done.state.detach();
    hidden.push_back(done.hidden);
  }
  return {input, head(segments == 1 ? hidden[0] : concat(hidden, axis), input.dropout), state};
}

}  // namespace eddy
