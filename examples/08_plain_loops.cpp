// Example 8: what a library costs. One training step of a small model, once in plain loops and once by Eddy: the
// same parameters, the same losses, and the microseconds of both.
//
// The model is `regular` of models/recurrent_transformer: one layer of the transformer, for T tokens of one
// sequence. Every line of the forward pass has its mirror in the backward pass (d is the derivative of the loss):
//
//   x      = embed[token] + position              dembed[token] += dx,  dposition += dx
//   q k v  = LN1(x) Wqkv^T                        dWqkv = dqkv^T LN1(x),  dLN1 = dqkv Wqkv
//   r      = x + attention(q, k, v) Wout^T        dx = dr + what comes through LN1
//   u      = LN2(r) Wup^T
//   y      = r + gelu(u) Wdown^T                  dr = dy + what comes through LN2
//   logits = LNf(y) embed^T                       dlogits = (softmax(logits) - one_hot(target)) / T
//   loss   = mean of -log softmax(logits)[target]
//
// Then the gradient is clipped to a norm of 1, and AdamW updates the parameters. With sizes that the compiler
// knows, loops whose inner index runs over neighbours become vector code. So this is a yardstick for what the
// arithmetic costs; docs/performance.md says where the rest of Eddy's time goes.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <limits>
#include <vector>

#include "autograd/tape.h"
#include "models/eddy/registry.h"
#include "models/optimizer/adam.h"
#include "tensor/threads/thread_pool.h"

namespace {

constexpr int kVocab = 27, kTime = 16, kDim = 16, kHeads = 4, kHead = kDim / kHeads, kMlp = 4 * kDim;
constexpr float kEps = 1e-5f, kInverseRoot2 = 0.70710678f, kInverseRoot2Pi = 0.39894228f;

template <int Rows, int Columns>
using Matrix = float[Rows][Columns];
using Vector = float[kDim];
using Stream = Matrix<kTime, kDim>;  // a row for each token

// The parameters, or their gradients, or their moments. Weight decay is for the matrices, which come first.
struct Parameters {
  Matrix<kVocab, kDim> embed;
  Stream position;
  Matrix<3 * kDim, kDim> qkv;
  Matrix<kDim, kDim> out;
  Matrix<kMlp, kDim> up;
  Matrix<kDim, kMlp> down;
  Vector norm1, norm2, final_norm;
};
constexpr int kCount = sizeof(Parameters) / sizeof(float), kDecayed = kCount - 3 * kDim;

// y = x W^T. The copy of W^T lets the compiler compute neighbouring sums as one vector.
template <int Rows, int In, int Out>
void linear(const Matrix<Rows, In>& x, const Matrix<Out, In>& weight, Matrix<Rows, Out>& y) {
  Matrix<In, Out> transposed;
  for (int o = 0; o < Out; ++o)
    for (int i = 0; i < In; ++i) transposed[i][o] = weight[o][i];
  for (int r = 0; r < Rows; ++r)
    for (int o = 0; o < Out; ++o) {
      float sum = 0;
      for (int i = 0; i < In; ++i) sum += x[r][i] * transposed[i][o];
      y[r][o] = sum;
    }
}

// dx = dy W, dW = dy^T x
template <int Rows, int In, int Out>
void linear_backward(const Matrix<Rows, In>& x, const Matrix<Out, In>& weight, const Matrix<Rows, Out>& dy,
                     Matrix<Rows, In>& dx, Matrix<Out, In>& dweight) {
  for (int r = 0; r < Rows; ++r)
    for (int i = 0; i < In; ++i) {
      float sum = 0;
      for (int o = 0; o < Out; ++o) sum += dy[r][o] * weight[o][i];
      dx[r][i] = sum;
    }
  for (int o = 0; o < Out; ++o)
    for (int i = 0; i < In; ++i) {
      float sum = 0;
      for (int r = 0; r < Rows; ++r) sum += dy[r][o] * x[r][i];
      dweight[o][i] = sum;
    }
}

struct LayerNorm {
  Stream normed;  // (x - mean) / deviation
  float inverse[kTime];
  Stream y;

