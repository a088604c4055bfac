// Example 13: the gated delta rule as a model of one's own, beside Eddy's models in all commands and tables:
//
//   example_13_delta_rule train --model delta_rule --data tinyshakespeare --run runs/delta
//   example_13_delta_rule reproduce examples/13_delta_rule.toml       against unit recurrence, LSTM and attention
//   example_13_delta_rule                                             checks itself, in seconds
//
// Linear attention is attention without its softmax. All that it keeps is a matrix S: each token adds its pair,
// S += k v^T, and a query reads y = S^T q. Nothing is ever taken out, so values of similar keys mix. The delta rule
// first reads what S has for the key, and writes the difference alone; a gate alpha lets all of S decay. For each head,
// with keys of length 1:
//
//   S_t = alpha_t S_{t-1} + beta_t k_t (v_t - alpha_t S_{t-1}^T k_t)^T       0 < alpha < 1
//       = alpha_t (I - beta_t k_t k_t^T) S_{t-1} + beta_t k_t v_t^T          0 < beta < 2
//   y_t = S_t^T q_t
//
// beta = 1 replaces the value of a key. Above 1 the eigenvalue 1 - beta of I - beta k k^T is negative: a token can
// change the sign of what it finds, without which such layers cannot follow parity at all lengths.
//
// Sources: S. Yang, J. Kautz, A. Hatamizadeh, "Gated delta networks: improving Mamba2 with delta rule" (arXiv
// 2412.06464) for the rule and the layer; S. Yang, B. Wang, Y. Zhang, Y. Shen, Y. Kim, "Parallelizing linear
// transformers with the delta rule over sequence length" (arXiv 2406.06484) for chunks; R. Grazzi et al., "Unlocking
// state-tracking in linear RNNs through negative eigenvalues" (arXiv 2411.12537) for beta. They write S transposed.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "autograd/named_values.h"
#include "autograd/scope.h"
#include "models/eddy/eddy.h"
#include "ops/cast/upcast.h"
#include "train/app/program/program.h"
#include "train/run/checkpoint.h"

