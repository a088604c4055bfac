// Example 9: all else is efficiency. A training step of the model of 00_everything.cpp: first by that file, then by
// Eddy in six rungs, each of which makes one thing faster and leaves the rest. Every rung by Eddy computes the same
// loss, and in f64 a gradient of the same norm; the program checks that,
// and prints the milliseconds of a step and the factor of each rung.
//
//   1 plain       00_everything.cpp: f64, one scalar product after another, a closure and new memory for each matrix;
//                 compiled as Eddy's kernels are
//   2 tensors     the same lines by ops: f32, the tape, kernels for any x86-64 processor, products by OpenBLAS
//   3 vectors     kernels for the vectors of this processor
//   4 hoisted     what needs no state leaves the loop over time: one product for all steps
//   5 packed      the weights that remain in the loop are packed once for all its steps
//   6 fused       the loop is one op with a backward of its own: no tape inside, nothing allocated
//   7 threads     the same on all processors
//   8 bf16        products round their factors to bf16, where the processor has instructions for them
//
// Eddy's op for rung 6 has layer norm where the file has RMS norm, so all its rungs do: the work is the same.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <eddy/eddy.h>
#include "ops/cpu/isa.h"
#include "ops/product/packed_weights.h"
#include "ops/recurrence/unit_recurrence.h"

namespace plain {
#include "examples/00_everything.cpp"  // its headers are included above
}

namespace {

using namespace eddy;

constexpr std::int64_t kBatch = 16, kTime = 16, kVocab = 4;
constexpr double kRate = 1e-3;

// The model's parameters, and its forward pass in the forms of the rungs. Everything is [time, batch, width] or a step
// of it, [batch, width].
struct Recurrent {
  Recurrent(const ParamScope& scope, std::int64_t size)
      : width(size),
        tokens(scope.scope("tokens"), kVocab, width, 0.1),
        attn_norm(scope.scope("attn_norm"), width, 1e-6, false),
        mlp_norm(scope.scope("mlp_norm"), width, 1e-6, false),
        final_norm(scope.scope("final_norm"), width, 1e-6, false),
        wqkv(scope.scope("wqkv"), width, 3 * width, 0.1, false),
        wo(scope.scope("wo"), width, width, 0.1, false),
        mlp({scope.scope("up"), width, 4 * width, 0.1, false},
            {scope.scope("down"), 4 * width, width, 0.1, false}) {}

  Tensor rest_of_layer(const Tensor& x, const Tensor& read) const {
    const Tensor r = x + wo(read);
    return mlp(mlp_norm(r), r);
  }
  Tensor logits(const Tensor& y) const { return linear(final_norm(y), tokens.weight); }

  // Line by line what Model::layer and Model::step of the file do.
  Tensor layer(const std::vector<Tensor>& window) const {
    const Tensor query_weight = narrow(wqkv.weight, 0, 0, width),
                 key_weight = narrow(wqkv.weight, 0, width, width);
    const Tensor value_weight = narrow(wqkv.weight, 0, 2 * width, width);
    const Tensor q = linear(attn_norm(window.back()), query_weight);
    std::vector<Tensor> scores, values;
    for (const Tensor& x : window) {
      values.push_back(linear(attn_norm(x), value_weight));
      scores.push_back(sum(q * linear(attn_norm(x), key_weight), 1, true) * scale());
    }
    const Tensor p = softmax(concat(scores, 1));
    Tensor read = values[0] * narrow(p, 1, 0, 1);
    for (std::size_t i = 1; i < values.size(); ++i)
      read = read + values[i] * narrow(p, 1, static_cast<std::int64_t>(i), 1);
    return rest_of_layer(window.back(), read);
  }
  Tensor by_steps(const Tensor& ids) const {
    std::vector<Tensor> rows;
    Tensor state;
    for (std::int64_t t = 0; t < kTime; ++t) {
      const Tensor x = tokens(select(ids, 0, t));
      state = state.defined() ? layer({state, x}) : layer({x});
      rows.push_back(logits(layer({state})));
    }
    return stack(rows, 0);
  }

