// Two runs token by token: the losses of single tokens, the ranking, the way back to the last occurrence.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/threads.h"
#include "tests/support/tiny_model.h"
#include "train/app/report/comparison.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::app;
using namespace eddy::test;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

ComparedText text_of(const Tokenizer& tokenizer, const std::string& text) {
  ComparedText compared{"book", tokenizer.encode(text), {}, {}};
  compared.nats_a.assign(compared.tokens.size(), 1.0);
  compared.nats_b.assign(compared.tokens.size(), 1.0);
  compared.nats_a[0] = compared.nats_b[0] = kNone;
  return compared;
}

}  // namespace

TEST_CASE("token losses: each token's loss is the one of a plain pass and the first has none") {
  const OneThread one;
  const auto model = tiny_model(tiny_config("regular", 11));
  const std::vector<std::int32_t> tokens = random_tokens(23, 11), single{3};
  TokenReading reading;
  reading.segment = 5;
  reading.rows = 2;
  const auto losses = token_losses(*model, {tokens, single, std::span(tokens).first(7)}, reading);
  REQUIRE(losses.size() == 3);
  CHECK(losses[1].size() == 1);
  CHECK(std::isnan(losses[1][0]));
  REQUIRE(losses[0].size() == 23);
  CHECK(std::isnan(losses[0][0]));
  for (std::size_t begin = 0; begin < tokens.size(); begin += 5) {
    const std::size_t end = std::min<std::size_t>(begin + 5, tokens.size());
    const auto logits = whole_logits(*model, {tokens.begin() + static_cast<std::ptrdiff_t>(begin),
                                              tokens.begin() + static_cast<std::ptrdiff_t>(end)});
    for (std::size_t i = begin; i < end && i + 1 < tokens.size(); ++i) {
      double sum = 0;
      for (const double logit : logits[i - begin]) sum += std::exp(logit);
      const double nats = std::log(sum) - logits[i - begin][static_cast<std::size_t>(tokens[i + 1])];
      CHECK(std::abs(losses[0][i + 1] - nats) <= 1e-12);
      if (i + 1 < 7) CHECK(std::abs(losses[2][i + 1] - nats) <= 1e-12);
    }
  }
  CHECK_THROWS_AS(token_losses(*model, {single}, reading), ValueError);
}

TEST_CASE("token losses: a carried state makes segments of any length read alike") {
  const OneThread one;
  ModelConfig config = tiny_config("lstm", 11);
  config.family = "staircase";
  const auto model = tiny_model(config);
  const std::vector<std::int32_t> tokens = random_tokens(30, 11);
  const auto losses = [&](std::int64_t segment, bool clear) {
    return token_losses(*model, {tokens}, {segment, 1, true, clear})[0];
  };
  const std::vector<double> whole = losses(30, false), parts = losses(7, false), cleared = losses(7, true);
  for (std::size_t i = 1; i < tokens.size(); ++i) {
    CHECK(std::abs(whole[i] - parts[i]) <= 1e-12);
    if (i <= 7) CHECK(cleared[i] == parts[i]);
  }
  CHECK(cleared[8] != parts[8]);
}

TEST_CASE("comparison: the largest differences come first in both directions") {
  const auto tokenizer = make_tokenizer("byte", "");
  ComparedText text = text_of(*tokenizer, "some words and some more words");
  text.nats_b[5] = 3;
  text.nats_b[7] = 4;
  text.nats_a[9] = 2;
  text.nats_b[11] = kNone;
  text.nats_a[12] = std::numeric_limits<double>::infinity();
  const Comparison result = compare_runs(*tokenizer, {text}, 2);
  CHECK(result.tokens == 30 - 3);
  CHECK(std::abs(result.loss_b - result.loss_a - (2.0 + 3.0 - 1.0) / 27) <= 1e-12);
  REQUIRE(result.a_better.size() == 2);
  CHECK(result.a_better[0].token == 7);
  CHECK(result.a_better[1].token == 5);
  REQUIRE(result.b_better.size() == 1);
  CHECK(result.b_better[0].token == 9);
  CHECK(compare_runs(*tokenizer, {text}, 1).a_better.size() == 1);
  CHECK(compare_runs(*tokenizer, {text}, 0).a_better.empty());
}

