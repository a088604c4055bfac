// The loss of a model on tokens, against a plain loop over the windows.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "autograd/tape.h"
#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/threads.h"
#include "tests/support/tiny_model.h"
#include "train/app/report/loss_by_position.h"
#include "train/eval/evaluate.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::app;
using namespace eddy::test;

constexpr std::int64_t kVocab = 11;

// The mean over windows and positions of log(sum exp(logits)) - logits[target], one window after the other.
double plain_loss(const Model& model, const std::vector<std::int32_t>& tokens, std::size_t sequence) {
  double sum = 0, count = 0;
  for (std::size_t first = 0; first + sequence < tokens.size(); first += sequence) {
    const std::vector<std::int32_t> window(tokens.begin() + static_cast<std::ptrdiff_t>(first),
                                           tokens.begin() + static_cast<std::ptrdiff_t>(first + sequence));
    const auto logits = whole_logits(model, window);
    for (std::size_t t = 0; t < sequence; ++t) {
      double total = 0;
      for (const double logit : logits[t]) total += std::exp(logit);
      sum += std::log(total) - logits[t][static_cast<std::size_t>(tokens[first + t + 1])];
      count += 1;
    }
  }
  return sum / count;
}

}  // namespace

TEST_CASE("evaluate: the mean over all windows equals a plain loop with any batch") {
  const OneThread one_thread;
  for (const char* name : {"unit_forget", "regular"}) {
    CAPTURE(name);
    const auto model = tiny_model(tiny_config(name, kVocab));
    const std::vector<std::int32_t> tokens =
        random_tokens(7 * 10 + 6, kVocab);  // 10 windows of 7, 5 tokens left over
    const double expected = plain_loss(*model, tokens, 7);
    for (const std::int64_t batch : {1, 3, 10, 1000}) {
      CAPTURE(batch);
      const EvalResult result = evaluate(*model, tokens, 7, batch);
      CHECK(result.tokens == 70);
      // f64 throughout: rounding of sums of some hundred terms.
      CHECK(std::abs(result.loss - expected) <= 1e-12);
    }
  }
}

TEST_CASE("evaluate: a sample is of windows that are evenly spread, and of all where there are no more") {
  const OneThread one_thread;
  const auto model = tiny_model(tiny_config("unit_forget", kVocab));
  const std::vector<std::int32_t> tokens = random_tokens(7 * 10 + 6, kVocab);
  const auto window = [&](std::size_t i) {
    const auto first = tokens.begin() + static_cast<std::ptrdiff_t>(7 * i);
    return plain_loss(*model, {first, first + 8}, 7);
  };
  const double expected = (window(0) + window(3) + window(6)) / 3;
  for (const std::int64_t batch : {1, 2, 5}) {
    CAPTURE(batch);
    const EvalResult result = evaluate(*model, tokens, 7, batch, {}, {}, 3);
    CHECK(result.tokens == 21);
    CHECK(result.of == 70);
    CHECK(result.is_part());
    CHECK(std::abs(result.loss - expected) <= 1e-12);
  }
  const EvalResult whole = evaluate(*model, tokens, 7, 4);
  for (const std::int64_t sample : {10, 11, 1'000'000}) {
    const EvalResult result = evaluate(*model, tokens, 7, 4, {}, {}, sample);
    CHECK(result.tokens == 70);
    CHECK(!result.is_part());
    CHECK(result.loss == whole.loss);
  }
}

TEST_CASE("evaluate: items that are evenly spread are different and in order") {
  for (const std::int64_t all : {1, 7, 10, 1000})
    for (std::int64_t chosen = 1; chosen <= std::min<std::int64_t>(all, 50); ++chosen) {
      std::int64_t before = -1;
      for (std::int64_t i = 0; i < chosen; ++i) {
        const std::int64_t index = spread_index(i, chosen, all);
        CHECK(index == i * all / chosen);
        CHECK(index > before);
        before = index;
      }
      CHECK(before < all);
    }
}

TEST_CASE("evaluate: the text has one window more when its last target is there") {
  const OneThread one_thread;
  const auto model = tiny_model(tiny_config("unit_forget", kVocab));
  CHECK(evaluate(*model, random_tokens(14, kVocab), 7, 4).tokens == 7);
  CHECK(evaluate(*model, random_tokens(15, kVocab), 7, 4).tokens == 14);
}

