// Generation: what it draws is what the whole sequence's logits say, and it ends where the model ends.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/threads.h"
#include "tests/support/tiny_model.h"
#include "train/generate/generate.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

constexpr const char* kText = "abcdefghij\n";

std::int32_t largest(const std::vector<double>& logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// The prompt and `tokens` greedy tokens after it, the whole sequence computed again for each.
std::vector<std::int32_t> plain_greedy(const Model& model, std::vector<std::int32_t> ids, int tokens) {
  std::vector<std::int32_t> drawn;
  for (int i = 0; i < tokens; ++i) {
    drawn.push_back(largest(whole_logits(model, ids).back()));
    ids.push_back(drawn.back());
  }
  return drawn;
}

const SampleOptions kGreedy{.temperature = 0};

}  // namespace

TEST_CASE("generate: greedy tokens are those of the whole sequence") {
  const OneThread one_thread;
  const auto tokenizer = make_tokenizer("char", kText);
  for (const char* name : {"unit_forget", "regular"}) {
    CAPTURE(name);
    ModelConfig config = tiny_config(name, tokenizer->vocab_size(), 512);
    config.positions = true;
    const auto model = tiny_model(config);
    for (const std::int64_t length : {1, 5, 256, 257, 300}) {  // the prompt is fed in chunks of 256
      CAPTURE(length);
      const std::vector<std::int32_t> prompt = random_tokens(length, tokenizer->vocab_size());
      CHECK(generate(*model, *tokenizer, prompt, 4, kGreedy).tokens == plain_greedy(*model, prompt, 4));
    }
  }
}

TEST_CASE("generate: drawn tokens are those that sample_token draws from the whole sequence") {
  const OneThread one_thread;
  const auto tokenizer = make_tokenizer("char", kText);
  const auto model = tiny_model(tiny_config("unit_forget", tokenizer->vocab_size()));
  std::vector<std::int32_t> ids = tokenizer->encode("abc");
  const SampleOptions options{.temperature = 1.3, .top_k = 8, .top_p = 0.95, .seed = 21};
  const GenerateResult result = generate(*model, *tokenizer, ids, 12, options);
  for (const std::int32_t token : result.tokens) {
    const std::vector<double> last = whole_logits(*model, ids).back();
    const std::vector<float> logits(last.begin(), last.end());
    CHECK(token ==
          sample_token(logits.data(), static_cast<std::int64_t>(logits.size()), options, ids.size()));
    ids.push_back(token);
  }
  CHECK(result.tokens.size() == 12);
}

TEST_CASE("generate: the text comes in order and a longer run begins with a shorter one") {
  const OneThread one_thread;
  const auto tokenizer = make_tokenizer("char", kText);
  const auto model = tiny_model(tiny_config("unit_forget", tokenizer->vocab_size()));
  std::string text;
  const auto prompt = tokenizer->encode("ab");
  const GenerateResult result =
      generate(*model, *tokenizer, prompt, 30, {}, [&](std::string_view part) { text += part; });
  CHECK(result.drawn == 30);
  CHECK(result.tokens.empty());  // nothing grows with the text
  CHECK(result.stopped.empty());
  const GenerateResult kept = generate(*model, *tokenizer, prompt, 30, {});
  CHECK(kept.drawn == 30);
  CHECK(text == tokenizer->decode(kept.tokens));
  const GenerateResult shorter = generate(*model, *tokenizer, prompt, 10, {});
  CHECK(std::equal(shorter.tokens.begin(), shorter.tokens.end(), kept.tokens.begin()));
  SampleOptions other;
  other.seed = 99;
  CHECK(generate(*model, *tokenizer, prompt, 30, other).tokens != kept.tokens);
}

TEST_CASE("generate: a recurrent model without positions goes past its context with a state of one size") {
  const OneThread one_thread;
  const auto tokenizer = make_tokenizer("char", kText);
  const auto model = tiny_model(tiny_config("unit_forget", tokenizer->vocab_size(), 8));
  const std::vector<std::int32_t> prompt{1};
  const GenerateResult few = generate(*model, *tokenizer, prompt, 2, {});
  const GenerateResult many = generate(*model, *tokenizer, prompt, 60, {});
  CHECK(many.tokens.size() == 60);
  CHECK(many.stopped.empty());
  CHECK(many.state_bytes == few.state_bytes);
  CHECK(many.state_bytes > 0);
}

