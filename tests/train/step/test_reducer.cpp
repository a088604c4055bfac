// The sum of a step's gradients over micro-batches and ranks, and what the optimizer gets of it.
#include "train/step/reducer.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "autograd/tape.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "tensor/random/philox.h"
#include "tests/support/threads.h"
#include "tests/train/ranks/thread_ranks.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

constexpr std::int64_t kCount = 40;  // elements of each parameter

// Two parameters; losses read the second one where they are told to.
ParamStore two_parameters() {
  const auto declare = [](ParamStore& params) {
    static_cast<void>(params.root().param("always", {kCount}, Init::normal(1)));
    static_cast<void>(params.root().param("sometimes", {kCount}, Init::normal(1)));
  };
  ParamStore counted;
  declare(counted);
  ParamStore params(counted, Dtype::f32, kCpu);
  declare(params);
  return params;
}

// Keeps what an optimizer sees, and moves nothing.
class Keeper final : public Optimizer {
 public:
  explicit Keeper(ParamStore& params) : Optimizer(params, {}) {}
  detail::AdamScalars scalars(double rate) const override { return {rate, steps() + 1, 0}; }
  Tensor apply(const Tensor&, const Tensor&) override {
    keep();
    return Tensor::full({}, 5, Dtype::f64);
  }
  void apply_with_norm(const Tensor&, const Tensor& norm) override {
    keep();
    given_norm = norm.item();
  }
  void update(const Tensor&, const Tensor&) override {}
  std::vector<Part> parts() const override { return {}; }

  std::vector<float> gradients;
  std::vector<bool> reached;
  std::optional<double> given_norm;

 private:
  void keep() {
    gradients = params_.gradients().to_vector<float>();
    for (const Parameter& parameter : params_.parameters())
      reached.push_back(grad(parameter.value).defined());
  }
};

// The gradient of a micro-batch: numbers of very different sizes, so that the order of a sum shows.
std::vector<float> gradient_of(std::int64_t number) {
  const RandomKey key = random_key(3, "test gradients", static_cast<std::uint64_t>(number));
  std::vector<float> values;
  for (std::uint64_t i = 0; i < kCount; ++i)
    values.push_back(std::ldexp(static_cast<float>(key.word(i) % 4096) - 2048, static_cast<int>(i % 24)));
  return values;
}

// A step whose micro-batches have so many targets. Those with an odd number also read the second parameter.
struct Step {
  std::int64_t micro_batches = 1;
  std::vector<std::int64_t> scored;
};

struct Result {
  std::vector<float> gradients;
  std::vector<bool> reached;
  std::optional<double> given_norm;
  double norm = 0;
  std::vector<double> norms;
};

// Computes a step as one of several ranks, or alone.
Result run(const Step& step, Ranks* ranks = nullptr, bool shard = false) {
  ParamStore params = two_parameters();
  std::optional<ArenaBuckets> buckets;
  if (ranks != nullptr) buckets.emplace(params, ranks->size(), shard, 64);
  Keeper keeper(params);
  GradientReducer reducer(params, step.micro_batches, step.scored, ranks,
                          ranks != nullptr ? &*buckets : nullptr);
  params.zero_gradients();
  const std::int64_t local = step.micro_batches / (ranks != nullptr ? ranks->size() : 1),
                     first = ranks != nullptr ? ranks->rank() * local : 0;
  for (std::int64_t number = 0; number < std::ssize(step.scored); ++number) {
    const std::int64_t in_batch = number % step.micro_batches;
    if (in_batch < first || in_batch >= first + local) continue;
    reducer.begin();
    if (step.scored[static_cast<std::size_t>(number)] > 0) {
      const Tensor g = Tensor::from(gradient_of(number), {kCount});
      Tensor loss = sum(mul(params.parameters()[0].value, g));
      if (number % 2 == 1) loss = loss + sum(mul(params.parameters()[1].value, g));
      backward(loss);
    }
    reducer.end();
  }
  reducer.finish();
  Result result;
  result.norm = reducer.update(keeper, Tensor::zeros({1}, Dtype::u8), {}).item();
  result.gradients = keeper.gradients;
  result.reached = keeper.reached;
  result.given_norm = keeper.given_norm;
  if (reducer.norms().defined()) result.norms = reducer.norms().to_vector<double>();
  return result;
}

