// What is shown of a text are the library's numbers: losses those of token_losses, norms and gates those of the values
// that a model names, attention those of its probabilities, at the tokens where they belong.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "autograd/named_values.h"
#include "autograd/tape.h"
#include "tests/models/every_model.h"
#include "tests/support/threads.h"
#include "tests/support/tiny_model.h"
#include "tests/train/app/inspect/inspect_text.h"
#include "train/app/inspect/attention_rows.h"
#include "train/app/inspect/inspection.h"
#include "train/app/inspect/named_segment.h"
#include "train/app/inspect/value_meaning.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::app;
using namespace eddy::test;

// A model as in tests of models, whose head gives logits for every token.
ModelConfig inspected_config(const ModelName& name) {
  ModelConfig config = plain_config(name);
  config.readout = "all";
  config.dropout = 0;
  config.n_out = 0;
  if (reads_key(config, "keep_state") && !config.positions) config.keep_state = true;
  return config;
}

TextOptions options_for(const ModelConfig& config, std::int64_t segment) {
  TextOptions options;
  options.reading.segment = segment;
  const std::unique_ptr<Model> model = model_of(config);
  options.reading.carry_state = model->is_recurrent() || config.model == "slide" || config.model == "xl";
  return options;
}

template <class Each>
void for_inspected(Each&& each) {
  for (const ModelName& name : model_registry()) {
    const ModelConfig config = inspected_config(name);
    CAPTURE(config.model);
    const std::unique_ptr<Model> model = model_of(config);
    const ModelConfig& full = model->full_config();
    each(full, *model, random_tokens(3 * call_time(full) + 2, full.vocab),
         options_for(config, call_time(full)));
  }
}

void check_equal(const std::vector<float>& shown, const std::vector<double>& wanted) {
  REQUIRE(shown.size() == wanted.size());
  for (std::size_t i = 0; i < shown.size(); ++i) {
    CAPTURE(i);
    CHECK(std::isnan(shown[i]) == std::isnan(wanted[i]));
    if (!std::isnan(wanted[i])) CHECK(shown[i] == static_cast<float>(wanted[i]));
  }
}

}  // namespace

TEST_CASE("inspection: the losses of every model are those of token_losses, with the state and without") {
  const OneThread one;
  for_inspected([](const ModelConfig&, const Model& model, const std::vector<std::int32_t>& tokens,
                   const TextOptions& options) {
    const Inspection seen = inspect_tokens(model, tokens, options);
    TokenReading reading = options.reading;
    reading.rows = 1;
    check_equal(seen.find(TokenMeasure::loss)->values, token_losses(model, {tokens}, reading)[0]);
    CHECK(seen.carried == reading.carry_state);
    if (!reading.carry_state) return;
    reading.clear_state = true;
    check_equal(seen.find(TokenMeasure::loss_cleared)->values, token_losses(model, {tokens}, reading)[0]);
  });
}

TEST_CASE("inspection: every model shows what it has, and every value has its place") {
  const OneThread one;
  for_inspected([](const ModelConfig& config, const Model& model, const std::vector<std::int32_t>& tokens,
                   const TextOptions& options) {
    const Inspection seen = inspect_tokens(model, tokens, options);
    CHECK(seen.unplaced.empty());
    const bool has_state = std::ranges::any_of(
        seen.series, [](const TokenSeries& series) { return series.measure == TokenMeasure::norm; });
    CHECK(has_state == (config.family == "recurrent_transformer" ? config.model != "regular"
                        : config.family == "block_recurrent"     ? config.model == "block_recurrent"
                        : config.family == "blockwise_recurrent"
                            ? config.model == "memory_llama"
                            : !(config.model == "transformer_xl" || config.model == "ladder" ||
                                config.model == "universal")));
    CHECK(seen.attention.empty() == (config.model == "lstm"));
    for (const AttentionView& view : seen.attention) {
      CAPTURE(view.path);
      CHECK(view.from == 0);
      CHECK(view.to == std::ssize(tokens));
      std::int64_t dark = 0;
      for (std::int64_t pass = 0; pass < view.passes; ++pass)
        for (std::int64_t head = 0; head <= view.heads; ++head)
          for (std::int64_t token = 0; token < view.to; ++token) {
            const std::size_t row = view.row(pass, head, token),
                              at = row * static_cast<std::size_t>(view.kept);
            int sum = view.rest[row];
            for (std::int64_t i = 0; i < view.kept; ++i) {
              const auto place = at + static_cast<std::size_t>(i);
              sum += view.share[place];
              // No token sees a later one.
              if (view.share[place] > 0 && view.keys.empty()) CHECK(view.key[place] >= 0);
            }
            if (sum == 0) ++dark;  // a query that sees no key
            // Each of the kept shares and the rest are rounded to a half at most.
            if (sum != 0) CHECK(std::abs(sum - 255) <= (view.kept + 2) / 2 + 1);
          }
      CHECK(dark < view.passes * (view.heads + 1) * view.to / 2);
    }
  });
}