  void forward(const Stream& x, const Vector& weight) {
    for (int t = 0; t < kTime; ++t) {
      float mean = 0, variance = 0;
      for (int i = 0; i < kDim; ++i) mean += x[t][i] / kDim;
      for (int i = 0; i < kDim; ++i) variance += (x[t][i] - mean) * (x[t][i] - mean) / kDim;
      inverse[t] = 1 / std::sqrt(variance + kEps);
      for (int i = 0; i < kDim; ++i) {
        normed[t][i] = (x[t][i] - mean) * inverse[t];
        y[t][i] = normed[t][i] * weight[i];
      }
    }
  }
  // dx += inverse (g - mean(g) - normed mean(g normed)) with g = dy weight.
  void backward(const Stream& dy, const Vector& weight, Stream& dx, Vector& dweight) const {
    for (int t = 0; t < kTime; ++t) {
      float mean = 0, along = 0;
      for (int i = 0; i < kDim; ++i) {
        mean += dy[t][i] * weight[i] / kDim;
        along += dy[t][i] * weight[i] * normed[t][i] / kDim;
        dweight[i] += dy[t][i] * normed[t][i];
      }
      for (int i = 0; i < kDim; ++i)
        dx[t][i] += inverse[t] * (dy[t][i] * weight[i] - mean - normed[t][i] * along);
    }
  }
};

// Overwrites scores by their softmax.
void softmax(float* scores, int count) {
  float sum = 0, most = *std::max_element(scores, scores + count);
  for (int i = 0; i < count; ++i) sum += scores[i] = std::exp(scores[i] - most);
  for (int i = 0; i < count; ++i) scores[i] /= sum;
}

const float kScale = 1 / std::sqrt(static_cast<float>(kHead));

// P = softmax(q k^T / sqrt(kHead)) over the tokens up to t, and P v, for each head.
void attention(const Matrix<kTime, 3 * kDim>& qkv, float (&p)[kHeads][kTime][kTime], Stream& read) {
  std::memset(read, 0, sizeof read);
  for (int h = 0; h < kHeads; ++h)
    for (int t = 0; t < kTime; ++t) {
      const float* q = qkv[t] + h * kHead;
      for (int s = 0; s <= t; ++s) {
        p[h][t][s] = 0;
        for (int i = 0; i < kHead; ++i) p[h][t][s] += q[i] * qkv[s][kDim + h * kHead + i] * kScale;
      }
      softmax(p[h][t], t + 1);
      for (int s = 0; s <= t; ++s)
        for (int i = 0; i < kHead; ++i)
          read[t][h * kHead + i] += p[h][t][s] * qkv[s][2 * kDim + h * kHead + i];
    }
}

// dscore = P (dP - sum of P dP)
void attention_backward(const Matrix<kTime, 3 * kDim>& qkv, const float (&p)[kHeads][kTime][kTime],
                        const Stream& dread, Matrix<kTime, 3 * kDim>& dqkv) {
  for (int h = 0; h < kHeads; ++h)
    for (int t = 0; t < kTime; ++t) {
      const int q = h * kHead, k = kDim + q, v = 2 * kDim + q;
      float dp[kTime] = {}, sum = 0;
      for (int s = 0; s <= t; ++s) {
        for (int i = 0; i < kHead; ++i) {
          dp[s] += dread[t][q + i] * qkv[s][v + i];
          dqkv[s][v + i] += p[h][t][s] * dread[t][q + i];
        }
        sum += p[h][t][s] * dp[s];
      }
      for (int s = 0; s <= t; ++s) {
        const float dscore = p[h][t][s] * (dp[s] - sum) * kScale;
        for (int i = 0; i < kHead; ++i) {
          dqkv[t][q + i] += dscore * qkv[s][k + i];
          dqkv[s][k + i] += dscore * qkv[t][q + i];
        }
      }
    }
}

// The model, with what its forward pass leaves for the backward pass.
struct PlainModel {
  Parameters w, gradient, m = {}, v = {};
  int steps = 0;
  Stream x, read, attended, r, written, y;
  Matrix<kTime, 3 * kDim> qkv;
  float p[kHeads][kTime][kTime];
  Matrix<kTime, kMlp> u, active, phi;  // phi: the normal distribution at u
  LayerNorm norm1, norm2, final_norm;
  Matrix<kTime, kVocab> logits;