// The first parameter's part of the sum by the formula.
std::vector<float> tree_of(const std::vector<std::vector<float>>& g, std::size_t begin, std::size_t end) {
  if (end - begin == 1) return g[begin];
  const std::size_t middle = begin + (end - begin) / 2;
  std::vector<float> left = tree_of(g, begin, middle);
  const std::vector<float> right = tree_of(g, middle, end);
  for (std::size_t i = 0; i < left.size(); ++i) left[i] += right[i];
  return left;
}

std::vector<float> first_of(const Result& result) {
  return {result.gradients.begin(), result.gradients.begin() + kCount};
}

}  // namespace

TEST_CASE("reducer: in a plain run gradients add up by themselves and the optimizer computes the norm") {
  const OneThread one;
  const Result result = run({.micro_batches = 1, .scored = {1, 1}});
  std::vector<float> expected = gradient_of(0);
  const std::vector<float> second = gradient_of(1);
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += second[i];
  CHECK(first_of(result) == expected);
  CHECK_FALSE(result.given_norm.has_value());
  CHECK(result.norm == 5);
  CHECK(result.norms.empty());
}

TEST_CASE("reducer: micro-batches are added as a tree and batches in order") {
  const OneThread one;
  const Result result = run({.micro_batches = 4, .scored = std::vector<std::int64_t>(12, 1)});
  std::vector<std::vector<float>> g;
  for (std::int64_t number = 0; number < 12; ++number) g.push_back(gradient_of(number));
  std::vector<float> expected = tree_of(g, 0, 4), one_by_one = g[0];
  for (const std::size_t batch : {std::size_t{4}, std::size_t{8}}) {
    const std::vector<float> next = tree_of(g, batch, batch + 4);
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += next[i];
  }
  for (std::size_t k = 1; k < g.size(); ++k)
    for (std::size_t i = 0; i < one_by_one.size(); ++i) one_by_one[i] += g[k][i];
  CHECK(first_of(result) == expected);
  CHECK(result.reached == std::vector<bool>{true, true});
  CHECK(result.given_norm == result.norm);
  REQUIRE(result.norms.size() == 2);
  CHECK(std::abs(result.norm - std::hypot(result.norms[0], result.norms[1])) <= 1e-14 * result.norm);
}

TEST_CASE("reducer: ranks get the bits of one process, also where some have nothing to add") {
  const OneThread one;
  for (const std::vector<std::int64_t>& scored : {std::vector<std::int64_t>{1, 1, 1, 1, 1, 1, 1, 1},
                                                  {0, 1, 1, 0, 0, 0, 1, 1},
                                                  {1, 0, 0, 0, 0, 0, 0, 0},
                                                  {0, 0, 0, 0, 1, 1, 1, 0},
                                                  {1, 0, 1, 0, 0, 0, 1, 0}}) {
    const Step step{.micro_batches = 4, .scored = scored};
    const Result alone = run(step);
    for (const int size : {1, 2, 4}) {
      CAPTURE(size);
      std::vector<Result> results(static_cast<std::size_t>(size));
      on_ranks(size, [&](ThreadRanks& ranks) {
        results[static_cast<std::size_t>(ranks.rank())] = run(step, &ranks);
      });
      for (const Result& result : results) {
        CHECK(result.gradients == alone.gradients);
        CHECK(result.reached == alone.reached);
        CHECK(result.norms == alone.norms);
        CHECK(result.norm == alone.norm);
      }
    }
  }
}

TEST_CASE("reducer: ranks that hold a part of the optimizer's state get the norms of all parameters") {
  const OneThread one;
  const Step step{.micro_batches = 4, .scored = {1, 1, 1, 1}};
  const Result alone = run(step);
  std::vector<Result> results(2);
  on_ranks(2, [&](ThreadRanks& ranks) {
    results[static_cast<std::size_t>(ranks.rank())] = run(step, &ranks, true);
  });
  for (const Result& result : results) {
    CHECK(result.norms == alone.norms);
    CHECK(result.norm == alone.norm);
  }
}

TEST_CASE("reducer: a parameter that no micro-batch reached has no gradient") {
  const OneThread one;
  const Result result = run({.micro_batches = 2, .scored = {1, 0}});
  CHECK(first_of(result) == gradient_of(0));
  CHECK(result.reached == std::vector<bool>{true, false});
}