TEST_CASE("inspection: norms and changes are those of the state that the model names") {
  const OneThread one;
  const ModelConfig config = inspected_config({"recurrent_transformer", "unit_forget"});
  const std::unique_ptr<Model> model = model_of(config);
  const std::vector<std::int32_t> tokens = random_tokens(9, config.vocab);
  TextOptions options;
  options.reading.segment = 9;
  const Inspection seen = inspect_tokens(*model, tokens, options);
  const NoGrad no_grad;
  ForwardInput input;
  input.tokens = Tensor::from(tokens, {1, 9});
  const NamedValues values = capture_values({"*"}, [&] { model->forward(input); });
  const Tensor &h = values.at("layers.0.state")[0], &gate = values.at("layers.0.gate")[0];
  const std::int64_t dim = h.dim(2), heads = gate.dim(1);
  const std::vector<double> rows = raw::contiguous(h).to_vector<double>(),
                            gates = raw::contiguous(gate).to_vector<double>();
  for (std::int64_t t = 0; t < 9; ++t) {
    CAPTURE(t);
    double size = 0, before = 0, moved = 0, mean = 0;
    for (std::int64_t i = 0; i < dim; ++i) {
      const double now = rows[static_cast<std::size_t>(t * dim + i)],
                   old = t > 0 ? rows[static_cast<std::size_t>((t - 1) * dim + i)] : 0;
      size += now * now;
      before += old * old;
      moved += (now - old) * (now - old);
    }
    for (std::int64_t head = 0; head < heads; ++head)
      mean += gates[static_cast<std::size_t>(head * 9 + t)] / static_cast<double>(heads);
    const auto at = static_cast<std::size_t>(t);
    const auto shown = [&](TokenMeasure measure, const char* path) {
      return static_cast<double>(seen.find(measure, path)->values[at]);
    };
    // What is shown is rounded to f32.
    CHECK(std::abs(shown(TokenMeasure::norm, "layers.0.state") - std::sqrt(size)) <= 1e-6 * std::sqrt(size));
    if (t == 0) CHECK(std::isnan(seen.find(TokenMeasure::change, "layers.0.state")->values[0]));
    if (t > 0)
      CHECK(std::abs(shown(TokenMeasure::change, "layers.0.state") - std::sqrt(moved / before)) <=
            1e-6 * std::sqrt(moved / before));
    CHECK(std::abs(shown(TokenMeasure::gate, "layers.0.gate") - mean) <= 1e-6);
  }
}

TEST_CASE("inspection: a token's largest key is where its probabilities are largest") {
  const OneThread one;
  const ModelConfig config = inspected_config({"recurrent_transformer", "regular"});
  const std::unique_ptr<Model> model = model_of(config);
  const std::vector<std::int32_t> tokens = random_tokens(16, config.vocab);
  TextOptions options;
  options.reading.segment = 8;
  options.from = 3;
  options.to = 12;
  const Inspection seen = inspect_tokens(*model, tokens, options);
  const AttentionView& view = seen.attention.at(0);
  CHECK(view.path == "layers.0.attn.probabilities");
  CHECK(view.from == 3);
  CHECK(view.to == 12);
  const NoGrad no_grad;
  for (const std::int64_t begin : {0, 8}) {
    ForwardInput input;
    input.tokens =
        Tensor::from(std::vector<std::int32_t>(tokens.begin() + begin, tokens.begin() + begin + 8), {1, 8});
    const NamedValues values = capture_values({view.path}, [&] { model->forward(input); });
    const std::vector<double> p = raw::contiguous(values.at(view.path)[0]).to_vector<double>();
    for (std::int64_t token = std::max<std::int64_t>(3, begin); token < std::min<std::int64_t>(12, begin + 8);
         ++token)
      for (std::int64_t head = 0; head < view.heads; ++head) {
        const auto row = p.begin() + (head * 8 + token - begin) * 8;
        std::int64_t best = 0;  // of equal ones the nearest
        for (std::int64_t key = 1; key < 8; ++key)
          if (row[key] >= row[best]) best = key;
        const std::size_t at = view.row(0, head, token) * static_cast<std::size_t>(view.kept);
        CHECK(view.key[at] == token - begin - best);
        CHECK(view.share[at] == std::lround(row[best] * 255));
      }
  }
}

