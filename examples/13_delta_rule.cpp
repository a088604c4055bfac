// Example 13: the gated delta rule, in one file of one's own, beside Eddy's models in all commands and tables:
//
//   example_13_delta_rule train --model delta_rule --data texts --run runs/delta
//   example_13_delta_rule reproduce examples/13_delta_rule.toml       against unit recurrence, LSTM and attention
//   example_13_delta_rule                                             checks itself, in seconds
//
// Linear attention keeps a matrix S, to which each token adds its pair: S += k v^T, and a query reads y = S^T q. Nothing
// is ever taken out, so that pairs of similar keys run together. The delta rule first reads what the key says already,
// and writes the difference alone; the gate alpha forgets everything at once. For each head, with keys of length 1:
//
//   S_t = alpha_t S_{t-1} + beta_t k_t (v_t - alpha_t S_{t-1}^T k_t)^T       0 < alpha < 1
//       = alpha_t (I - beta_t k_t k_t^T) S_{t-1} + beta_t k_t v_t^T         0 < beta < 2
//   y_t = S_t^T q_t
//
// beta = 1 replaces the value of a key. Beyond 1 the eigenvalue 1 - beta of a step is negative: a token may turn the
// state over, which parity and other groups need.
//
// Sources: S. Yang, J. Kautz, A. Hatamizadeh, "Gated Delta Networks" (arXiv 2412.06464), equation 10 and section 3.3;
// S. Yang et al., "Parallelizing linear transformers with the delta rule over sequence length" (arXiv 2406.06484),
// section 3.2, for the chunks; R. Grazzi et al., "Unlocking state-tracking in linear RNNs through negative eigenvalues"
// (arXiv 2411.12537), for beta. The papers write S transposed.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "autograd/named_values.h"
#include "autograd/scope.h"
#include "autograd/tape.h"
#include "models/eddy/registry.h"
#include "models/layers.h"
#include "ops/cast/upcast.h"
#include "ops/ops.h"
#include "tensor/base/error.h"
#include "tensor/create.h"
#include "tensor/random/random_tensors.h"
#include "train/app/program/program.h"
#include "train/run/checkpoint.h"

