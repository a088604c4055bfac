// Whether a run is far from done, at its best or over-fitting, by the rules of train/run/README.md.
#include "train/eval/learning_verdict.h"

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

namespace {

using namespace eddy;
using namespace eddy::training;

// Evaluations every 10 steps from step 0 on.
std::vector<EvalPoint> points(const std::vector<double>& losses) {
  std::vector<EvalPoint> all;
  for (const double loss : losses) all.push_back({10 * static_cast<std::int64_t>(all.size()), loss});
  return all;
}

bool says(const std::vector<double>& losses, double epochs, const std::string& word) {
  const std::string text = learning_verdict(points(losses), epochs);
  CAPTURE(text);
  return text.starts_with(word + ": ");
}

}  // namespace

TEST_CASE("learning verdict: before the text is read once a run is far from done unless its loss rises") {
  CHECK(says({}, 0.02, "far from done"));
  CHECK(says({4, 3, 2, 2, 2, 2, 2}, 0.5, "far from done"));
  CHECK(says({4, 3, 2, 2, 2.5, 2.6, 2.7}, 0.5, "getting worse"));
}

TEST_CASE("learning verdict: the last third of the steps against those before decides") {
  CHECK(says({4, 3, 2.5, 2.2, 2.1, 2.0, 1.9}, 3, "far from done"));
  CHECK(says({4, 3, 2.5, 2.2, 2.0, 1.995, 1.99}, 3, "at its best"));
  CHECK(says({4, 3, 2.5, 2.0, 2.1, 2.2, 2.3}, 3, "over-fitting"));
  CHECK(says({4, 3, 2.5, 2.0, 2.0, 2.01, 2.015}, 3, "at its best"));  // by less than a hundredth
}

TEST_CASE("learning verdict: a run twice as long is promised a part of what the last three quarters gained") {
  // 4 at a quarter of the steps, 2 at their end.
  const std::vector<EvalPoint> course{{0, 9}, {10, 4}, {20, 3}, {40, 2}};
  const std::optional<Promise> on = promised_loss(course, false), anew = promised_loss(course, true);
  REQUIRE(on.has_value());
  REQUIRE(anew.has_value());
  CHECK(on->loss < 2);
  CHECK(anew->loss == on->loss);
  CHECK(anew->error > on->error);  // what the fall of the rate brought does not come again
  CHECK(anew->loss + anew->error < 2);
  // A loss that falls with the power 0.2 of the steps goes on to within a tenth of what it gains.
  std::vector<EvalPoint> power;
  for (std::int64_t step = 10; step <= 320; step += 10)
    power.push_back({step, std::pow(static_cast<double>(step), -0.2)});
  const double reached = std::pow(640, -0.2), gained = power.back().loss - reached;
  CHECK(std::abs(promised_loss(power, false)->loss - reached) < gained / 10);
  CHECK(promise_text(power, false, 2).find(" bits per byte, give or take ") != std::string::npos);
  CHECK(promise_text(power, false, std::nan("")).starts_with("a run twice as long promises a loss of 0.2"));
  CHECK(learning_verdict(points({4, 3, 2}), 0.02, "more helps").ends_with("has been read; more helps"));
}

TEST_CASE("learning verdict: nothing is promised of a short course or one that gained nothing") {
  CHECK(!promised_loss({}, false));
  CHECK(!promised_loss({{0, 9}, {40, 2}}, false));
  CHECK(!promised_loss({{0, 9}, {20, 3}, {40, 2}}, false));
  CHECK(!promised_loss({{10, 2}, {20, 2}, {40, 2.1}}, false));
  CHECK(!promised_loss({{10, 4}, {20, 3}, {40, std::nan("")}}, false));
  CHECK(learning_verdict(points({4, 3, 2.5, 2.0, 2.1, 2.2, 2.3}), 3, "more helps").find("more helps") ==
        std::string::npos);
}

TEST_CASE("learning verdict: few evaluations, or none in the last third, do not tell") {
  CHECK(says({}, 2, "too early to say"));
  CHECK(learning_verdict(points({4, 3}), 2).starts_with("too early to say: 1 evaluation after"));
  CHECK(says({4, 3, 2}, 2, "too early to say"));  // the one before the first step does not count
  CHECK(says({4, std::nan(""), 3, 2}, 2, "too early to say"));
  CHECK(
      learning_verdict(points({4, 3, std::nan(""), std::nan("")}), 0.1).starts_with("diverged: at step 20 "));
}

TEST_CASE("learning verdict: epochs are tokens over those of the training split") {
  CHECK(epochs_in(50, 100) == 0.5);
  CHECK(epochs_in(50, 0) == 0);
  CHECK(epochs_text(0.0167) == "0.017 epochs");
  CHECK(epochs_text(1) == "1 epoch");
  CHECK(epochs_text(250.4) == "250 epochs");
}

TEST_CASE("learning verdict: a part of the text that was read is never said to be none of it") {
  for (const double epochs : {0.001, 0.005, 0.0099})
    CHECK(learning_verdict({}, epochs) == "far from done: less than 1 % of the text has been read");
  CHECK(learning_verdict({}, 0.02) == "far from done: 2 % of the text has been read");
}
