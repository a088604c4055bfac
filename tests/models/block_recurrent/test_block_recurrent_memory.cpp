// The external memory of the Memorizing Transformer baseline: what it holds, what is taken from it, and how.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "models/block_recurrent/memory.h"
#include "tensor/base/error.h"
#include "tests/models/block_recurrent/block_recurrent_case.h"
#include "tests/models/plain_rows.h"

namespace {

using namespace eddy;
using namespace eddy::test;

Row random_numbers(std::int64_t n, const std::string& name) {
  return random_row(n, name, 2);
}

// One head of width 2, one sequence: a memory of `entries`, queries, and what the module makes of them.
struct Bench {
  ModelConfig config;
  Row keys, values;
  std::int64_t written;

  Bench(std::int64_t size, std::int64_t topk, const std::string& search, std::int64_t count)
      : keys(random_numbers(2 * size, "keys")), values(random_numbers(2 * size, "values")), written(count) {
    config.heads = 1;
    config.head_dim = 2;
    config.memory_size = size;
    config.memory_topk = topk;
    config.memory_search = search;
    for (std::int64_t i = 2 * std::min(count, size); i < 2 * size; ++i)
      keys[static_cast<std::size_t>(i)] = values[static_cast<std::size_t>(i)] = 0;
  }

  // y_memory of queries [time, 2] at scale s: the gate is closed for local attention by a large bias.
  Row found(const Row& q, double s) const {
    ParamStore counted;
    const ExternalMemory counting(counted.root(), part_of<block_recurrent::Config>(config));
    ParamStore store(counted, Dtype::f64, kCpu);
    const ExternalMemory memory(store.root(), part_of<block_recurrent::Config>(config));
    raw::fill(detach(store.get("gate_bias").value), 40);
    const auto time = static_cast<std::int64_t>(q.size()) / 2;
    const Shape held{1, config.memory_size, 1, 2}, shape{1, time, 1, 2};
    const MemoryEntries entries{Tensor::from(keys, held), Tensor::from(values, held),
                                Tensor::from(std::vector<std::int64_t>{written}, {1})};
    return numbers(memory.mix(Tensor::zeros(shape, Dtype::f64), Tensor::from(q, shape), entries,
                              Tensor::full({1}, s, Dtype::f64), false));
  }

  double score(const Row& q, std::size_t query, std::size_t entry) const {
    return q[2 * query] * keys[2 * entry] + q[2 * query + 1] * keys[2 * entry + 1];
  }

  // Attention of one query over the given entries; `blank` more have logit 0 and value 0.
  Row attended(const Row& q, std::size_t query, const std::vector<std::size_t>& entries, std::int64_t blank,
               double s) const {
    double total = static_cast<double>(blank);
    Row y(2);
    for (const std::size_t entry : entries) {
      const double weight = std::exp(s * score(q, query, entry));
      total += weight;
      for (std::size_t i = 0; i < 2; ++i) y[i] += weight * values[2 * entry + i];
    }
    for (double& value : y) value /= total;
    return y;
  }
};

void check_row(const Row& found, std::size_t query, const Row& expected) {
  for (std::size_t i = 0; i < 2; ++i) CHECK(std::abs(found[2 * query + i] - expected[i]) <= 1e-12);
}

}  // namespace

TEST_CASE("memorizing: the search by buckets takes the best of every bucket and counts empty ones as zeros") {
  const Row q = random_numbers(14, "q");
  for (const std::int64_t written : {0, 2, 5, 11, 30}) {
    CAPTURE(written);
    const Bench bench(11, 4, "bucket", written);
    const Row found = bench.found(q, 1.7);
    const auto filled = static_cast<std::size_t>(std::min<std::int64_t>(written, 11));
    for (std::size_t query = 0; query < 7; ++query) {
      std::vector<std::size_t> best;
      for (std::size_t bucket = 0; bucket < 4 && bucket < filled; ++bucket) {
        std::size_t top = bucket;
        for (std::size_t m = bucket; m < filled; m += 4)
          if (bench.score(q, query, m) > bench.score(q, query, top)) top = m;
        best.push_back(top);
      }
      check_row(found, query,
                bench.attended(q, query, best, 4 - static_cast<std::int64_t>(best.size()), 1.7));
    }
  }
}