namespace own {

using namespace eddy;

// ---- the rule

// q, k, v [batch, heads, time, size]; beta, log_alpha [batch, heads, time, 1].
struct Tokens {
  Tensor q, k, v, beta, log_alpha;
};
struct Result {
  Tensor y, state;  // [batch, heads, time, size], and [batch, heads, size, size] after the last token
};

// The equations, token by token.
Result step_by_step(const Tokens& in, Tensor state) {
  std::vector<Tensor> ys;
  for (std::int64_t t = 0; t < in.q.dim(2); ++t) {
    const auto row = [t](const Tensor& x) { return narrow(x, 2, t, 1); };
    state = exp(row(in.log_alpha)) * state;
    const Tensor news = row(in.beta) * (row(in.v) - matmul(row(in.k), state));
    state = state + matmul(transpose(row(in.k), 2, 3), news);
    ys.push_back(matmul(row(in.q), state));
  }
  return {concat(ys, 2), state};
}

// Returns (I + A)^-1 for matrices A with zeros on and above the diagonal. The inverses of diagonal blocks of s rows
// give those of 2 s rows, all of them by two products:
//
//   [ P 0 ]^-1   [  P^-1            0    ]
//   [ B Q ]    = [ -Q^-1 B P^-1     Q^-1 ]         T <- T - T (the blocks B of A, else 0) T
//
// The finite product (I - A)(I + A^2)(I + A^4) .. is the same on paper, and no faster. But with one key 32 times and
// beta = 1 its powers reach 10^8 and cancel: in f32 its error is 16, where it is 1e-7 here, since all numbers are
// entries of inverses.
Tensor inverse_of_one_plus(const Tensor& a) {
  const std::int64_t n = a.dim(-1);
  const Tensor one = eye(n, a.dtype(), a.device());
  if (n == 1) return one - a;
  Tensor t;
  {
    const NoGrad untracked;
    for (std::int64_t s = 1; s < n; s *= 2) {
      const std::int64_t blocks = (n + 2 * s - 1) / (2 * s), rows = blocks * 2 * s;
      const Tensor corner =
          pad(ones({s, s}, a.dtype(), a.device()), {0, s, s, 0});  // 1 where a block has its B
      const Tensor corners = reshape(eye(blocks, a.dtype(), a.device()), {blocks, 1, blocks, 1}) *
                             reshape(corner, {2 * s, 1, 2 * s});
      const Tensor b = a * narrow(narrow(reshape(corners, {rows, rows}), 0, 0, n), 1, 0, n);
      t = s == 1 ? one - b : t - matmul(matmul(t, b), t);
    }
  }
  // A step of Newton's iteration from the inverse changes it by rounding alone, and has its gradient: dT = -T dA T.
  return t + matmul(t, one - matmul(one + a, t));
}

// The same in chunks, whose tokens are computed at once. Let S be the state before a chunk, g_t = log alpha_1 + .. +
// log alpha_t inside it, and u_t what token t writes beside its key. The rule, unrolled:
//
//   S_t = e^(g_t) S + sum over i <= t of e^(g_t - g_i) k_i u_i^T
//   u_t = beta_t (v_t - e^(g_t) S^T k_t) - sum over i < t of A_ti u_i         A_ti = beta_t e^(g_t - g_i) k_t . k_i
//
// The second line is a triangular system. With T = (I + A)^-1, and u_t, v_t, .. as the rows of U, V, .., it says
//
//   U  = T (beta V) - T (beta e^g K) S
//   Y  = (e^g Q) S + D U           D_ti = e^(g_t - g_i) q_t . k_i for i <= t
//   S' = e^(g_C) S + (e^(g_C - g) K)^T U
//
// T, D and all that stands beside S and U do not need S, and are computed for all chunks at once (the UT transform of
// the second paper; the gates are those of the first). Each exponent is the sum of logarithms below 0, so nothing
// overflows; e^g / e^(g_i) would.
Result in_chunks(Tokens in, Tensor state, std::int64_t chunk) {
  const Shape shape = in.v.shape();
  const std::int64_t rows = shape[0] * shape[1], time = shape[2], size = shape[3];
  const std::int64_t length = std::min(chunk, time), chunks = (time + length - 1) / length;
  // -> [rows, chunks, length, ..]. Zeros behind the last token write nothing and let nothing decay.
  for (Tensor* x : {&in.q, &in.k, &in.v, &in.beta, &in.log_alpha})
    *x = reshape(pad(*x, {0, 0, 0, chunks * length - time}), {rows, chunks, length, x->dim(3)});
  const Tensor g = cumsum(in.log_alpha, 2), last = narrow(g, 2, length - 1, 1);
  const Tensor decay = exp(tril(g - transpose(g, 2, 3)));  // 1 above the diagonal, where tril clears products
  const Tensor keys = transpose(in.k, 2, 3), beta_k = in.beta * in.k;
  const Tensor inverse = inverse_of_one_plus(tril(matmul(beta_k, keys) * decay, -1));
  const Tensor values = matmul(inverse, in.beta * in.v), erased = matmul(inverse, beta_k * exp(g));
  const Tensor asked = in.q * exp(g), inside = tril(matmul(in.q, keys) * decay);
  const Tensor written = transpose(in.k * exp(last - g), 2, 3), kept = exp(last);
  state = reshape(state, {rows, size, size});
  std::vector<Tensor> ys;
  for (std::int64_t c = 0; c < chunks; ++c) {
    const auto of = [c](const Tensor& x) { return select(x, 1, c); };
    const Tensor u = of(values) - matmul(of(erased), state);
    ys.push_back(matmul(of(asked), state) + matmul(of(inside), u));
    state = of(kept) * state + matmul(of(written), u);
  }
  const Tensor y = reshape(concat(ys, 1), {shape[0], shape[1], chunks * length, size});
  return {narrow(y, 2, 0, time), reshape(state, {shape[0], shape[1], size, size})};
}

// ---- the model: layers of the rule and of an MLP (as in the first paper, whose MLP is a gated one)

// Its keys, beside the common ones (models/config.h). Of these `chunk` changes the speed and not the results.
struct Keys {
  double beta_max = 2;
  bool decay = true;
  std::int64_t conv = 4;
  friend bool operator==(const Keys&, const Keys&) = default;
};
void describe(KeyList& keys, Keys& c) {
  keys.add("beta_max", c.beta_max, "Upper limit of beta; above 1 a token can change signs in the state",
           {.low = 0, .high = 2})
      .common();
  keys.add("decay", c.decay, "Whether the state decays; if not, this is the plain delta rule").common();
  keys.add("conv", c.conv, "Tokens that queries, keys and values mix, in each channel", {1, 64}).common();
}
void check(const FamilyConfig<Keys>& c) {
  rules::heads(c);
  rules::tied_head(c);
}

class DeltaRule final : public FamilyModel<Keys> {
 public:
  DeltaRule(const Config& c, const ParamScope& scope)
      : FamilyModel(c),
        embed_(scope.scope("embed"), c.vocab, c.dim, c.init_std),
        norm_(scope.param("norm", {c.dim}, Init::ones())),
        head_(head_weight(scope.scope("head"), embed_, c.tied, {c.n_out, c.dim}, c.init_std)) {
    const std::int64_t inner = c.heads * c.head_dim;
    const double deep = residual_deviation(c);
    for (std::int64_t i = 0; i < c.layers; ++i) {
      const ParamScope layer = scope.scope("layers").scope(i);
      const Linear up(layer.scope("up"), c.dim, c.mlp_dim, c.init_std, true);
      const Linear down(layer.scope("down"), c.mlp_dim, c.dim, deep, true);
      layers_.push_back(
          {.norm = layer.param("norm", {c.dim}, Init::ones()),
           .mlp_norm = layer.param("mlp_norm", {c.dim}, Init::ones()),
           .head_norm = layer.param("head_norm", {c.head_dim}, Init::ones()),
           .conv = layer.param("conv", {c.conv, 3 * inner}, Init::uniform(std::pow(c.conv, -0.5))),
           .qkv = {layer.scope("qkv"), c.dim, 3 * inner, c.init_std, false},
           .beta = {layer.scope("beta"), c.dim, c.heads, c.init_std, false},
           .gate = {layer.scope("gate"), c.dim, inner, c.init_std, false},
           .out = {layer.scope("out"), inner, c.dim, deep, false},
           .mlp = {up, down, true},
           .rate = {},
           .step = {}});
      if (!c.decay) continue;
      // Of the size of the authors' values: at first heads keep what they have for one token to a thousand.
      layers_.back().rate = layer.param("rate", {c.heads}, Init::normal(0.7, 1.8));
      layers_.back().step.emplace(layer.scope("step"), c.dim, c.heads, Init::normal(c.init_std),
                                  Init::normal(1.1, -4.6));
    }
  }

