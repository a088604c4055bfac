// The probabilities that attention names: in every form they mix the values to what the op returns.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "autograd/named_values.h"
#include "ops/attention/attention.h"
#include "ops/product/matmul.h"
#include "ops/views/views.h"
#include "tests/support/spec_check.h"
#include "tests/support/tensors.h"

using namespace eddy;
using namespace eddy::test;
using spec_check::normal;

namespace {

constexpr std::int64_t kBatch = 2, kTime = 5, kPast = 3, kHeads = 2, kSize = 4, kDim = kHeads * kSize;

// What `run` returns and the probabilities that it names.
std::pair<Tensor, Tensor> looked_at(const std::function<Tensor()>& run) {
  Tensor y;
  const NamedValues values = capture_values({"probabilities"}, [&] { y = run(); });
  REQUIRE(values.at("probabilities").size() == 1);
  return {y, values.at("probabilities")[0]};
}

// The probabilities times the values [batch, keys, heads, size] of all keys, compared with the result.
void check_mix(const std::string& form, const std::pair<Tensor, Tensor>& seen, const Tensor& values) {
  CAPTURE(form);
  const std::vector<double> wanted = numbers(seen.first),
                            got = numbers(
                                contiguous(transpose(matmul(seen.second, transpose(values, 1, 2)), 1, 2)));
  REQUIRE(got.size() == wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i] == doctest::Approx(wanted[i]).epsilon(1e-12));
}

}  // namespace

TEST_CASE("the probabilities that every form of attention names mix its values to its result") {
  const auto random = [](const char* name, const Shape& shape) { return normal(shape, name, Dtype::f64); };
  const Shape rows{kBatch, kTime, kHeads, kSize}, past{kBatch, kPast, kHeads, kSize};
  const Tensor q = random("q", rows), k = random("k", rows), v = random("v", rows);
  AttentionOptions options;
  options.causal = true;
  check_mix("plain", looked_at([&] { return attention_bthd(q, k, v, options); }), v);
  check_mix("composed", looked_at([&] { return detail::attention_bthd_composed(q, k, v, options); }), v);

  options.past_keys = random("past k", past);
  options.past_values = random("past v", past);
  options.head_scale = random("scale", {kHeads});
  options.bias = random("bias", {kHeads, kTime + kPast});
  options.positions = random("positions", {kTime + kPast, kSize});
  options.unit_eps = 1e-6;
  options.band = {0, 4};
  check_mix("all options", looked_at([&] { return attention_bthd(q, k, v, options); }),
            concat({options.past_values, v}, 1));

  const Tensor qkv = random("qkv", {kBatch, kTime, 3 * kDim}),
               before = random("before", {kBatch, kPast, 2 * kDim});
  const auto by_head = [](const Tensor& x, std::int64_t column) {
    return reshape(narrow(x, 2, column, kDim), {kBatch, x.dim(1), kHeads, kSize});
  };
  AttentionOptions causal;
  causal.causal = true;
  check_mix("packed", looked_at([&] { return attention_packed(qkv, kHeads, causal, before); }),
            concat({by_head(before, kDim), by_head(qkv, 2 * kDim)}, 1));
  const Tensor own = narrow(qkv, 2, kDim, 2 * kDim), queries = narrow(qkv, 2, 0, kDim);
  check_mix("packed keys",
            looked_at([&] { return attention_packed_keys(queries, before, own, kHeads, causal); }),
            concat({by_head(before, kDim), by_head(qkv, 2 * kDim)}, 1));
}

TEST_CASE("window attention names the probabilities of its own kernel") {
  constexpr std::int64_t kMany = 16;  // as many sequences as its lanes hold
  const Tensor q = normal({kMany, 2, kDim}, "q", Dtype::f64),
               own = normal({kMany, 3, 2 * kDim}, "own", Dtype::f64),
               past = normal({kMany, kPast, 2 * kDim}, "past", Dtype::f64);
  const auto values = [](const Tensor& x) {
    return reshape(narrow(x, 2, kDim, kDim), {kMany, x.dim(1), kHeads, kSize});
  };
  AttentionOptions options;
  options.causal = true;
  check_mix("window", looked_at([&] { return attention_packed_keys(q, past, own, kHeads, options); }),
            concat({values(past), values(own)}, 1));
}