  float forward(const std::int64_t* tokens, const std::int64_t* targets) {
    for (int t = 0; t < kTime; ++t)
      for (int i = 0; i < kDim; ++i) x[t][i] = w.embed[tokens[t]][i] + w.position[t][i];
    norm1.forward(x, w.norm1);
    linear(norm1.y, w.qkv, qkv);
    attention(qkv, p, read);
    linear(read, w.out, attended);
    for (int t = 0; t < kTime; ++t)
      for (int i = 0; i < kDim; ++i) r[t][i] = x[t][i] + attended[t][i];
    norm2.forward(r, w.norm2);
    linear(norm2.y, w.up, u);
    for (int t = 0; t < kTime; ++t)
      for (int i = 0; i < kMlp; ++i) {
        phi[t][i] = 0.5f * (1 + std::erf(u[t][i] * kInverseRoot2));
        active[t][i] = u[t][i] * phi[t][i];
      }
    linear(active, w.down, written);
    for (int t = 0; t < kTime; ++t)
      for (int i = 0; i < kDim; ++i) y[t][i] = r[t][i] + written[t][i];
    final_norm.forward(y, w.final_norm);
    linear(final_norm.y, w.embed, logits);
    float loss = 0;
    for (int t = 0; t < kTime; ++t) {  // the logits become their own gradient
      softmax(logits[t], kVocab);
      loss -= std::log(logits[t][targets[t]]) / kTime;
      logits[t][targets[t]] -= 1;
      for (float& d : logits[t]) d /= kTime;
    }
    return loss;
  }

  void backward(const std::int64_t* tokens) {
    Parameters& g = gradient;
    std::memset(&g, 0, sizeof g);
    Stream d, dr = {}, dx;
    Matrix<kTime, kMlp> du;
    Matrix<kTime, 3 * kDim> dqkv = {};
    linear_backward(final_norm.y, w.embed, logits, d, g.embed);
    final_norm.backward(d, w.final_norm, dr, g.final_norm);  // dr is dy so far
    linear_backward(active, w.down, dr, du, g.down);
    for (int t = 0; t < kTime; ++t)
      for (int i = 0; i < kMlp; ++i)
        du[t][i] *= phi[t][i] + u[t][i] * kInverseRoot2Pi * std::exp(-0.5f * u[t][i] * u[t][i]);
    linear_backward(norm2.y, w.up, du, d, g.up);
    norm2.backward(d, w.norm2, dr, g.norm2);
    linear_backward(read, w.out, dr, d, g.out);
    attention_backward(qkv, p, d, dqkv);
    linear_backward(norm1.y, w.qkv, dqkv, d, g.qkv);
    std::memcpy(dx, dr, sizeof dx);
    norm1.backward(d, w.norm1, dx, g.norm1);
    for (int t = 0; t < kTime; ++t)
      for (int i = 0; i < kDim; ++i) {
        g.embed[tokens[t]][i] += dx[t][i];
        g.position[t][i] += dx[t][i];
      }
  }

  void adamw(const eddy::OptimizerOptions& options) {
    const auto rate = static_cast<float>(options.learning_rate);
    float *weights = w.embed[0], *first = m.embed[0], *second = v.embed[0];
    const float *given = gradient.embed[0], beta1 = static_cast<float>(options.beta1),
                beta2 = static_cast<float>(options.beta2), eps = static_cast<float>(options.eps),
                kept = 1 - rate * static_cast<float>(options.weight_decay);
    double squares = 0;
    for (int i = 0; i < kCount; ++i) squares += static_cast<double>(given[i]) * given[i];
    const auto factor = static_cast<float>(std::min(1.0, options.clip / (std::sqrt(squares) + 1e-6)));
    ++steps;
    const auto left = [&](double beta) { return static_cast<float>(1 / (1 - std::pow(beta, steps))); };
    const float unbias1 = left(options.beta1), unbias2 = left(options.beta2);
    for (int i = 0; i < kCount; ++i) {
      const float g = given[i] * factor;
      first[i] = beta1 * first[i] + (1 - beta1) * g;
      second[i] = beta2 * second[i] + (1 - beta2) * g * g;
      weights[i] = weights[i] * (i < kDecayed ? kept : 1) -
                   rate * first[i] * unbias1 / (std::sqrt(second[i] * unbias2) + eps);
    }
  }
};

}  // namespace