TEST_CASE("inspection: windows, blocks, passes and cells look where their family does") {
  const OneThread one;
  const auto seen_of = [](const ModelName& name) {
    const ModelConfig config = inspected_config(name);
    const std::unique_ptr<Model> model = model_of(config);
    const std::int64_t time = call_time(model->full_config());
    return std::pair(model->full_config(), inspect_tokens(*model, random_tokens(3 * time, config.vocab),
                                                          options_for(config, time)));
  };
  const auto distances = [](const AttentionView& view, std::int64_t pass) {
    std::int64_t low = 1 << 20, high = -1;
    for (std::int64_t token = view.from; token < view.to; ++token) {
      const std::size_t at = view.row(pass, view.heads, token) * static_cast<std::size_t>(view.kept);
      for (std::size_t i = at; i < at + static_cast<std::size_t>(view.kept); ++i)
        if (view.share[i] > 0) {
          low = std::min<std::int64_t>(low, view.key[i]);
          high = std::max<std::int64_t>(high, view.key[i]);
        }
    }
    return std::pair(low, high);
  };
  {  // a token sees the window before it, never itself; cells read tokens, tokens read cells
    const auto [config, seen] = seen_of({"block_recurrent", "block_recurrent"});
    bool cross = false;
    for (const AttentionView& view : seen.attention) {
      if (view.keys.empty())
        CHECK(distances(view, 0) == std::pair<std::int64_t, std::int64_t>(1, config.window));
      cross = cross || view.keys == "state vector";
    }
    CHECK(cross);
    CHECK_FALSE(seen.biases.empty());
    const auto moved = std::ranges::find(seen.series, TokenMeasure::moved, &TokenSeries::measure);
    REQUIRE(moved != seen.series.end());
    // All that the updates but the first changed is shared out among tokens.
    const std::vector<float>& change = seen.find(TokenMeasure::change, moved->path)->values;
    double changes = 0, shares = 0;
    for (std::size_t i = 0; i < change.size(); i += static_cast<std::size_t>(config.window))
      if (!std::isnan(change[i])) changes += static_cast<double>(change[i]);
    for (const float share : moved->values) shares += std::isnan(share) ? 0 : static_cast<double>(share);
    CHECK(std::abs(shares - changes) <= 1e-5 * changes);
  }
  {  // without itself, a token sees the one before at the nearest
    const auto [config, seen] = seen_of({"staircase", "feedback"});
    CHECK(distances(seen.attention.at(0), 0).first == (config.feedback_self ? 0 : 1));
    CHECK(distances(seen.attention.at(0), 0).second <= config.span);
  }
  {  // as many passes as steps, and each chunk's tokens in each of them
    const auto [config, seen] = seen_of({"staircase", "staircase"});
    const AttentionView& view = seen.attention.at(0);
    CHECK(view.passes == config.steps);
    for (std::int64_t pass = 0; pass < view.passes; ++pass) CHECK(distances(view, pass).first == 0);
  }
  for (const char* const model : {"block_forget", "block_accumulate"}) {
    const auto [config, seen] = seen_of({"recurrent_transformer", model});
    const AttentionView& view = seen.attention.at(0);
    CHECK(view.passes == 2);
    CHECK(distances(view, 0).second < 2 * config.block);
    CHECK(distances(view, 1).second < config.block);  // what is read out sees its own block
  }
}