namespace own {

using namespace eddy;

// ---- the rule: q, k, v [batch, heads, time, size], beta and log_alpha [batch, heads, time, 1] -> y as v, and the
// state after it, [batch, heads, size, size]

struct Read {
  Tensor y, state;
};
struct Tokens {
  Tensor q, k, v, beta, log_alpha;
};

// The equations, token by token.
Read step_by_step(const Tokens& in, Tensor state) {
  std::vector<Tensor> ys;
  for (std::int64_t t = 0; t < in.q.dim(2); ++t) {
    const auto at = [t](const Tensor& x) { return narrow(x, 2, t, 1); };  // k_t^T, a row
    state = exp(at(in.log_alpha)) * state;
    const Tensor news = at(in.beta) * (at(in.v) - matmul(at(in.k), state));
    state = state + matmul(transpose(at(in.k), 2, 3), news);
    ys.push_back(matmul(at(in.q), state));
  }
  return {concat(ys, 2), state};
}

// Returns (I + A)^-1 of matrices A whose entries on and above the diagonal are 0. From the inverses of the diagonal
// blocks of s rows follow those of 2 s rows, for all blocks at once, by two products:
//
//   [ P 0 ]^-1   [  P^-1            0    ]
//   [ B Q ]    = [ -Q^-1 B P^-1     Q^-1 ]         T <- T - T (A, its blocks B alone) T
//
// (N. Higham, "Accuracy and stability of numerical algorithms", 2nd ed., section 14.2). The finite product (I - A)
// (I + A^2)(I + A^4).. takes as many products, but of the same key at 32 tokens its powers grow beyond 10^8 and
// cancel: nothing of f32 is left. Here all numbers are entries of inverses.
Tensor inverse_of_one_plus(const Tensor& a) {
  const std::int64_t n = a.dim(-1);
  const Tensor one = eye(n, a.dtype(), a.device());
  Tensor t = one;
  {
    const NoGrad untracked;
    for (std::int64_t s = 1; s < n; s *= 2) {
      std::vector<float> blocks;  // 1 in the places of the B
      for (std::int64_t i = 0; i < n * n; ++i)
        blocks.push_back(i / n / s % 2 == 1 && i / n / s == i % n / s + 1 ? 1.0F : 0.0F);
      const Tensor b = a * cast(raw::to_device(Tensor::from(blocks, {n, n}), a.device()), a.dtype());
      t = s == 1 ? t - b : t - matmul(matmul(t, b), t);
    }
  }
  // A step of Newton's iteration changes an inverse by no more than rounding, and has its gradient: dT = -T dA T.
  return n == 1 ? one - a : t + matmul(t, one - matmul(one + a, t));
}

// The same for `chunk` tokens at once. With S before a chunk, g_t = log alpha_1 + .. + log alpha_t inside it, and u_t
// what token t writes, unrolling gives
//
//   S_t = e^(g_t) S + sum over i <= t of e^(g_t - g_i) k_i u_i^T
//   u_t = beta_t (v_t - e^(g_t) S^T k_t - sum over i < t of e^(g_t - g_i) (k_i . k_t) u_i)
//
// The second is a triangular system for the rows of U: (I + A) U = beta (V - e^g K S), A_ti = beta_t e^(g_t - g_i)
// (k_i . k_t) for i < t. Its inverse T does not read S, so that it is found for all chunks at once (section 3.2 calls
// it the UT transform, and the rows of T beta e^g K the WY form of a product of Householder matrices). Only
//
//   U = T beta V - (T beta e^g K) S      Y = e^g Q S + (Q K^T, i <= t, e^(g_t - g_i)) U      S' = e^(g_C) S + (..K)^T U
//
// goes from chunk to chunk. All exponents are differences of a falling sum, hence never above 0.
Read in_chunks(Tokens in, Tensor state, std::int64_t chunk) {
  const Shape shape = in.v.shape();
  const std::int64_t rows = shape[0] * shape[1], time = shape[2], size = shape[3];
  const std::int64_t length = std::min(chunk, time), chunks = (time + length - 1) / length;
  // -> [rows, chunks, length, ..]; tokens of zeros at the end write nothing and forget nothing
  for (Tensor* x : {&in.q, &in.k, &in.v, &in.beta, &in.log_alpha}) {
    if (chunks * length > time) *x = pad(*x, {0, 0, 0, chunks * length - time});
    *x = reshape(*x, {rows, chunks, length, x->dim(3)});
  }
  const Tensor g = cumsum(in.log_alpha, 2), last = narrow(g, 2, length - 1, 1);
  const Tensor decay = exp(tril(g - transpose(g, 2, 3)));  // [.., t, i]; above the diagonal 1, and not used
  const Tensor keys = transpose(in.k, 2, 3), grown = in.beta * in.k;
  const Tensor t = inverse_of_one_plus(tril(matmul(grown, keys) * decay, -1));
  const Tensor values = matmul(t, in.beta * in.v), erased = matmul(t, grown * exp(g));
  const Tensor scores = tril(matmul(in.q, keys) * decay), asked = in.q * exp(g);
  const Tensor written = in.k * exp(last - g), kept = exp(last);
  state = reshape(state, {rows, size, size});
  std::vector<Tensor> ys;
  for (std::int64_t c = 0; c < chunks; ++c) {
    const auto at = [c](const Tensor& x) { return select(x, 1, c); };
    const Tensor u = at(values) - matmul(at(erased), state);
    ys.push_back(matmul(at(asked), state) + matmul(at(scores), u));
    state = at(kept) * state + matmul(transpose(at(written), 1, 2), u);
  }
  const Tensor y = reshape(concat(ys, 1), {shape[0], shape[1], chunks * length, size});
  return {narrow(y, 2, 0, time), reshape(state, {shape[0], shape[1], size, size})};
}

// ---- the model: layers of the rule and an MLP, as in section 3.4 of the first paper

// Its keys, beside the common ones (models/config.h), of which it reads `chunk`.
struct Keys {
  double beta_max = 2;
  bool decay = true;
  std::int64_t conv = 4;
  friend bool operator==(const Keys&, const Keys&) = default;
};
void describe(KeyList& keys, Keys& c) {
  keys.add("beta_max", c.beta_max, "Largest part of a value that is replaced; above 1 it may change its sign",
           {.low = 0, .high = 2})
      .common();
  keys.add("decay", c.decay, "Whether the state decays; without it this is the plain delta rule").common();
  keys.add("conv", c.conv, "Tokens that queries, keys and values mix, each channel by itself", {1, 64})
      .common();
}
void check(const FamilyConfig<Keys>& c) {
  rules::heads(c);
  rules::tied_head(c);
}

struct Layer {
  Layer(const ParamScope& scope, const FamilyConfig<Keys>& c)
      : inner(c.heads * c.head_dim),
        qkv(scope.scope("qkv"), c.dim, 3 * inner, c.init_std, false),
        gate(scope.scope("gate"), c.dim, inner, c.init_std, false),
        beta(scope.scope("beta"), c.dim, c.heads, c.init_std, false),
        out(scope.scope("out"), inner, c.dim, residual_deviation(c), false),
        up(scope.scope("up"), c.dim, c.mlp_dim, c.init_std, true),
        down(scope.scope("down"), c.mlp_dim, c.dim, residual_deviation(c), true),
        conv(scope.param("conv", {c.conv, 3 * inner},
                         Init::uniform(1 / std::sqrt(static_cast<double>(c.conv))))),
        norm(scope.param("norm", {c.dim}, Init::ones())),
        head_norm(scope.param("head_norm", {c.head_dim}, Init::ones())),
        mlp_norm(scope.param("mlp_norm", {c.dim}, Init::ones())) {
    if (!c.decay) return;
    // log alpha = -e^rate softplus(W x + b), at first between -1 and -0.001: from a token to a thousand
    rate = scope.param("rate", {c.heads}, Init::normal(0.7, 1.8));
    decay.emplace(scope.scope("decay"), c.dim, c.heads, Init::normal(c.init_std), Init::normal(1.1, -4.6));
  }

