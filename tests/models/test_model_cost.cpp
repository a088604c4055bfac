// The work of every model's forward pass, counted on the counting device, against the formula of its paper:
// multiply-adds of the products, with each visible pair of a query and a key once.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <string>

#include "tests/models/every_model.h"
#include "train/config/run_config.h"

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

namespace {

using Size = std::int64_t;

// 1 + 2 + ... + n: the pairs of n queries that see themselves and what is before them.
Size causal(Size n) {
  return n * (n + 1) / 2;
}

// Kausik: all layers but the last compute every row's output, the last only the rows that are read.
Size unit_forget(const ModelConfig& c, Size time, Size read) {
  const Size finish = c.dim * c.dim + 2 * c.dim * c.mlp_dim, chain = 5 * c.dim * c.dim + finish;
  return c.layers * time * chain + ((c.layers - 1) * time + read) * finish + read * c.dim * c.n_out;
}

Size regular(const ModelConfig& c, Size time, Size read) {
  const Size row = 2 * c.dim * c.dim + 2 * c.dim * c.mlp_dim, key_value = 2 * c.dim * c.dim;
  const auto layer = [&](Size rows) {
    return time * key_value + rows * row + 2 * c.dim * (causal(time) - causal(time - rows));
  };
  return (c.layers - 1) * layer(time) + layer(read) + read * c.dim * c.n_out;
}

// Blocks see the block before them and themselves; the outputs of a block come from its own keys.
Size block_forget(const ModelConfig& c, Size time) {
  const Size finish = c.dim * c.dim + 2 * c.dim * c.mlp_dim;
  Size layer = 0;
  for (Size at = 0; at < time; at += c.block) {
    const Size rows = std::min(c.block, time - at), past = at == 0 ? 0 : c.block;
    layer += rows * (5 * c.dim * c.dim + finish) + 2 * c.dim * (rows * past + causal(rows));
    layer += rows * (c.dim * c.dim + finish) + 2 * c.dim * causal(rows);
  }
  return c.layers * layer + time * c.dim * c.n_out;
}

// A window is the block before, again, and the block.
Size block_accumulate(const ModelConfig& c, Size time) {
  const Size row = 4 * c.dim * c.dim + 2 * c.dim * c.mlp_dim;
  Size layer = 0, last = 0;
  for (Size at = 0; at < time; at += c.block) {
    const Size rows = last = std::min(c.block, time - at), past = at == 0 ? 0 : c.block;
    layer += (past + rows) * row + 2 * c.dim * (causal(past) + rows * past + causal(rows));
  }
  layer += last * row + 2 * c.dim * causal(last);
  return c.layers * layer + time * c.dim * c.n_out;
}

// Hutchins et al.: a window of keys before each token; the state is read by the tokens and updated by block.
Size block_recurrent_size(const ModelConfig& c, Size time) {
  const Size width = c.heads * c.head_dim, blocks = time / c.window;
  const Size gates = c.gate == "lstm" ? 3 : 1;
  const Size cell = c.cell == "skip" ? gates * 2 * width * c.dim
                    : c.cell == "dual"
                        ? gates * 2 * width * c.dim + c.dim * c.mlp_dim + gates * c.mlp_dim * c.dim
                        : 2 * width * c.mlp_dim + gates * c.mlp_dim * c.dim;
  const Size unseen = c.cache ? 0 : causal(c.window);  // of the first block's keys; a cold cache holds zeros
  Size total = time * c.dim * c.vocab;
  for (Size l = 0; l < c.layers; ++l) {
    const auto has = [l](const std::vector<Size>& layers) {
      return std::count(layers.begin(), layers.end(), l) > 0;
    };
    total += time * (4 * c.dim * width + 2 * c.dim * c.mlp_dim) + 2 * width * (time * c.window - unseen);
    if (has(c.memory_layers)) total += time * width * (c.memory_size + 2 * c.memory_topk);
    if (!has(c.recurrent_layers)) continue;
    total += time * (2 * c.dim * width + 2 * c.states * width);
    total += blocks * c.states * (4 * c.dim * width + cell) +
             2 * width * c.states * (blocks * (c.states + 2 * c.window) - (c.cache ? 0 : c.window));
  }
  return total;
}

Size llama(const ModelConfig& c, Size time) {
  const Size kv_dim = c.kv_heads * c.head_dim;
  const Size trunk =
      time * (c.layers * (2 * c.dim * c.dim + 2 * c.dim * kv_dim + 3 * c.dim * c.mlp_dim) + c.dim * c.n_out);
  if (c.model != "memory_llama") {
    const Size most = c.model == "llama_window" ? std::min(c.window, time) : time;
    return trunk + c.layers * 2 * c.dim * (causal(most) + most * (time - most));
  }
  const Size whole = time / c.chunk, rest = time % c.chunk,
             memory_rows = (time + c.chunk - 1) / c.chunk * c.chunk;
  const Size memory_row =
      2 * c.dim * kv_dim + (c.memory_ffn ? 3 * c.dim * c.mlp_dim : 0) + (c.memory_proj ? c.dim * c.dim : 0);
  const Size pairs = time * c.chunk + whole * causal(c.chunk) + causal(rest);
  return trunk + c.layers * (memory_row * memory_rows + 2 * c.dim * pairs);
}

// Ju et al., of one segment with a carried state. Pass n of N sees N - n chunks before its own; keys take
// three products with a query: their content, their position and their value.
Size staircase_size(const ModelConfig& c) {
  const Size inner = c.heads * c.head_dim, chunks = c.segment / c.chunk;
  const Size passes = c.model == "staircase" ? c.steps : c.cache_after;
  Size layer = 0;
  for (Size n = 1; n <= passes; ++n)
    layer += c.segment * (4 * c.dim * inner + 2 * c.dim * c.mlp_dim) +
             3 * inner * (c.segment * (c.steps - n) * c.chunk + chunks * causal(c.chunk));
  // Keys and values of frozen chunks: those that the state brings, and all of the segment's but the last.
  if (passes < c.steps) layer += (c.segment + (c.steps - 2) * c.chunk) * 2 * c.dim * inner;
  layer += c.chunk * passes * (passes - 1) / 2 * 2 * c.dim * inner;  // of the chunks that are carried
  return c.layers * layer + c.segment * c.dim * c.n_out;
}

Size transformer_xl(const ModelConfig& c) {
  const Size inner = c.heads * c.head_dim;
  const Size layer = c.segment * (4 * c.dim * inner + 2 * c.dim * c.mlp_dim + 3 * inner * c.span) +
                     c.span * 2 * c.dim * inner;
  return c.repeats * c.layers * layer + c.segment * c.dim * c.n_out;
}

Size feedback(const ModelConfig& c) {
  const Size inner = c.heads * c.head_dim, owners = c.shared_kv ? 1 : c.layers;
  const Size own = 2 * c.dim * inner + 2 * c.dim * c.mlp_dim + 3 * inner * c.span;
  // Of the memories: those that the state brings, and all of the segment's but the last; each mixes the layers.
  return c.segment * (c.layers * own + (c.layers + 1) * c.dim + c.dim * c.n_out) +
         owners * (c.segment - 1 + c.span) * 2 * c.dim * inner;
}

Size lstm(const ModelConfig& c) {
  return c.segment *
         (4 * c.dim * (c.dim + c.embed_dim) + (c.layers - 1) * 8 * c.dim * c.dim + c.dim * c.n_out);
}

// Checks twice the multiply-adds against the counted operations.
void check_cost(const ModelConfig& config, Size time, Size (*formula)(const ModelConfig&, Size),
                bool carried = true) {
  const ModelConfig full = resolved(config);
  CAPTURE(full.model);
  CAPTURE(time);
  CHECK(forward_cost(config, time, carried).flops == 2.0 * static_cast<double>(formula(full, time)));
}

}  // namespace