TEST_CASE("comparison: it says how far back a token and its word were") {
  const auto tokenizer = make_tokenizer("byte", "");
  const std::string book = "Gomin said: z! Gominda and \u201cGomin\u201d, \u00c9mile, (Gomin) \u00c9mile.";
  ComparedText text = text_of(*tokenizer, book);
  const std::size_t last = book.rfind("Gomin"), quoted = book.find("Gomin", 20), name = book.rfind("mile"),
                    sign = book.find('!'), z = book.find('z');
  for (const std::size_t token : {last + 3, name, sign, z}) text.nats_b[token] = 5;
  const Comparison result = compare_runs(*tokenizer, {text}, 10);
  REQUIRE(result.a_better.size() == 4);
  const TokenDifference &is_z = result.a_better[0], &is_sign = result.a_better[1],
                        &is_last = result.a_better[2], &is_name = result.a_better[3];
  CHECK(is_last.word == "Gomin");
  CHECK(is_last.word_back == static_cast<std::int64_t>(last - quoted));  // Gominda is another word
  CHECK(is_last.token_back == static_cast<std::int64_t>(last + 3 - book.rfind('i', last + 2)));
  CHECK(is_last.piece == "i");
  CHECK(is_last.before.ends_with("(Gom"));
  CHECK(is_last.after.starts_with("n) "));
  CHECK(is_name.word == "\u00c9mile");
  CHECK(is_name.word_back == static_cast<std::int64_t>(book.rfind("\u00c9") - book.find("\u00c9")));
  CHECK(is_sign.word.empty());
  CHECK(is_sign.word_back == -1);
  CHECK(is_sign.token_back == -1);
  CHECK(is_z.word == "z");
  CHECK(is_z.word_back == -1);
  const Table table = table_of({text}, {is_last, is_sign});
  CHECK(table.rows[0][4] == fmt::format("Gomin: {}", last - quoted));
  CHECK(contains(table.rows[0].back(), "(Gom|i|n)"));
  CHECK(table.rows[1][3] == "never before");
  CHECK(table.rows[1][4].empty());
}

TEST_CASE("comparison: several texts are ranked together and shown with their names") {
  const auto tokenizer = make_tokenizer("byte", "");
  ComparedText first = text_of(*tokenizer, "one <b>text</b>"), second = text_of(*tokenizer, "an \x1b other");
  first.name = "first.txt";
  second.name = "second.txt";
  first.nats_b[5] = 2;
  second.nats_b[4] = 3;
  second.nats_a[6] = 2;
  const Comparison result = compare_runs(*tokenizer, {first, second}, 5);
  REQUIRE(result.a_better.size() == 2);
  CHECK(result.a_better[0].text == 1);
  const std::string page =
      render_comparison({"runs/a", "runs/b", "x, step 1", "y, step 2"}, {first, second}, result);
  for (const char* part :
       {"2: second.txt", "1: first.txt", "&lt;|b|&gt;", "Loss up to a position", "runs/b", "y, step 2"})
    CHECK_MESSAGE(contains(page, part), part);
  CHECK(!contains(page, "\x1b"));
}

TEST_CASE("comparison: losses that do not fit the tokens are refused") {
  const auto tokenizer = make_tokenizer("byte", "");
  ComparedText text = text_of(*tokenizer, "abc");
  text.nats_a.pop_back();
  CHECK(contains(error_of<ValueError>([&] { compare_runs(*tokenizer, {text}, 3); }),
                 "3 tokens and 2 and 3 losses"));
  text.nats_a.assign(3, kNone);
  CHECK(contains(error_of<ValueError>([&] { compare_runs(*tokenizer, {text}, 3); }),
                 "no token has a finite loss"));
  CHECK_THROWS_AS(compare_runs(*tokenizer, {}, 3), ValueError);
}