  std::int64_t inner;
  Linear qkv, gate, beta, out, up, down;
  Tensor conv, norm, head_norm, mlp_norm, rate;
  std::optional<Linear> decay;
};

class DeltaRule final : public FamilyModel<Keys> {
 public:
  DeltaRule(const Config& c, const ParamScope& scope)
      : FamilyModel(c),
        embed_(scope.scope("embed"), c.vocab, c.dim, c.init_std),
        norm_(scope.param("norm", {c.dim}, Init::ones())),
        head_(head_weight(scope.scope("head"), embed_, c.tied, {c.n_out, c.dim}, c.init_std)) {
    for (std::int64_t i = 0; i < c.layers; ++i) layers_.emplace_back(scope.scope("layers").scope(i), c);
  }

  bool is_recurrent() const override { return true; }

  ForwardOutput forward(const ForwardInput& input) const override {
    check_tokens(input.tokens);
    const std::int64_t batch = input.tokens.dim(0);
    const StateLayout layout = state_layout(batch);
    if (!input.state.empty()) check_state(input.state, layout);
    check_start(input.start, batch, 1);
    State state = input.state.empty() ? zeros_of(layout) : input.state.detach();
    if (const Tensor begins = start_flags(input.start, 0);
        begins.defined())  // rows that begin with a new state
      for (const StateTensor& part : layout)
        state.set(part.name, restart_rows(state.get(part.name), zeros_of(layout).get(part.name), begins));
    const DropoutSite drop{input.dropout, config().dropout};
    const double eps = config().norm_eps;
    Tensor x = embed_(input.tokens, params().activations());
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const Layer& layer = layers_[i];
      const std::string path = "layers." + std::to_string(i);
      const ScopeGuard scope(path);
      x = x + drop(mix(layer, rms_norm(x, layer.norm, eps), state, path, input.literal), path + ".drop");
      const Tensor hidden = gelu(layer.up(rms_norm(x, layer.mlp_norm, eps)));
      x = x + drop(layer.down(hidden), path + ".mlp.drop");
    }
    return {input, {rms_norm(x, norm_, eps), head_, {}}, state};
  }