TEST_CASE(
    "inspection: an attention that begins in a later segment is shown, and so are keys that come later") {
  ModelConfig config;
  config.family = "own";
  const auto uniform = [](std::int64_t keys) {
    return Tensor::full({1, 1, 4, keys}, 1.0 / static_cast<double>(keys), Dtype::f64);
  };
  const auto seen_with = [&](std::int64_t bytes) {
    TextOptions options;
    options.kept = 6;
    options.bytes = bytes;
    AttentionCollector collector(16, options);
    for (std::int64_t begin = 0; begin < 16; begin += 4) {
      // Keys of a cache from the second segment on, those of a memory from the third.
      NamedValues values{{"cached.probabilities", {uniform(begin < 4 ? 4 : 8)}}};
      if (begin >= 8) values["late.probabilities"] = {uniform(2)};
      if (collector.wants(begin, 4)) collector.add({config, values, begin, 4, 4});
    }
    Inspection seen;
    std::move(collector).take(seen);
    return seen;
  };
  const Inspection seen = seen_with(4000);
  REQUIRE(seen.attention.size() == 2);
  const AttentionView &cached = seen.attention[0], &late = seen.attention[1];
  const auto keys_of = [](const AttentionView& view, std::int64_t token) {
    const auto first = view.share.begin() + static_cast<std::ptrdiff_t>(view.row(0, 0, token)) *
                                                static_cast<std::ptrdiff_t>(view.kept);
    return std::count_if(first, first + static_cast<std::ptrdiff_t>(view.kept),
                         [](std::uint8_t share) { return share > 0; });
  };
  CHECK(cached.to == 16);
  CHECK(cached.kept == 6);
  CHECK(late.path == "late.probabilities");
  CHECK(late.to == 16);
  for (std::int64_t token = 0; token < 16; ++token) {
    CAPTURE(token);
    CHECK(keys_of(cached, token) == (token < 4 ? 4 : 6));
    CHECK(keys_of(late, token) == (token < 8 ? 0 : 2));
    CHECK(cached.rest[cached.row(0, 0, token)] == (token < 4 ? 0 : 64));  // two of eight keys
    CHECK(cached.key[cached.row(0, 0, token) * 6] == token % 4 - 3);
  }
  // A token with four keys, for one head and the mean, takes 26 bytes, with six 38, with two of the memory 14 more.
  const Inspection narrow = seen_with(16 * 26);  // 16 tokens, then 10, and 8 but for the segment that is read
  REQUIRE(narrow.attention.size() == 2);
  CHECK(narrow.attention[0].to == 10);
  CHECK(keys_of(narrow.attention[0], 9) == 6);
  CHECK(keys_of(narrow.attention[1], 9) == 2);
  const Inspection least = seen_with(8 * 26);  // 8 tokens, then 5 but for the segment that is read
  REQUIRE(least.attention.size() == 1);
  CHECK(least.attention[0].to == 8);
  CHECK(keys_of(least.attention[0], 7) == 6);
}

TEST_CASE("inspection: numbers along the text do not depend on the tokens whose attention is kept") {
  const OneThread one;
  for_inspected([](const ModelConfig&, const Model& model, const std::vector<std::int32_t>& tokens,
                   TextOptions options) {
    const Inspection all = inspect_tokens(model, tokens, options);
    options.to = 1;
    const Inspection few = inspect_tokens(model, tokens, options);
    REQUIRE(few.series.size() == all.series.size());
    for (std::size_t i = 0; i < all.series.size(); ++i) {
      CAPTURE(all.series[i].path);
      check_equal(few.series[i].values, {all.series[i].values.begin(), all.series[i].values.end()});
    }
  });
}

TEST_CASE("inspection: what is computed once for each block has no number where padding fills the block up") {
  const OneThread one;
  ModelConfig config = inspected_config({"block_recurrent", "block_recurrent"});
  config.gate = "lstm";
  const std::unique_ptr<Model> model = model_of(config);
  const std::int64_t time = call_time(model->full_config()), block = model->full_config().window;
  const TextOptions options = options_for(config, time);
  const std::vector<std::int32_t> tokens = random_tokens(2 * time, config.vocab);
  const auto seen_of = [&](std::int64_t count) {
    return inspect_tokens(*model, std::span(tokens).first(static_cast<std::size_t>(count)), options);
  };
  const Inspection whole = seen_of(time + 2 * block), part = seen_of(time + 2 * block - 1);
  CHECK(whole.unfilled == 0);
  CHECK(part.unfilled == block - 1);
  int series = 0;
  for (const TokenSeries& one_series : part.series) {
    if (one_series.path.empty()) continue;
    CAPTURE(one_series.path);
    ++series;
    const std::vector<float>& all = whole.find(one_series.measure, one_series.path)->values;
    // What moved the state in the block before the last one is read by both updates.
    const std::int64_t same = one_series.measure == TokenMeasure::moved ? time : time + block;
    for (std::int64_t i = 0; i < time + 2 * block - 1; ++i) {
      CAPTURE(i);
      const auto at = static_cast<std::size_t>(i);
      if (i < same && !std::isnan(all[at])) CHECK(one_series.values[at] == all[at]);
      if (i >= time + block) CHECK(std::isnan(one_series.values[at]));
    }
  }
  CHECK(series >= 4);  // norm, change, what moved it, gates
  CHECK(seen_of(block - 1).unfilled == block - 1);
}

