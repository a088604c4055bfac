// The precision of a model's products: it goes with the parameters, to every product, and models of different precision
// live side by side.
#include <doctest/doctest.h>

#include <vector>

#include "models/layers.h"
#include "models/module.h"
#include "models/optimizer/adam.h"
#include "ops/attention/attention.h"
#include "ops/attention/window_attention.h"
#include "ops/core/op_spec.h"
#include "ops/product/gemm.h"
#include "ops/recurrence/unit_recurrence.h"
#include "ops/reduce/reduce.h"
#include "tests/models/bf16_models.h"
#include "tests/support/isa_levels.h"
#include "tests/support/tensors.h"

using namespace eddy;
using namespace eddy::training;
using namespace eddy::detail;
using namespace eddy::test;

namespace {

// Counts the CPU's products of f32, all of them and those that may not round to bf16.
struct Counted {
  int all = 0, finer = 0;

  void count(MatmulPrecision precision) {
    ++all;
    if (precision != MatmulPrecision::bf16) ++finer;
  }
};
Counted counts;

MatmulPrecision precision_of(const AttentionBackwardArgs& args) {
  return args.forward.precision;
}
template <class Args>
MatmulPrecision precision_of(const Args& args) {
  return args.precision;
}

template <class Args>
Args args_of(const Slot<Args>&);

// Lets a slot count while it lives.
template <auto& kSlot>
class CountSlot {
 public:
  CountSlot() {
    before = kSlot.function[0];
    kSlot.function[0] = [](const Args& args) {
      if (args.dtype == Dtype::f32) counts.count(precision_of(args));
      before(args);
    };
  }
  ~CountSlot() { kSlot.function[0] = before; }
  CountSlot(const CountSlot&) = delete;
  CountSlot& operator=(const CountSlot&) = delete;

 private:
  using Args = decltype(args_of(kSlot));
  inline static void (*before)(const Args&) = nullptr;
};

struct Mlp {
  Mlp(const ParamScope& scope, std::int64_t width)
      : up(scope.scope("up"), 6, width, 0.5, true), down(scope.scope("down"), width, 1, 0.5, true) {}
  Tensor operator()(const Tensor& x) const { return down(tanh(up(x))); }
  Linear up, down;
};

// The parameters of an Mlp after each of some steps.
class TrainedMlp {
 public:
  explicit TrainedMlp(MatmulPrecision precision)
      : net_(make_module<Mlp>({.seed = 1, .matmul_precision = precision}, 16)), adam_(net_.params(), {}) {}
  Tensor step() {
    const Tensor x = raw::cast(sample_normal({8, 6}, "x"), Dtype::f32);
    backward(mean(net_(x) * net_(x)));
    static_cast<void>(adam_.step(1e-2));
    net_.params().zero_gradients();
    return raw::copy(net_.params().values());
  }

 private:
  Module<Mlp> net_;
  Adam adam_;
};

}  // namespace

TEST_CASE("precision: models in f32 and bf16 train by turns with the bits of each alone") {
  constexpr int kSteps = 3;
  for (const ModelConfig& config : bf16_configs()) {
    CAPTURE(config.model);
    CAPTURE(config.gate);
    const std::vector<double> exact = train_in(config, Dtype::f32, kSteps),
                              rounded = train_in(config, Dtype::f32, kSteps, kCpu, MatmulPrecision::bf16);
    TrainedModel one(config, Dtype::f32), other(config, Dtype::f32, kCpu, MatmulPrecision::bf16);
    for (std::size_t step = 0; step < kSteps; ++step) {
      CHECK(one.step() == exact[step]);
      CHECK(other.step() == rounded[step]);
    }
    if (rounds_to_bf16(MatmulPrecision::bf16)) CHECK(rounded[0] != exact[0]);
  }
}

TEST_CASE("precision: modules in f32 and bf16 train by turns with the bits of each alone") {
  TrainedMlp exact(MatmulPrecision::f32), rounded(MatmulPrecision::bf16);
  std::vector<Tensor> of_exact, of_rounded;
  for (int step = 0; step < 3; ++step) of_exact.push_back(exact.step());
  for (int step = 0; step < 3; ++step) of_rounded.push_back(rounded.step());
  TrainedMlp one(MatmulPrecision::f32), other(MatmulPrecision::bf16);
  for (std::size_t step = 0; step < 3; ++step) {
    CHECK(equal_bits(one.step(), of_exact[step]));
    CHECK(equal_bits(other.step(), of_rounded[step]));
  }
  if (has_rounded_products()) CHECK_FALSE(equal_bits(of_exact[2], of_rounded[2]));
}

TEST_CASE("precision: every product of a model, in training and in a stream, takes that of the parameters") {
  install_backends();
  const CountSlot<gemm_slot> products;
  const CountSlot<attention_forward_slot> attention;
  const CountSlot<attention_backward_slot> attention_backward;
  const CountSlot<window_attention_forward_slot> windows;
  const CountSlot<window_attention_backward_slot> windows_backward;
  const CountSlot<unit_recurrence_forward_slot> steps;
  const CountSlot<unit_recurrence_backward_slot> steps_backward;
  for (const auto& [name, config] : every_case()) {
    CAPTURE(name);
    counts = {};
    const auto model = make_model(config, Dtype::f32, kCpu, MatmulPrecision::bf16);
    model->params().initialize(3);
    const ModelConfig& full = model->full_config();
    const std::int64_t time = uneven_time(full), rows = rows_of(full, time);
    ForwardInput input;
    input.tokens = random_ids(2, time, full.vocab, 1);
    input.tail = rows;
    for (const bool literal : {false, true}) {
      input.literal = literal;
      static_cast<void>(run(*model, input, random_ids(2, rows, full.n_out, 2)));
    }
    CHECK(counts.all > 0);
    CHECK(counts.finer == 0);
    const NoGrad no_grad;
    State state;
    for (int i = 0; i < 9; ++i) static_cast<void>(model->stream(random_ids(1, 1, full.vocab, 5), state));
    CHECK(counts.finer == 0);
  }
}