TEST_CASE("memorizing: the exact search takes the best of all") {
  const Row q = random_numbers(14, "q");
  for (const std::int64_t written : {2, 11}) {
    CAPTURE(written);
    const Bench bench(11, 4, "exact", written);
    const Row found = bench.found(q, -0.6);
    for (std::size_t query = 0; query < 7; ++query) {
      std::vector<std::size_t> order;
      for (std::size_t m = 0; m < static_cast<std::size_t>(written); ++m) order.push_back(m);
      std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        return bench.score(q, query, a) > bench.score(q, query, b);
      });
      order.resize(std::min<std::size_t>(order.size(), 4));
      check_row(found, query,
                bench.attended(q, query, order, 4 - static_cast<std::int64_t>(order.size()), -0.6));
    }
  }
}

TEST_CASE("memorizing: equal entries of a bucket are averaged") {
  Bench bench(6, 2, "bucket", 6);
  bench.keys = {1, 0, 0, 1, 1, 0, 0, 1, 0.5, 0, 0, -1};  // buckets {0, 2, 4} and {1, 3, 5}
  const Row q{1, 1};
  Bench single = bench;
  for (std::size_t i = 0; i < 2; ++i) {
    single.values[i] = (bench.values[i] + bench.values[4 + i]) / 2;
    single.values[2 + i] = (bench.values[2 + i] + bench.values[6 + i]) / 2;
  }
  check_row(bench.found(q, 2), 0, single.attended(q, 0, {0, 1}, 0, 2));
}

TEST_CASE("memorizing: an entry is empty when its key is zero whatever the count says") {
  const Row q = random_numbers(14, "q");
  for (const char* search : {"bucket", "exact"}) {
    Bench bench(11, 4, search, 11);
    for (std::size_t i = 4; i < 8; ++i) bench.keys[i] = bench.values[i] = 0;
    const Row found = bench.found(q, 1.7);
    for (const std::int64_t written : {0, 5, 100}) {
      CAPTURE(written);
      bench.written = written;
      CHECK(bench.found(q, 1.7) == found);
    }
    double most = 0;
    for (const double value : found) most = std::max(most, std::abs(value));
    CHECK(most > 0.01);
  }
}

TEST_CASE("memorizing: the ring holds the last entries in their slots and counts each sequence for itself") {
  const ModelConfig config = block_recurrent_config("memorizing");  // 8 entries, segments of 4
  const auto model = randomised(config);
  const Tensor tokens = random_ids(2, 20, 13, 1);
  const Tensor start = flags({0, 0, 0, 0, 0, 0, 0, 0, 1, 0}, 2);  // row 1 begins anew with its fourth segment
  std::vector<Tensor> keys;
  State state;
  for (std::int64_t s = 0; s < 5; ++s) {
    const Tensor flag = flags({start.to_vector<std::int64_t>()[static_cast<std::size_t>(s)],
                               start.to_vector<std::int64_t>()[static_cast<std::size_t>(5 + s)]},
                              2);
    state = evaluate(*model, part(tokens, 4 * s, 4), state, flag).state;
    keys.push_back(state.get("layers.1.k"));  // a window is a segment: the cache is what was added
  }
  CHECK(state.get("layers.1.mem_count").to_vector<std::int64_t>() == std::vector<std::int64_t>{20, 8});
  const auto slots = [&](std::int64_t row, std::int64_t first) {
    return raw::narrow(raw::narrow(state.get("layers.1.mem_k"), 0, row, 1), 1, first, 4);
  };
  const auto segment = [&](std::size_t s, std::int64_t row) { return raw::narrow(keys[s], 0, row, 1); };
  CHECK(same_bits(slots(0, 0), segment(4, 0)));
  CHECK(same_bits(slots(0, 4), segment(3, 0)));
  CHECK(same_bits(slots(1, 0), segment(3, 1)));
  CHECK(same_bits(slots(1, 4), segment(4, 1)));
}

