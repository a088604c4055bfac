// Tokens one by one, captured: the bits of the same tokens uncaptured, in every model that can.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "models/eddy/registry.h"
#include "tensor/random/philox.h"
#include "tests/gpu/support/captured_model.h"
#include "tests/gpu/support/gpu_test.h"
#include "train/generate/generate.h"
#include "train/text/tokenizer.h"

using namespace eddy;
using namespace eddy::training;
using namespace eddy::gpu_test;

namespace {

std::vector<std::int32_t> ids_of(std::int64_t rows, std::uint64_t step) {
  const RandomKey key = random_key(3, "stream tokens", step);
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < rows; ++i)
    ids.push_back(static_cast<std::int32_t>(key.word(static_cast<std::uint64_t>(i)) % 11));
  return ids;
}

// Streams twice, captured and not, and compares all logits and the states at the end. Returns the graphs.
std::size_t compare(const ModelConfig& config, std::int64_t rows, int tokens, Dtype dtype = Dtype::f32) {
  const auto model = make_model(config, dtype, gpu());
  model->params().initialize(7);
  Recorder eager(model->params(), token_recorder(false)), captured(model->params(), token_recorder(true));
  State want_state, got_state;
  for (int i = 0; i < tokens; ++i) {
    CAPTURE(i);
    const std::vector<std::int32_t> ids = ids_of(rows, static_cast<std::uint64_t>(i));
    const Tensor want = next_logits(*model, ids, want_state, eager),
                 got = next_logits(*model, ids, got_state, captured);
    CHECK(got.shape() == Shape{rows, 11});
    CHECK(got.to_vector<float>() == want.to_vector<float>());
    if (i == tokens / 2) poison_gpu();  // what a graph reads must not be handed out to others
  }
  REQUIRE(got_state.size() == want_state.size());
  for (const auto& [name, tensor] : want_state) {
    CAPTURE(name);
    const Tensor got = raw::contiguous(to_cpu(got_state.get(name))), want = raw::contiguous(to_cpu(tensor));
    if (want.dtype() == Dtype::i64) CHECK(got.to_vector<std::int64_t>() == want.to_vector<std::int64_t>());
    if (want.dtype() == Dtype::f32) CHECK(got.to_vector<float>() == want.to_vector<float>());
  }
  CHECK(eager.graphs() == 0);
  return captured.graphs();
}

}  // namespace

TEST_SUITE("device") {
  TEST_CASE("tokens of the unit recurrence are replayed from one graph with the bits of the uncaptured") {
    CHECK(compare(captured_model("recurrent_transformer", "unit_forget"), 1, 8) == 1);
    CHECK(compare(captured_model("recurrent_transformer", "unit_forget"), 3, 8) == 1);
    CHECK(compare(captured_model("recurrent_transformer", "unit_forget"), 2, 6, Dtype::bf16) == 1);
  }

  TEST_CASE("tokens of models with blocks are replayed from a graph for each place in a block") {
    CHECK(compare(captured_model("recurrent_transformer", "block_forget"), 2, 20) == 4);
    CHECK(compare(captured_model("recurrent_transformer", "block_accumulate"), 2, 24) == 4);
    CHECK(compare(captured_model("blockwise_recurrent", "memory_llama"), 2, 18) == 4);
    ModelConfig recurrent = captured_model("block_recurrent", "block_recurrent");
    recurrent.recurrent_layers = {1};
    CHECK(compare(recurrent, 2, 18) == 4);
    CHECK(compare(captured_model("block_recurrent", "slide"), 1, 18) == 4);
    // A memory is written at the end of a segment of two blocks: three times while recording, twice after.
    ModelConfig memorizing = captured_model("block_recurrent", "memorizing");
    memorizing.memory_layers = {0};
    memorizing.memory_size = 16;
    memorizing.memory_topk = 3;
    CHECK(compare(memorizing, 2, 42) == 8);
  }

  TEST_CASE("tokens of the staircase family are replayed once their state has its size") {
    CHECK(compare(captured_model("staircase", "staircase"), 2, 20) >= 4);
    CHECK(compare(captured_model("staircase", "cached_staircase"), 1, 24) >= 4);
    CHECK(compare(captured_model("staircase", "lstm"), 2, 8) == 1);
    CHECK(compare(captured_model("staircase", "transformer_xl"), 1, 40) >= 1);
  }

  TEST_CASE("models whose positions differ say that their tokens run uncaptured") {
    for (const char* name : {"regular", "unit_forget"}) {
      CAPTURE(name);
      ModelConfig config = captured_model("recurrent_transformer", name);
      config.positions = true;
      const auto model = make_model(config, Dtype::f32, gpu());
      model->params().initialize(7);
      Recorder recorder(model->params(), token_recorder(true));
      State state;
      for (std::uint64_t i = 0; i < 5; ++i)
        static_cast<void>(next_logits(*model, ids_of(1, i), state, recorder));
      CHECK(recorder.graphs() == 0);
      CHECK(recorder.take_message().find(name) != std::string::npos);
      CHECK(recorder.take_message() == "");
    }
  }

  TEST_CASE("generated text says why its tokens were not replayed, and nothing when they were") {
    const auto tokenizer = make_tokenizer("byte", "");
    ModelConfig config = captured_model("recurrent_transformer", "unit_forget");
    config.vocab = 256;
    for (const bool positions : {false, true}) {
      config.positions = positions;
      const auto model = make_model(config, Dtype::f32, gpu());
      model->params().initialize(7);
      const GenerateResult result = generate(*model, *tokenizer, {}, 6, SampleOptions{});
      CHECK(result.tokens.size() == 6);
      CHECK(result.uncaptured.empty() == !positions);
    }
  }
}