TEST_CASE("counted work: the bytes of a stream are those of its state, for every model") {
  for (const ModelCase& c : every_case()) {
    CAPTURE(c.name);
    const std::unique_ptr<Model> model = make_model(c.config);
    model->params().initialize(1);
    for (const Size time : {1, 8}) {
      const NoGrad no_grad;
      State state;
      const Size remaining = model->remaining_context(state),
                 read = remaining < 0 ? time : std::min(time, remaining);
      static_cast<void>(model->stream(Tensor::zeros({1, read}, Dtype::i64), state));
      CHECK(stream_bytes(c.config, time) == state.bytes());
    }
  }
}

TEST_CASE("counted work: the recurrent transformers are their formulas") {
  for (const Size time : {1, 7, 20}) {
    for (const bool last : {false, true}) {
      ModelConfig c = small_config("unit_forget");
      c.layers = 2;
      if (last) c.readout = "last";
      const Size read = last ? 1 : time;
      const auto flops = [&] { return forward_cost(c, time).flops; };
      CHECK(flops() == 2.0 * static_cast<double>(unit_forget(resolved(c), time, read)));
      c.model = "regular";
      CHECK(flops() == 2.0 * static_cast<double>(regular(resolved(c), time, read)));
    }
    for (const Size block : {1, 4, 5}) {
      check_cost(block_config("block_forget", block), time, block_forget);
      ModelConfig accumulate = block_config("block_accumulate", block);
      accumulate.accumulate = "output";
      check_cost(accumulate, time, block_accumulate);
    }
  }
}