 private:
  // x [batch, time, dim] -> the same; the layer's parts of the state become those after x.
  Tensor mix(const Layer& layer, const Tensor& x, State& state, const std::string& path, bool literal) const {
    const std::int64_t batch = x.dim(0), time = x.dim(1), width = config().conv;
    const auto by_head = [&](const Tensor& all) {  // [batch, time, heads size] -> [batch, heads, time, size]
      return transpose(reshape(all, {batch, time, config().heads, -1}), 1, 2);
    };
    // The state and what becomes it stay f32 beside bf16.
    const Tensor read = concat({state.get(path + ".read"), upcast(layer.qkv(x))}, 1);
    Tensor mixed = narrow(read, 1, 0, time) * select(layer.conv, 0, 0);
    for (std::int64_t i = 1; i < width; ++i)
      mixed = mixed + narrow(read, 1, i, time) * select(layer.conv, 0, i);
    const std::vector<Tensor> qkv = split(silu(mixed), 2, {layer.inner, layer.inner, layer.inner});
    const Tensor beta = config().beta_max * sigmoid(by_head(upcast(layer.beta(x))));
    const Tensor log_alpha =
        config().decay ? by_head(-exp(layer.rate) * softplus(upcast((*layer.decay)(x)))) : zeros_like(beta);
    name_value("beta", beta);
    name_value("alpha", [&] { return exp(log_alpha); });
    const Tokens tokens{unit_norm(by_head(qkv[0])), unit_norm(by_head(qkv[1])), by_head(qkv[2]), beta,
                        log_alpha};
    const Tensor& before = state.get(path + ".state");
    const Read now = literal ? step_by_step(tokens, before) : in_chunks(tokens, before, config().chunk);
    name_value("state", now.state);
    state.set(path + ".state", raw::copy(detach(now.state)));
    state.set(path + ".read", raw::copy(detach(narrow(read, 1, time, width - 1))));
    const Tensor y = rms_norm(transpose(now.y, 1, 2), layer.head_norm, config().norm_eps);
    return layer.out(activation(reshape(y, {batch, time, layer.inner})) * silu(layer.gate(x)));
  }

  StateLayout state_layout(std::int64_t batch) const {
    const Config& c = config();
    StateLayout layout;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const std::string path = "layers." + std::to_string(i);
      layout.push_back({.name = path + ".state", .shape = {batch, c.heads, c.head_dim, c.head_dim}});
      layout.push_back({.name = path + ".read", .shape = {batch, c.conv - 1, 3 * layers_[i].inner}});
    }
    return layout;
  }

  Embedding embed_;
  Tensor norm_, head_;
  std::vector<Layer> layers_;
};

// ---- the checks

double largest(const Tensor& x) {
  return max(abs(x)).item();
}

// The largest difference between the forms in f64, of values and of the gradients of all inputs, for `time` tokens of
// which each third has the same key, and decays whose logarithms are `strength` on average.
double difference_of_forms(std::int64_t time, std::int64_t chunk, double strength) {
  const auto random = [&](const char* name, const Shape& shape) {
    return randn(shape, random_key(1, name, 0), Dtype::f64);
  };
  const auto results = [&](bool chunked) {
    const Shape rows{2, 3, time, 5}, ones{2, 3, time, 1};
    const std::vector<Tensor> in{random("q", rows),    random("k", rows),     random("v", rows),
                                 random("beta", ones), random("alpha", ones), random("state", {2, 3, 5, 5})};
    for (const Tensor& x : in) require_grad(x);
    std::vector<Tensor> keys;
    for (std::int64_t t = 0; t < time; ++t) keys.push_back(narrow(in[1], 2, t % 3 == 0 ? 0 : t, 1));
    const Tokens tokens{in[0], unit_norm(concat(keys, 2)), in[2], 2 * sigmoid(in[3]),
                        -strength * softplus(in[4])};
    const Read out = chunked ? in_chunks(tokens, in[5], chunk) : step_by_step(tokens, in[5]);
    std::vector<Tensor> all{detach(out.y), detach(out.state)};
    backward({out.y, out.state}, {random("dy", rows), random("dstate", {2, 3, 5, 5})});
    for (const Tensor& x : in) all.push_back(grad(x));
    return all;
  };
  const std::vector<Tensor> steps = results(false), chunks = results(true);
  double worst = 0;
  for (std::size_t i = 0; i < steps.size(); ++i)
    worst = std::max(worst, largest(chunks[i] - steps[i]) / std::max(largest(steps[i]), 1.0));
  return worst;
}