TEST_CASE("evaluate: f32 gives the same bits twice and is near f64") {
  const OneThread one_thread;
  const ModelConfig config = tiny_config("unit_forget", kVocab);
  const auto single = tiny_model(config, Dtype::f32);
  const std::vector<std::int32_t> tokens = random_tokens(120, kVocab);
  const double loss = evaluate(*single, tokens, 9, 4).loss;
  CHECK(evaluate(*single, tokens, 9, 4).loss == loss);
  // Logits of size 1 to 10 after some ten f32 roundings each.
  CHECK(std::abs(loss - plain_loss(*single, tokens, 9)) <= 1e-5);
}

TEST_CASE("evaluate: no graph is left behind and recording is as before") {
  const OneThread one_thread;
  const auto model = tiny_model(tiny_config("unit_forget", kVocab));
  const std::int64_t recorded = graph_stats().recorded;
  evaluate(*model, random_tokens(50, kVocab), 5, 4);
  evaluate_random(*model, random_tokens(50, kVocab), 1, 2, 2, 5);
  CHECK(graph_stats().recorded == recorded);
  CHECK(grad_enabled());
}

TEST_CASE("evaluate: progress counts up to all tokens and can end the measurement") {
  const OneThread one_thread;
  const auto model = tiny_model(tiny_config("unit_forget", kVocab));
  const std::vector<std::int32_t> tokens = random_tokens(51, kVocab);
  std::vector<std::pair<std::int64_t, std::int64_t>> seen;
  evaluate(*model, tokens, 5, 4, [&](std::int64_t done, std::int64_t total) {
    seen.emplace_back(done, total);
    return true;
  });
  CHECK(seen == std::vector<std::pair<std::int64_t, std::int64_t>>{{20, 50}, {40, 50}, {50, 50}});

  const auto first_only = [](std::int64_t, std::int64_t) { return false; };
  const EvalResult part = evaluate(*model, tokens, 5, 4, first_only);
  CHECK(part.tokens == 20);
  CHECK(part.loss == evaluate(*model, std::span(tokens).first(21), 5, 4).loss);
  const EvalResult drawn = evaluate_random(*model, tokens, 1, 9, 2, 5, first_only);
  CHECK(drawn.tokens == 10);
  CHECK(drawn.loss == evaluate_random(*model, tokens, 1, 1, 2, 5).loss);
}

TEST_CASE("evaluate: bits and perplexity follow from the loss") {
  EvalResult result;
  result.loss = std::log(8.0);
  CHECK(result.bits_per_token() == doctest::Approx(3));
  CHECK(result.perplexity() == doctest::Approx(8));
}

TEST_CASE("loss by position: curves are means over the targets at and up to a position") {
  EvalResult result;
  result.add_position(0, 4);
  result.add_position(0, 2);
  result.add_position(2, 1);  // nothing at position 1
  result.add_position(3, 1);
  const PositionCurve all = cumulative_nats(result), here = local_nats(result);
  CHECK(all.positions == std::vector<double>{1, 3, 4});
  CHECK(all.nats[0] == doctest::Approx(3));
  CHECK(all.nats[1] == doctest::Approx(7.0 / 3));
  CHECK(all.nats[2] == doctest::Approx(2));
  CHECK(here.positions == std::vector<double>{1, 3, 4});
  CHECK(here.nats[1] == doctest::Approx(1));
  const PositionTexts texts = texts_by_position(result);
  CHECK(texts.positions == std::vector<double>{1, 2, 4});
  CHECK(texts.texts == std::vector<double>{2, 1, 1});  // a text is counted where it is read on, scored or not
  CHECK(texts_by_position({}).positions.empty());
  for (int i = 4; i < 1000; ++i) result.add_position(i, 1);
  CHECK(local_nats(result).positions.size() < 60);
  CHECK(contains(render_loss_by_position("a < b", "", {{"loss", result}}), "a &lt; b"));
  CHECK(contains(render_loss_by_position("a", "", {{"loss", result}}), "How many texts reach a position"));
  CHECK(contains(render_loss_by_position("none", "", {{"loss", {}}}), "No loss was recorded"));
}