  bool is_recurrent() const override { return true; }

  ForwardOutput forward(const ForwardInput& input) const override {
    check_tokens(input.tokens);
    const StateLayout layout = state_layout(input.tokens.dim(0));
    if (!input.state.empty()) check_state(input.state, layout);
    check_start(input.start, input.tokens.dim(0), 1);
    const State zero = zeros_of(layout);
    State state = input.state.empty() ? zero : input.state.detach();
    const Tensor begins = start_flags(input.start, 0);  // the rows that begin with a new state
    for (const StateTensor& part : layout)
      if (begins.defined())
        state.set(part.name, restart_rows(state.get(part.name), zero.get(part.name), begins));
    const DropoutSite drop{input.dropout, config().dropout};
    Tensor x = embed_(input.tokens, params().activations());
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const Layer& layer = layers_[i];
      const std::string path = "layers." + std::to_string(i);
      const ScopeGuard scope(path);
      x = x + drop(mix(layer, normed(x, layer.norm), path, state, input.literal), path + ".drop");
      x = x + drop(layer.mlp(normed(x, layer.mlp_norm)), path + ".mlp.drop");
    }
    return {input, {normed(x, norm_), head_, {}}, state};
  }

 private:
  struct Layer {
    Tensor norm, mlp_norm, head_norm, conv;
    Linear qkv, beta, gate, out;
    FeedForward mlp;
    Tensor rate;  // these two only where the state decays
    std::optional<Linear> step;
  };
  Tensor normed(const Tensor& x, const Tensor& weight) const {
    return rms_norm(x, weight, config().norm_eps);
  }