TEST_CASE("memorizing: a memory of all entries is searched alike by both searches") {
  ModelConfig config = block_recurrent_config("memorizing");
  config.memory_topk = config.memory_size;
  const Tensor tokens = random_ids(2, 20, 13, 1);
  const Tensor bucket = evaluate(*randomised(config), tokens).logits;
  config.memory_search = "exact";
  check_close("logits", evaluate(*randomised(config), tokens).logits, bucket, 1e-11);
}

TEST_CASE("memorizing: the memory reaches further back than the cache") {
  ModelConfig config = block_recurrent_config("memorizing");
  const Tensor tokens = random_ids(1, 12, 12, 1);
  const Tensor other = raw::copy(tokens);
  raw::fill(raw::narrow(other, 1, 1, 1), 12);
  config.layers = 1;
  config.memory_layers = {0};
  config.memory_topk = config.memory_size;
  const auto model = randomised(config);
  const auto last = [&](const Tensor& ids) { return raw::narrow(evaluate(*model, ids).logits, 1, 8, 4); };
  CHECK(distance(last(other), last(tokens)).error > 1e-4);
}

TEST_CASE("memorizing: without its bias the local attention of the memory layer has no distances") {
  ModelConfig config = block_recurrent_config("memorizing");
  config.memory_bias = false;
  const ParamStore counted = count_parameters(config);
  CHECK(counted.find("layers.1.attn.rel_bias") == nullptr);
  CHECK(counted.find("layers.0.attn.rel_bias") != nullptr);
}

TEST_CASE("memorizing: the counts of a state may be i32") {
  const auto model = randomised(block_recurrent_config("memorizing"));
  const Tensor tokens = random_ids(2, 4, 13, 1);
  const State state = evaluate(*model, tokens).state;
  State narrow = copy_of(state);
  narrow.set("layers.1.mem_count", raw::cast(state.get("layers.1.mem_count"), Dtype::i32));
  const ForwardOutput mine = evaluate(*model, tokens, narrow), expected = evaluate(*model, tokens, state);
  CHECK(same_bits(mine.logits, expected.logits));
  CHECK(mine.state.get("layers.1.mem_count").to_vector<std::int64_t>() == std::vector<std::int64_t>{8, 8});
}

TEST_CASE("memorizing: a memory of other sizes or counts is refused by name") {
  const auto model = randomised(block_recurrent_config("memorizing"));
  const Tensor tokens = random_ids(2, 4, 13, 1);
  const State state = evaluate(*model, tokens).state;
  State other = copy_of(state);
  other.set("layers.1.mem_v", Tensor::zeros({2, 4, 2, 6}, Dtype::f64));
  CHECK(contains(error_of<ShapeError>([&] { static_cast<void>(evaluate(*model, tokens, other)); }),
                 "layers.1.mem_v"));
  other = copy_of(state);
  other.set("layers.1.mem_count", Tensor::from(std::vector<std::int64_t>{1}, {1}));
  CHECK(contains(error_of<ShapeError>([&] { static_cast<void>(evaluate(*model, tokens, other)); }),
                 "mem_count"));
  other.set("layers.1.mem_count", Tensor::from(std::vector<std::int64_t>{4, -4}, {2}));
  CHECK(contains(error_of<ValueError>([&] { static_cast<void>(evaluate(*model, tokens, other)); }), "-4"));
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  other.set("layers.1.mem_count", Tensor::from(std::vector<std::int64_t>{4, most}, {2}));
  CHECK(contains(error_of<ValueError>([&] { static_cast<void>(evaluate(*model, tokens, other)); }),
                 "9223372036854775807"));
}