TEST_CASE(
    "loss by position: the page and its sentence say what is seen, against chance and behind the border") {
  EvalResult with, cleared;
  for (int position = 0; position < 8; ++position)
    for (int answer = 0; answer < 4; ++answer) {
      with.add_position(position, 0.01);
      cleared.add_position(position, position < 4 ? 0.01 : 3);
      ++with.answer_count[answer];
    }
  CHECK(with.chance() == doctest::Approx(std::log(4.0)));
  CHECK(std::isnan(EvalResult().chance()));
  const PositionMarks marks{"target", 4};
  const std::string both = position_sentence({{"with", with}, {"cleared", cleared}}, marks);
  CHECK(contains(both,
                 "Behind position 4 the loss is 0.01 nats per target with the state and 3 with it cleared: "
                 "what it carries saves 2.99."));
  CHECK(contains(both, "costs 1.39, less than the model without its state, which is sure of wrong answers."));
  const std::string same = position_sentence({{"with", with}, {"cleared", with}}, marks);
  CHECK(contains(same, "what it carries changes nothing."));
  CHECK_FALSE(contains(same, "sure of wrong"));
  EvalResult near = with;
  for (int position = 0; position < 8; ++position) near.position_loss[position] += 0.0001;
  CHECK(contains(position_sentence({{"with", with}, {"cleared", near}}, marks),
                 "what it carries hardly changes anything."));
  const std::string worse = position_sentence({{"with", cleared}, {"cleared", with}}, marks);
  CHECK(contains(worse, "what it carries costs 2.99."));
  cleared.answer_count = with.answer_count;
  const std::string alone = position_sentence({{"loss", cleared}}, {"token", 0});
  CHECK(contains(alone, "Up to position 2 the loss is 0.01 nats per token, behind position 6 it is 3."));
  CHECK(contains(alone, "costs 1.39: the model does no better there."));
  EvalResult guessing;
  for (int position = 0; position < 8; ++position)
    for (int answer = 0; answer < 4; ++answer) guessing.add_position(position, 1.38);
  guessing.answer_count = with.answer_count;
  CHECK(contains(position_sentence({{"loss", guessing}}, {"token", 0}),
                 "costs 1.39: the model hardly does better there."));
  CHECK(position_sentence({{"none", {}}}, marks).empty());
  const std::string page = render_loss_by_position("a", "", {{"with", with}, {"cleared", cleared}}, marks);
  for (const char* part :
       {"nats per target", "chance", "end of the first segment, 4", "what it carries saves 2.99"})
    CHECK_MESSAGE(contains(page, part), part);
  CHECK_FALSE(contains(page, "bits per"));
  CHECK_FALSE(
      contains(render_loss_by_position("a", "", {{"with", with}}, {"target", 8}), "end of the first"));
}

TEST_CASE("evaluate_last: windows of every length are judged on the same targets") {
  const OneThread one_thread;
  const auto model = tiny_model(tiny_config("unit_forget", kVocab));
  const std::vector<std::int32_t> tokens = random_tokens(50, kVocab);
  EvalOptions options;
  options.score_last = 4;
  options.from = 21;
  options.batch = 3;
  for (const std::int64_t window : {4, 7, 20}) {
    CAPTURE(window);
    double nats = 0, count = 0;
    for (std::int64_t end = 21; end <= 50; end += 4) {
      const auto begin = tokens.begin() + (end - window - 1);
      const auto logits = whole_logits(*model, {begin, begin + window});
      for (std::int64_t t = window - 4; t < window; ++t) {
        const auto& row = logits[static_cast<std::size_t>(t)];
        double sum = 0;
        for (const double logit : row) sum += std::exp(logit);
        nats += std::log(sum) - row[static_cast<std::size_t>(begin[t + 1])];
        count += 1;
      }
    }
    const EvalResult result = evaluate_last(*model, {tokens}, window, options);
    CHECK(result.tokens == 4 * 8);
    CHECK(std::abs(result.loss - nats / count) <= 1e-12);
    CHECK(result.metrics.front().first == "accuracy");
  }
  options.batches = 2;
  CHECK(evaluate_last(*model, {tokens}, 7, options).tokens == 2 * 3 * 4);
  CHECK(evaluate_last(*model, {tokens}, 7, options).loss == evaluate_last(*model, {tokens}, 7, options).loss);
  options.from = 51;
  CHECK(contains(error_of<ValueError>([&] { evaluate_last(*model, {tokens}, 7, options); }), "51 tokens"));
  CHECK(contains(error_of<ValueError>([&] { evaluate_last(*model, {tokens}, 3, options); }),
                 "last 4 targets of 3"));
}