// The largest difference in f64 between one call and the same tokens in two segments, and between it and a stream.
double difference_of_calls() {
  ModelConfig config;
  config.family = "delta_rules";
  config.model = "delta_rule";
  config.vocab = 7;
  config.dim = 12;
  config.heads = 3;
  config.layers = 2;
  config.chunk = 4;
  const auto model = make_model(config, Dtype::f64);
  model->params().initialize(1);
  const NoGrad untracked;
  const Tensor tokens = randint(0, config.vocab, {2, 19}, random_key(1, "tokens", 0));
  const auto logits = [&](std::int64_t first, std::int64_t count, State& state, bool literal) {
    ForwardInput input;
    input.tokens = raw::copy(narrow(tokens, 1, first, count));
    input.state = state;
    input.literal = literal;
    const ForwardOutput out = model->forward(input);
    state = out.state;
    return out.logits;
  };
  State whole, halves, stream;
  const Tensor expected = logits(0, 19, whole, true), start = logits(0, 7, halves, false);
  double worst = largest(concat({start, logits(7, 12, halves, false)}, 1) - expected);
  for (std::int64_t t = 0; t < 19; ++t) {
    const Tensor now = model->stream(raw::copy(narrow(tokens, 1, t, 1)), stream);
    worst = std::max(worst, largest(now - narrow(expected, 1, t, 1)));
  }
  for (const auto& [name, value] : whole)
    for (const State* other : {&halves, &stream}) worst = std::max(worst, largest(other->get(name) - value));
  return worst;
}

// Seconds of a forward and backward pass over 512 tokens in f32.
double seconds(bool chunked) {
  using Clock = std::chrono::steady_clock;
  const Shape rows{4, 4, 512, 32}, ones{4, 4, 512, 1};
  const Tensor x = randn(rows), size = rand(ones), state = zeros({4, 4, 32, 32});
  double best = 1e9;
  for (int i = 0; i < 3; ++i) {
    const Clock::time_point start = Clock::now();
    const Tensor leaf = raw::copy(x);
    require_grad(leaf);
    const Tokens tokens{leaf, unit_norm(leaf), leaf, size, -size};
    backward(sum((chunked ? in_chunks(tokens, state, 32) : step_by_step(tokens, state)).y));
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return best;
}

int run(std::vector<std::string> words) {
  words.insert(words.begin(), "example_13_delta_rule");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  return app::program(static_cast<int>(argv.size()), argv.data());
}

// The validation loss of parity after training with this limit of beta.
double loss_of_parity(const std::string& folder, const std::string& beta_max) {
  std::vector<std::string> words{"train", "--run", folder};
  for (const auto& [key, value] :
       std::vector<std::pair<std::string, std::string>>{{"model", "delta_rule"},
                                                        {"model.dim", "32"},
                                                        {"model.heads", "2"},
                                                        {"model.context", "32"},
                                                        {"model.chunk", "16"},
                                                        {"model.beta_max", beta_max},
                                                        {"data.name", "parity"},
                                                        {"train.steps", "200"},
                                                        {"train.batch", "32"},
                                                        {"train.learning_rate", "0.01"},
                                                        {"train.eval_every", "100"}})
    words.insert(words.end(), {"--" + key, value});
  return run(words) == 0 ? training::load_run(folder).state.best_loss : 1e9;
}

int check_itself() {
  bool good = true;
  const auto expect = [&good](bool right, const char* what, double number) {
    std::printf("%-75s %9.2g  %s\n", what, number, right ? "ok" : "WRONG");
    good = good && right;
  };
  double forms = 0;
  for (const std::int64_t time : {1, 5, 8, 21})
    for (const std::int64_t chunk : {1, 4, 7, 64})
      for (const double strength : {0.01, 1.0, 500.0})
        forms = std::max(forms, difference_of_forms(time, chunk, strength));
  expect(forms < 1e-11, "chunks and steps, values and gradients, f64: largest difference", forms);
  const double calls = difference_of_calls();
  expect(calls < 1e-12, "two segments, a stream and one call, f64: largest difference", calls);
  std::printf("512 tokens forward and backward: chunks of 32 are %.1f times as fast as steps\n",
              seconds(false) / seconds(true));

  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / ("delta_rule-" + std::to_string(::getpid()));
  const double negative = loss_of_parity((folder / "two").string(), "2");
  const double positive = loss_of_parity((folder / "one").string(), "1");
  expect(negative < 0.05, "parity, validation loss with beta up to 2", negative);
  expect(positive > 0.3, "parity, validation loss with beta up to 1: it cannot", positive);
  good = good && run({"eval", (folder / "two").string()}) == 0;
  fs::remove_all(folder);
  return good ? 0 : 1;
}

}  // namespace own

int main(int argc, char** argv) try {
  eddy::register_model<own::DeltaRule>({"delta_rules", "delta_rule"}, "the gated delta rule, in chunks",
                                       {.common = "chunk head_dim init_std tied"});
  return argc > 1 ? eddy::app::program(argc, argv) : own::check_itself();
} catch (const eddy::Error& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