int main() try {
  eddy::set_thread_count(1);
  eddy::ModelConfig config;
  config.model = "regular";
  config.vocab = kVocab;
  config.context = kTime;
  config.dim = kDim;
  config.heads = kHeads;
  config.positions = true;
  const auto model = eddy::make_model(config);
  model->params().initialize(1);
  const eddy::OptimizerOptions options{.learning_rate = 1e-2};
  eddy::Adam adam(model->params(), options);

  static PlainModel plain;
  const auto copy = [&](const char* name, auto& to) {
    const std::vector<float> values = model->params().get(name).value.to_vector<float>();
    std::memcpy(to, values.data(), sizeof to);
  };
  copy("embed.weight", plain.w.embed);
  copy("pos_embed.weight", plain.w.position);
  copy("layers.0.attn_norm.weight", plain.w.norm1);
  copy("layers.0.attn.wqkv.weight", plain.w.qkv);
  copy("layers.0.attn.wo.weight", plain.w.out);
  copy("layers.0.mlp_norm.weight", plain.w.norm2);
  copy("layers.0.mlp.up.weight", plain.w.up);
  copy("layers.0.mlp.down.weight", plain.w.down);
  copy("final_norm.weight", plain.w.final_norm);

  std::vector<std::int64_t> text;  // counts by threes, with a stumble now and then
  for (int i = 0; i < 4096; ++i) text.push_back((3 * i + i * i % 7 / 6) % kVocab);
  const auto plain_step = [&](int step) {
    const std::int64_t* tokens = text.data() + step % 4000;
    const float loss = plain.forward(tokens, tokens + 1);
    plain.backward(tokens);
    plain.adamw(options);
    return static_cast<double>(loss);
  };
  const auto eddy_step = [&](int step) {
    const std::int64_t* tokens = text.data() + step % 4000;
    const auto row = [](const std::int64_t* from) {
      return eddy::Tensor::from(std::vector<std::int64_t>(from, from + kTime), {1, kTime});
    };
    adam.zero_gradients();
    eddy::ForwardInput input;
    input.tokens = row(tokens);
    input.logits = false;
    const eddy::Tensor loss = model->forward(input).classifier.loss(row(tokens + 1), -1);
    eddy::backward(loss);
    adam.step();
    return loss.item();
  };

  int step = 0;
  double largest = 0;
  for (; step < 50; ++step) {
    const double by_hand = plain_step(step), by_eddy = eddy_step(step);
    if (step % 10 == 0)
      std::printf("step %2d  loss %.6f in plain loops, %.6f by Eddy\n", step, by_hand, by_eddy);
    if (!(std::abs(by_hand - by_eddy) <= largest)) largest = std::abs(by_hand - by_eddy);
  }
  std::printf("largest difference %.1e\n", largest);

  // The best of many short runs by turns: other programs disturb it least.
  constexpr int kRuns = 40, kSteps = 100;
  const auto measure = [&](auto& one_step, double& best) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kSteps; ++i) one_step(step + i);
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
    best = std::min(best, time.count() / kSteps);
  };
  double loops = std::numeric_limits<double>::max(), library = loops;
  for (int run = 0; run < kRuns; ++run, step += kSteps) {
    measure(plain_step, loops);
    measure(eddy_step, library);
  }
  std::printf("%.1f us a step in plain loops, %.1f us by Eddy: %.2f times\n", loops, library,
              library / loops);
  return largest < 1e-4 ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