TEST_CASE("evaluate: accuracy counts the targets with the highest logit") {
  const OneThread one_thread;
  const auto model = tiny_model(tiny_config("unit_forget", kVocab));
  const std::vector<std::int32_t> tokens = random_tokens(29, kVocab);
  const std::vector<std::int32_t> window(tokens.begin(), tokens.end() - 1);
  const auto logits = whole_logits(*model, window);
  double right = 0;
  for (std::size_t t = 0; t < window.size(); ++t) {
    const auto best = std::max_element(logits[t].begin(), logits[t].end()) - logits[t].begin();
    if (best == tokens[t + 1]) ++right;
  }
  EvalPlan plan;
  plan.count_correct = true;
  const EvalResult result = evaluate(*model, tokens, 28, 1, {}, plan);
  REQUIRE(result.metrics.size() == 1);
  CHECK(result.metrics[0].first == "accuracy");
  CHECK(result.metrics[0].second == doctest::Approx(right / 28));
}

TEST_CASE("evaluate: random batches repeat with the seed and come near the mean over all windows") {
  const OneThread one_thread;
  const auto model = tiny_model(tiny_config("unit_forget", kVocab));
  const std::vector<std::int32_t> tokens = random_tokens(600, kVocab);
  const EvalResult result = evaluate_random(*model, tokens, 3, 40, 4, 8);
  CHECK(result.tokens == 40 * 4 * 8);
  CHECK(result.standard_error > 0);
  CHECK(evaluate_random(*model, tokens, 3, 40, 4, 8).loss == result.loss);
  CHECK(evaluate_random(*model, tokens, 4, 40, 4, 8).loss != result.loss);
  // Both are means of the same losses; 5 standard errors of the draws and as much for the windows' own
  // choice.
  const double expected = evaluate(*model, tokens, 8, 16).loss;
  CHECK(std::abs(result.loss - expected) <= 10 * result.standard_error);
}

TEST_CASE("evaluate: the standard error is that of the batch means") {
  const OneThread one_thread;
  const auto model = tiny_model(tiny_config("unit_forget", kVocab));
  const std::vector<std::int32_t> tokens = random_tokens(200, kVocab);
  // Means of the first n batches give the single ones: loss_n = n mean_n - (n - 1) mean_(n - 1).
  std::vector<double> losses;
  double before = 0;
  for (int n = 1; n <= 5; ++n) {
    const double sum = n * evaluate_random(*model, tokens, 9, n, 2, 6).loss;
    losses.push_back(sum - before);
    before = sum;
  }
  double squares = 0;
  for (const double loss : losses) squares += (loss - before / 5) * (loss - before / 5);
  const EvalResult result = evaluate_random(*model, tokens, 9, 5, 2, 6);
  CHECK(std::abs(result.standard_error - std::sqrt(squares / 4 / 5)) <= 1e-12);
  CHECK(std::isnan(evaluate_random(*model, tokens, 9, 1, 2, 6).standard_error));
}

TEST_CASE("evaluate: what cannot be measured is refused") {
  const OneThread one_thread;
  const auto model = tiny_model(tiny_config("unit_forget", kVocab));
  const std::vector<std::int32_t> tokens = random_tokens(30, kVocab);
  CHECK_THROWS_AS(evaluate(*model, tokens, 0, 1), ValueError);
  CHECK_THROWS_AS(evaluate(*model, tokens, 5, 0), ValueError);
  CHECK(contains(error_of<ValueError>([&] { evaluate(*model, tokens, 30, 1); }),
                 "30 tokens make no window of 30"));
  CHECK_THROWS_AS(evaluate(*model, {}, 5, 1), ValueError);
  CHECK_THROWS_AS(evaluate_random(*model, tokens, 1, 0, 2, 5), ValueError);
  std::vector<std::int32_t> outside = tokens;
  outside[3] = kVocab;
  CHECK_THROWS_AS(evaluate(*model, outside, 5, 2), ValueError);
  std::vector<std::int32_t> negative = tokens;
  negative[25] = -1;  // the last target, which is never an input: it must not pass as a target to leave out
  CHECK_THROWS_AS(evaluate(*model, std::span(negative).first(26), 5, 2), ValueError);
  ModelConfig last = tiny_config("regular", kVocab);
  last.readout = "last";
  CHECK(contains(error_of<ConfigError>([&] { evaluate(*tiny_model(last), tokens, 5, 2); }), "model.readout"));
}