  // x [batch, time, dim] -> the same. Writes the layer's parts of the state.
  Tensor mix(const Layer& layer, const Tensor& x, const std::string& path, State& state, bool literal) const {
    const std::int64_t batch = x.dim(0), time = x.dim(1), width = config().conv,
                       inner = config().heads * config().head_dim;
    const auto by_head = [&](const Tensor& all) {  // [batch, time, heads ..] -> [batch, heads, time, ..]
      return transpose(reshape(all, {batch, time, config().heads, -1}), 1, 2);
    };
    // The convolution goes on from the last tokens of the call before. From here to y all is f32, also beside bf16.
    const Tensor read = concat({state.get(path + ".read"), upcast(layer.qkv(x))}, 1);
    Tensor mixed = narrow(read, 1, 0, time) * select(layer.conv, 0, 0);
    for (std::int64_t i = 1; i < width; ++i)
      mixed = mixed + narrow(read, 1, i, time) * select(layer.conv, 0, i);
    const std::vector<Tensor> qkv = split(silu(mixed), 2, {inner, inner, inner});
    Tokens tokens{unit_norm(by_head(qkv[0])), unit_norm(by_head(qkv[1])), by_head(qkv[2]), {}, {}};
    tokens.beta = config().beta_max * sigmoid(by_head(upcast(layer.beta(x))));
    tokens.log_alpha =
        layer.step ? by_head(-exp(layer.rate) * softplus(upcast((*layer.step)(x)))) : zeros_like(tokens.beta);
    name_value("beta", tokens.beta);
    name_value("alpha", [&] { return exp(tokens.log_alpha); });
    const Tensor& before = state.get(path + ".state");
    const Result now = literal ? step_by_step(tokens, before) : in_chunks(tokens, before, config().chunk);
    name_value("state", now.state);
    state.set(path + ".state", raw::copy(detach(now.state)));
    state.set(path + ".read", raw::copy(detach(narrow(read, 1, time, width - 1))));
    const Tensor y = normed(transpose(now.y, 1, 2), layer.head_norm);
    return layer.out(activation(reshape(y, {batch, time, inner})) * silu(layer.gate(x)));
  }

  StateLayout state_layout(std::int64_t batch) const {
    const Config& c = config();
    StateLayout layout;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const std::string path = "layers." + std::to_string(i);
      layout.push_back({.name = path + ".state", .shape = {batch, c.heads, c.head_dim, c.head_dim}});
      layout.push_back({.name = path + ".read", .shape = {batch, c.conv - 1, 3 * c.heads * c.head_dim}});
    }
    return layout;
  }

  Embedding embed_;
  Tensor norm_, head_;
  std::vector<Layer> layers_;
};

// ---- the checks

// How a model reads tokens: in calls of so many, each of which goes on from the state of the one before.
struct Case {
  std::vector<std::int64_t> calls;
  std::int64_t chunk = 4;
  double rate = 0;       // tokens let e^(-0.01 e^rate) of the state stay, or so
  bool literal = false;  // step by step
  Dtype dtype = Dtype::f64;
};