TEST_CASE("inspection: a bias of the distance is a mean over tokens of the text, never over padding") {
  const OneThread one;
  const auto seen_of = [](const ModelName& name, const auto& tokens_of) {
    const ModelConfig config = inspected_config(name);
    const std::unique_ptr<Model> model = model_of(config);
    const ModelConfig& full = model->full_config();
    const std::int64_t time = call_time(full);
    const std::vector<std::int32_t> tokens = random_tokens(time, config.vocab);
    return inspect_tokens(*model, std::span(tokens).first(static_cast<std::size_t>(tokens_of(full, time))),
                          options_for(config, time));
  };
  const auto all = [](const ModelConfig&, std::int64_t time) { return time; };
  const auto cut = [](const ModelConfig&, std::int64_t time) { return time - 1; };
  const auto whole_chunks = [](const ModelConfig& config, std::int64_t time) { return time - config.chunk; };
  const auto check_same = [](const Inspection& a, const Inspection& b) {
    REQUIRE_FALSE(a.biases.empty());
    REQUIRE(a.biases.size() == b.biases.size());
    for (std::size_t i = 0; i < a.biases.size(); ++i) CHECK(a.biases[i].values == b.biases[i].values);
  };
  // A learned bias does not know of tokens, the mean of the staircase is that of its last whole chunk.
  check_same(seen_of({"block_recurrent", "block_recurrent"}, cut),
             seen_of({"block_recurrent", "block_recurrent"}, all));
  check_same(seen_of({"staircase", "staircase"}, cut), seen_of({"staircase", "staircase"}, whole_chunks));
  const Inspection flat = seen_of({"staircase", "transformer_xl"}, cut);  // of one call for all tokens
  CHECK(flat.biases.empty());
  CHECK(flat.has_padded_bias);
  CHECK_FALSE(seen_of({"staircase", "transformer_xl"}, all).biases.empty());
}

TEST_CASE("inspection: every value that a model names has words and a line of its literal form") {
  for_every_model([](const ModelConfig& config, const Model& model) {
    const Tensor tokens = random_ids(1, uneven_time(config), config.vocab, 3);
    const NoGrad no_grad;
    const NamedValues values =
        capture_values({"*"}, [&] { model.forward(input_for(model.full_config(), tokens)); });
    for (const auto& [path, calls] : values) {
      if (is_place_path(path)) continue;
      CAPTURE(path);
      const ValueMeaning* const meaning = meaning_of(config, path);
      REQUIRE(meaning != nullptr);
      CHECK(meaning->words.size() > 20);
      CHECK(meaning->line > 0);
    }
  });
  CHECK(family_meanings().size() == family_list().size());
}

TEST_CASE("inspection: tokens behind the beginning of a state are marked until it has its usual norm") {
  const OneThread one;
  const ModelConfig config = inspected_config({"staircase", "lstm"});
  const std::unique_ptr<Model> model = model_of(config);
  TextOptions options;
  options.reading.segment = 16;
  options.reading.carry_state = true;
  const std::vector<std::int32_t> tokens = random_tokens(64, model->full_config().vocab);
  const auto marked = [&] {
    const Inspection seen = inspect_tokens(*model, tokens, options);
    std::int64_t marks = 0;
    for (const TokenSeries& series : seen.series) {
      if (series.measure != TokenMeasure::change) {
        CHECK((series.measure == TokenMeasure::moved || series.settling.empty()));
        continue;
      }
      std::vector<float> norms = seen.find(TokenMeasure::norm, series.path)->values;
      const std::vector<float> in_order = norms;
      std::ranges::sort(norms);
      for (const TokenRange& range : series.settling) {
        CHECK(range.from % 16 == 0);
        ++marks;
        for (std::int64_t token = range.from; token < range.to; ++token)
          CHECK(in_order[static_cast<std::size_t>(token)] < norms[16]);
        if (range.to % 16 != 0) CHECK(in_order[static_cast<std::size_t>(range.to)] >= norms[16]);
      }
    }
    return marks;
  };
  const std::int64_t carried = marked();
  CHECK(carried >= 1);  // a cell begins with zeros
  options.reading.carry_state = false;
  CHECK(marked() > carried);  // every segment begins one
}

TEST_CASE("inspection: a text that is too short, and a range that is not in it, are errors") {
  const std::unique_ptr<Model> model = tiny_model(tiny_config("regular", 11));
  TextOptions options;
  options.reading.segment = 8;
  CHECK_THROWS_WITH_AS(inspect_tokens(*model, std::vector<std::int32_t>{3}, options),
                       doctest::Contains("a text of 1 token (at least 2"), ValueError);
  options.from = 5;
  options.to = 50;
  CHECK_THROWS_WITH_AS(inspect_tokens(*model, random_tokens(20, 11), options), doctest::Contains("5:50"),
                       ValueError);
  options.to = 20;
  options.most_bytes = 100;
  CHECK_THROWS_WITH_AS(inspect_tokens(*model, random_tokens(20, 11), options), doctest::Contains("at most"),
                       ValueError);
}