TEST_CASE("generate: without a position table the regular transformer writes past its context") {
  const OneThread one_thread;
  const auto tokenizer = make_tokenizer("char", kText);
  const auto model = tiny_model(tiny_config("regular", tokenizer->vocab_size(), 8));
  const std::vector<std::int32_t> prompt(20, 1);  // longer than the context
  const GenerateResult result = generate(*model, *tokenizer, prompt, 60, {});
  CHECK(result.tokens.size() == 60);
  CHECK(result.stopped.empty());
  // The same in portions: the caches that grow hold what was in them.
  GenerateState text;
  std::vector<std::int32_t> tokens = generate(*model, *tokenizer, text, prompt, 7, {}).tokens;
  for (const std::int32_t token : generate(*model, *tokenizer, text, {}, 53, {}).tokens)
    tokens.push_back(token);
  CHECK(tokens == result.tokens);
}

TEST_CASE("generate: the regular transformer stops with a reason when its context is full") {
  const OneThread one_thread;
  const auto tokenizer = make_tokenizer("char", kText);
  ModelConfig config = tiny_config("regular", tokenizer->vocab_size(), 8);
  config.positions = true;
  const auto model = tiny_model(config);
  const GenerateResult result = generate(*model, *tokenizer, std::vector<std::int32_t>{1, 2, 3}, 60, {});
  CHECK(result.tokens.size() == 6);  // five more fit into the context, and one is drawn after the last
  CHECK(contains(result.stopped, "context of 8 tokens is full"));
  const GenerateResult enough = generate(*model, *tokenizer, std::vector<std::int32_t>{1, 2, 3}, 6, {});
  CHECK(enough.tokens == result.tokens);
  CHECK(enough.stopped.empty());
  CHECK(generate(*model, *tokenizer, random_tokens(8, 11), 3, {}).tokens.size() == 1);
  CHECK(contains(error_of<ValueError>([&] { generate(*model, *tokenizer, random_tokens(9, 11), 3, {}); }),
                 "a prompt of 9 tokens, and the model takes 8"));
}

TEST_CASE("generate: without a prompt the text begins after a newline or after token 0") {
  const OneThread one_thread;
  const auto with_newline = make_tokenizer("char", kText), without = make_tokenizer("char", "abcdefghijk");
  CHECK(start_tokens(*with_newline) == with_newline->encode("\n"));
  CHECK(start_tokens(*without) == std::vector<std::int32_t>{0});
  CHECK(start_tokens(*make_tokenizer("byte260", "")) == std::vector<std::int32_t>{13});
  const auto model = tiny_model(tiny_config("unit_forget", with_newline->vocab_size()));
  CHECK(generate(*model, *with_newline, {}, 9, {}).tokens ==
        generate(*model, *with_newline, with_newline->encode("\n"), 9, {}).tokens);
}

TEST_CASE("generate: no tokens is an empty text") {
  const OneThread one_thread;
  const auto tokenizer = make_tokenizer("char", kText);
  const auto model = tiny_model(tiny_config("unit_forget", tokenizer->vocab_size()));
  const GenerateResult result = generate(*model, *tokenizer, {}, 0, {});
  CHECK(result.tokens.empty());
  CHECK(result.stopped.empty());
}

TEST_CASE("generate: ids that the tokenizer lacks are never drawn") {
  const OneThread one_thread;
  const auto tokenizer = make_tokenizer("char", "ab\n");
  const auto model = tiny_model(tiny_config("unit_forget", 40));
  const GenerateResult result = generate(*model, *tokenizer, {}, 50, {.temperature = 3});
  CHECK(*std::max_element(result.tokens.begin(), result.tokens.end()) < 3);
}

TEST_CASE("generate: bad requests and broken weights are typed errors") {
  const OneThread one_thread;
  const auto tokenizer = make_tokenizer("char", kText);
  const auto model = tiny_model(tiny_config("unit_forget", tokenizer->vocab_size()));
  CHECK_THROWS_AS(generate(*model, *tokenizer, {}, -1, {}), ValueError);
  CHECK_THROWS_AS(generate(*model, *tokenizer, {}, 5, {.temperature = -1}), ValueError);
  CHECK_THROWS_AS(generate(*model, *tokenizer, std::vector<std::int32_t>{400}, 5, {}), ValueError);
  raw::fill(model->params().values(), std::numeric_limits<double>::quiet_NaN());
  CHECK_THROWS_AS(generate(*model, *tokenizer, {}, 5, {}), NonFiniteError);
}