  // Queries, keys and values of the tokens before the loop; what is read from the states after it. Softmax over two
  // scores is a sigmoid of their difference, and over one it is 1.
  Tensor hoisted(const Tensor& ids) const {
    const Tensor x = tokens(ids), qkv = wqkv(attn_norm(x));
    const Tensor key_value_weight = narrow(wqkv.weight, 0, width, 2 * width);
    std::vector<Tensor> states, values;
    Tensor key, value;
    for (std::int64_t t = 0; t < kTime; ++t) {
      const std::vector<Tensor> own = split(select(qkv, 0, t), 1, {width, width, width});
      Tensor read = own[2];
      if (t > 0) read = read + sigmoid(sum(own[0] * (key - own[1]), 1, true) * scale()) * (value - own[2]);
      states.push_back(rest_of_layer(select(x, 0, t), read));
      const Tensor of_state = linear(attn_norm(states.back()), key_value_weight);
      key = narrow(of_state, 1, 0, width);
      value = narrow(of_state, 1, width, width);
      values.push_back(value);
    }
    return logits(rest_of_layer(stack(states, 0), stack(values, 0)));
  }
  Tensor packed(const Tensor& ids) const {
    const PackedWeightScope packed(kTime);
    return hoisted(ids);
  }

  Tensor fused(const Tensor& ids) const {
    const Tensor x = tokens(ids);
    UnitRecurrenceOptions options;
    options.gelu = false;
    options.eps = attn_norm.eps;
    const UnitRecurrenceWeights weights{attn_norm.weight, {}, wqkv.weight,   {}, wo.weight,       {},
                                        mlp_norm.weight,  {}, mlp.up.weight, {}, mlp.down.weight, {}};
    const UnitRecurrenceResult chain = unit_recurrence(x, wqkv(attn_norm(x)), weights, options);
    return logits(rest_of_layer(chain.h, chain.value));
  }

  double scale() const { return 1 / std::sqrt(static_cast<double>(width)); }

  std::int64_t width;
  Embedding tokens;
  LayerNorm attn_norm, mlp_norm, final_norm;
  Linear wqkv, wo;
  FeedForward mlp;
};

using Form = Tensor (Recurrent::*)(const Tensor&) const;
struct Rung {
  const char *name, *what;
  Form form;
  bool all_threads, bf16;
  IsaLevel level;
};

// A model that trains on the file's streams.
class Training {
 public:
  Training(Form form, std::int64_t width, Dtype dtype, MatmulPrecision products)
      : form_(form),
        net_({.seed = 1, .dtype = dtype, .matmul_precision = products}, width),
        adam_(net_.params(), {.learning_rate = kRate}) {}

  double step(const plain::Streams& streams) {
    std::vector<std::int64_t> ids;
    for (const auto& row : streams) ids.insert(ids.end(), row.begin(), row.end());
    const Tensor all = Tensor::from(ids, {kTime + 1, kBatch});
    const Tensor loss = cross_entropy(((*net_).*form_)(narrow(all, 0, 0, kTime)), narrow(all, 0, 1, kTime));
    adam_.zero_gradients();
    backward(loss);
    adam_.step();
    return loss.item();
  }
  // Of the last step: the root of the sum of squares over all parameters.
  double gradient_norm() const {
    double squares = 0;
    for (const Parameter& parameter : net_.params().parameters())
      for (const double g : grad(parameter.value).to_vector<double>()) squares += g * g;
    return std::sqrt(squares);
  }

