// Training in bf16 follows training in f32: 200 steps of a model of every name on the same batches.
#include <doctest/doctest.h>

#include "autograd/tape.h"
#include "tensor/threads/thread_pool.h"
#include "tests/models/bf16_models.h"
#include "tests/support/isa_levels.h"

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

// The means of 20 steps, since the loss of one batch says little.
TEST_CASE("bf16: the loss of every model stays within 1 percent of that of f32 for 200 steps") {
  for (const ModelConfig& config : bf16_configs()) {
    CAPTURE(config.model);
    CAPTURE(config.gate);
    const std::vector<double> want = train_in(config, Dtype::f32, 200);
    const double worst = loss_difference(train_in(config, Dtype::bf16, 200), want, 20);
    MESSAGE(config.model << ": " << want.front() << " to " << want.back() << " nats, largest difference "
                         << 100 * worst << " %");
    CHECK(want.back() < want.front());
    CHECK(worst <= 0.01);
    if (!has_rounded_products()) continue;
    const double rounding =
        loss_difference(train_in(config, Dtype::f32, 200, kCpu, MatmulPrecision::bf16), want, 20);
    MESSAGE(config.model << ": f32 with rounded products, largest difference " << 100 * rounding << " %");
    CHECK(rounding <= 0.01);
  }
}

// Products add in an order that depends on the weights' sizes alone, and everything else works row by row.
TEST_CASE("bf16: a sequence has the same logits alone and in a batch, and with any number of threads") {
  if (!has_rounded_products()) return;
  const int threads = thread_count();
  for (const ModelConfig& config : bf16_configs()) {
    CAPTURE(config.model);
    CAPTURE(config.gate);
    const auto model = make_model(config, Dtype::f32, kCpu, MatmulPrecision::bf16);
    model->params().initialize(3);
    const Tensor tokens =
        raw::contiguous(raw::narrow(bf16_tokens(5, 17, model->config().vocab, 1), 1, 0, 16));
    const auto logits_of = [&](std::int64_t first, std::int64_t count) {
      const NoGrad no_grad;
      ForwardInput input;
      input.tokens = raw::contiguous(raw::narrow(tokens, 0, first, count));
      return raw::contiguous(model->forward(input).logits).to_vector<float>();
    };
    set_thread_count(1);
    const std::vector<float> all = logits_of(0, 5);
    const auto row = static_cast<std::ptrdiff_t>(all.size()) / 5;
    // The attention of block recurrences takes another kernel below four sequences (window_attention.h).
    const std::int64_t count = config.model == "block_forget" || config.model == "block_accumulate" ? 4 : 1;
    for (const std::int64_t i : {0, 1})
      CHECK(logits_of(i, count) ==
            std::vector<float>(all.begin() + i * row, all.begin() + (i + count) * row));
    set_thread_count(2);
    CHECK(logits_of(0, 5) == all);
    set_thread_count(threads);
  }
}