TEST_CASE("counted work: the block-recurrent transformers are their formulas") {
  for (const char* gate : {"fixed", "lstm"})
    for (const char* cell : {"dual", "single", "skip"})
      for (const bool cache : {false, true}) {
        CAPTURE(gate);
        CAPTURE(cell);
        CAPTURE(cache);
        ModelConfig c = recurrent_config(gate, cell);
        c.cache = cache;
        for (const bool carried : {false, true}) check_cost(c, 16, block_recurrent_size, carried);
      }
  for (const char* model : {"slide", "xl", "memorizing"}) {
    const ModelConfig c = block_recurrent_config(model);
    check_cost(c, c.segment, block_recurrent_size);
  }
}

TEST_CASE("counted work: the block-wise recurrent transformers are their formulas") {
  for (const Size time : {3, 8, 14}) {
    for (const char* model : {"llama", "llama_window", "memory_llama"})
      check_cost(blockwise_config(model), time, llama);
    ModelConfig c = blockwise_config("memory_llama");
    c.memory_proj = true;
    c.memory_ffn = !c.memory_ffn;
    check_cost(c, time, llama);
  }
}

TEST_CASE("counted work: the staircase family is its formulas") {
  const auto of_segment = [](const ModelConfig& config, Size (*formula)(const ModelConfig&)) {
    const ModelConfig full = resolved(config);
    CAPTURE(full.model);
    CHECK(forward_cost(config, full.segment).flops == 2.0 * static_cast<double>(formula(full)));
  };
  for (const Size steps : {1, 3, 4})
    for (const Size chunk : {2, 3}) {
      ModelConfig c = staircase_config("staircase");
      c.steps = steps;
      c.chunk = chunk;
      c.span = 0;
      of_segment(c, staircase_size);
      c.model = "cached_staircase";
      for (c.cache_after = 1; c.cache_after <= std::min<Size>(steps, 3); ++c.cache_after)
        of_segment(c, staircase_size);
    }
  for (const char* model : {"transformer_xl", "ladder", "universal"})
    of_segment(staircase_config(model), transformer_xl);
  for (const bool shared : {false, true}) {
    ModelConfig c = staircase_config("feedback");
    c.shared_kv = shared;
    of_segment(c, feedback);
  }
  of_segment(staircase_config("lstm"), lstm);
}

TEST_CASE("counted work: every model of the papers is counted without its memory") {
  for (const NamedConfig& named : paper_configs()) {
    CAPTURE(named.name);
    ModelConfig c = named.config;
    if (c.vocab == 0) c.vocab = 100;
    const ModelConfig full = resolved(c);
    const Size time = full.segment > 0 ? full.segment : full.context;
    const Cost cost = forward_cost(c, time);
    // Most parameters take part in one product for each token at least, and models repeat few of them often.
    CHECK(cost.flops > 0.1 * static_cast<double>(named.parameters * time));
    CHECK(cost.bytes > 0);
  }
}