 private:
  Form form_;
  Module<Recurrent> net_;
  Adam adam_;
};

// The least time of a step, in milliseconds.
double best_of(const std::function<void()>& step, double seconds) {
  using Clock = std::chrono::steady_clock;
  double best = std::numeric_limits<double>::max();
  const auto begin = Clock::now();
  for (int run = 0; run < 1 || Clock::now() - begin < std::chrono::duration<double>(seconds); ++run) {
    const auto start = Clock::now();
    step();
    best = std::min(best, std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  }
  return best;
}

// Whether all forms have the same gradient in f64. In f32 a ReLU whose input is next to 0 may round to either side.
bool have_same_gradients(const plain::Streams& streams, std::int64_t width) {
  double wanted = 0;
  for (const Form form : {&Recurrent::by_steps, &Recurrent::hoisted, &Recurrent::packed, &Recurrent::fused}) {
    Training training(form, width, Dtype::f64, MatmulPrecision::f32);
    static_cast<void>(training.step(streams));
    const double norm = training.gradient_norm();
    if (form == &Recurrent::by_steps) wanted = norm;
    if (std::abs(norm - wanted) <= 1e-9 * wanted) continue;
    std::printf("WRONG: a form has gradient %.12f, and should have %.12f\n", norm, wanted);
    return false;
  }
  return true;
}

// Prints the rungs at one width. Returns whether all by Eddy have the same loss and gradient.
bool climb(std::int64_t width, int threads, double seconds) {
  const IsaLevel best = best_isa_level(), f32 = best_exact_isa_level();
  std::vector<Rung> rungs{
      {"tensors", "the same lines by ops", &Recurrent::by_steps, false, false, isa_levels().front()},
      {"vectors", "kernels for this processor", &Recurrent::by_steps, false, false, f32},
      {"hoisted", "products out of the loop", &Recurrent::hoisted, false, false, f32},
      {"packed", "weights packed for the loop", &Recurrent::packed, false, false, f32},
      {"fused", "the loop as one op", &Recurrent::fused, false, false, f32}};
  if (threads > 1) rungs.push_back({"threads", "on all processors", &Recurrent::fused, true, false, f32});
  if (rounds_factors(best))
    rungs.push_back({"bf16", "products in bf16", &Recurrent::fused, threads > 1, true, best});

  std::mt19937 random{3};
  const plain::Streams streams = plain::write_streams(kBatch, kTime + 1, random);
  plain::Model model{.width = static_cast<plain::Index>(width)};
  int steps = 0;
  double before = best_of(
      [&] {
        plain::backward(plain::loss_of(model, streams));
        plain::adamw_step(model.parameters, ++steps, kRate, 0.01);
      },
      seconds);
  const double first = before;
  std::printf("\nwidth %d: %d streams of %d tokens, up to %d threads\n", static_cast<int>(width),
              static_cast<int>(kBatch), static_cast<int>(kTime), threads);
  std::printf("  %-9s %-30s %9.2f ms\n", "plain", "00_everything.cpp", first);

  bool same = have_same_gradients(streams, width);
  double wanted = 0;  // the loss of the first step
  for (const Rung& rung : rungs) {
    set_isa_level(rung.level);
    set_thread_count(rung.all_threads ? threads : 1);
    Training training(rung.form, width, Dtype::f32, rung.bf16 ? MatmulPrecision::bf16 : MatmulPrecision::f32);
    const double loss = training.step(streams), tolerance = rung.bf16 ? 3e-2 : 1e-5;
    if (&rung == rungs.data()) wanted = loss;
    const bool near = std::abs(loss - wanted) <= tolerance * wanted;
    if (!near) std::printf("WRONG: %s has loss %f, and should have %f\n", rung.name, loss, wanted);
    same = same && near;
    const double ms = best_of([&] { static_cast<void>(training.step(streams)); }, seconds);
    std::printf("  %-9s %-30s %9.2f ms %7.1f times faster, %7.0f in all\n", rung.name, rung.what, ms,
                before / ms, first / ms);
    before = ms;
  }
  return same;
}

}  // namespace

// Usage: example_09_plain_to_fast [SECONDS of each rung].
int main(int argc, char** argv) try {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 0.3;
  const int threads = thread_count();
  bool same = true;
  for (const std::int64_t width : {32, 256}) same = climb(width, threads, seconds) && same;
  std::printf("\n%s\n", same ? "all rungs by Eddy have the same loss, and gradients of the same norm"
                             : "a rung is wrong");
  return same ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