// The logits of a model, the gradients of all its parameters, and its last state. There are few tokens, so that keys
// repeat.
std::vector<Tensor> results(const Case& of) {
  ModelConfig config;
  config.family = "delta_rules";
  config.model = "delta_rule";
  config.vocab = 5;
  config.dim = 64;
  config.heads = 4;
  config.layers = 2;
  config.chunk = of.chunk;
  config.init_std = 0.3;
  const auto model = make_model(config, of.dtype);
  model->params().initialize(1);
  raw::fill(model->params().get("layers.0.rate").value, of.rate);
  const Tensor tokens = randint(0, config.vocab, {2, 512}, random_key(1, "tokens", 0));
  std::vector<Tensor> logits;
  ForwardInput input;
  input.literal = of.literal;
  std::int64_t done = 0;
  for (const std::int64_t count : of.calls) {
    input.tokens = raw::copy(narrow(tokens, 1, done, count));
    done += count;
    const ForwardOutput out = model->forward(input);
    logits.push_back(out.logits);
    input.state = out.state;
  }
  const Tensor all = concat(logits, 1);
  backward(sum(all * all));
  std::vector<Tensor> made{detach(all), model->params().gradients()};
  for (const auto& [name, value] : input.state) made.push_back(value);
  return made;
}

// The largest differences of the first `count` results, each relative to its largest number: their sum, so that NaN
// stays.
double difference(const Case& a, const Case& b, std::size_t count) {
  const std::vector<Tensor> of_a = results(a), of_b = results(b);
  double all = 0;
  for (std::size_t i = 0; i < std::min(count, of_a.size()); ++i)
    all += max(abs(of_a[i] - of_b[i])).item() / max(abs(of_a[i])).item();
  return all;
}

double seconds(const Case& of) {
  using Clock = std::chrono::steady_clock;
  Clock::duration best = Clock::duration::max();
  for (int i = 0; i < 3; ++i) {
    const Clock::time_point start = Clock::now();
    results(of);
    best = std::min(best, Clock::now() - start);
  }
  return std::chrono::duration<double>(best).count();
}

int run(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> words{"example_13_delta_rule"};
  for (std::string word; in >> word;) words.push_back(word);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  return app::program(static_cast<int>(argv.size()), argv.data());
}

bool is_right(bool right, const char* what, double number) {
  std::printf("%-65s %8.1e  %s\n", what, number, right ? "ok" : "WRONG");
  return right;
}

int check_itself() {
  double forms = 0;
  for (const std::int64_t chunk : {1, 4, 7, 64})
    for (const double rate : {-9.0, 0.0, 9.0})
      forms += difference({{13, 6, 1}, chunk, rate, true}, {{13, 6, 1}, chunk, rate}, 9);
  bool good = is_right(forms < 1e-9, "steps and chunks, f64: differences of values and gradients", forms);
  const std::vector<std::int64_t> single(19, 1);
  const double calls = difference({{19}}, {{7, 12}}, 1) + difference({{19}}, {single}, 1);
  good = is_right(calls < 1e-9, "one call and several, f64: differences of values", calls) && good;
  const Case quick{{512}, 16, 0, false, Dtype::f32}, slow{{512}, 16, 0, true, Dtype::f32};
  std::printf("512 tokens, forward and backward: chunks are %.1f times as fast\n",
              seconds(slow) / seconds(quick));

  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / ("delta_rule-" + std::to_string(::getpid()));
  const auto loss_of_parity = [&](const std::string& limit) {
    const std::string where = (folder / limit).string();
    const int code =
        run("train --model delta_rule --model.dim 32 --model.heads 2 --model.context 32 --model.conv 1 "
            "--data.name parity --train.steps 150 --train.batch 32 --train.learning_rate 0.01 "
            "--train.eval_every 50 --model.beta_max " +
            limit + " --run " + where);
    return code == 0 ? training::load_run(where).state.best_loss : std::nan("");
  };
  const double one = loss_of_parity("1"), two = loss_of_parity("2");
  good = is_right(one > 0.5, "parity with beta up to 1, as many steps: loss", one) && good;
  good = is_right(two < 0.05, "parity with beta up to 2: loss", two) && good;
  fs::remove_all(folder);
  return good ? 0 : 1;
}

}  // namespace own

int main(int argc, char** argv) try {
  eddy::register_model<own::DeltaRule>({"delta_rules", "delta_rule"}, "the gated delta rule",
                                       {.common = "chunk head_dim init_std tied"});
  return argc > 1 ? eddy::app::program(argc, argv) : own::check_itself();
} catch (const eddy::Error& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
