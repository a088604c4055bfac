// Arenas in buckets, and buckets in the parts of ranks.
#include "train/step/arena_buckets.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tensor/base/error.h"
#include "tests/support/errors.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

// Parameters of one large and many small ones.
ParamStore store() {
  const auto declare = [](ParamStore& params) {
    static_cast<void>(params.root().param("table", {40, 32}, Init::normal(1)));
    for (int i = 0; i < 30; ++i)
      static_cast<void>(
          params.root().param("p" + std::to_string(i) + ".weight", {1 + 7 * (i % 5), 16}, Init::normal(1)));
  };
  ParamStore counted;
  declare(counted);
  ParamStore params(counted, Dtype::f32, kCpu);
  declare(params);
  return params;
}

}  // namespace

TEST_CASE("arena buckets: they cover the arena in order, and parts of ranks cover each") {
  const ParamStore params = store();
  for (const bool shard : {false, true})
    for (const int ranks : {1, 2, 4, 8})
      for (const std::int64_t bytes : {1, 1000, 1 << 20}) {
        CAPTURE(shard);
        CAPTURE(ranks);
        CAPTURE(bytes);
        const ArenaBuckets buckets(params, ranks, shard, bytes);
        std::int64_t at = 0;
        std::size_t parameter = 0;
        for (const Bucket& bucket : buckets.all()) {
          CHECK(bucket.first == parameter);
          parameter = bucket.last;
          const BinaryTree::Part whole = bucket.tree.whole();
          CHECK(whole.begin == at);
          at = whole.end;
          std::vector<BinaryTree::Part> parts;
          for (int rank = 0; rank < ranks; ++rank) parts.push_back(bucket.tree.shard(rank));
          std::sort(parts.begin(), parts.end(), [](const BinaryTree::Part& a, const BinaryTree::Part& b) {
            return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
          });
          CHECK(parts.front().begin == whole.begin);
          CHECK(parts.back().end == whole.end);
          for (std::size_t i = 1; i < parts.size(); ++i) CHECK(parts[i].begin == parts[i - 1].end);
        }
        CHECK(parameter == params.parameters().size());
        CHECK(at == params.values().elements());
      }
}

TEST_CASE(
    "arena buckets: with shard each parameter has one owner, and ranks hold about as much as each other") {
  const ParamStore params = store();
  const std::int64_t largest = 40 * 32;
  for (const int ranks : {2, 4})
    for (const std::int64_t bytes : {1, 1000, 1 << 20}) {
      CAPTURE(ranks);
      CAPTURE(bytes);
      const ArenaBuckets buckets(params, ranks, true, bytes);
      std::vector<std::int64_t> held;
      for (int rank = 0; rank < ranks; ++rank) {
        const ParameterMask marks = buckets.shard_of(rank);
        std::int64_t elements = 0;
        for (std::size_t i = 0; i < marks.size(); ++i) {
          CHECK(marks[i] == (buckets.owner(i) == rank));
          if (marks[i]) elements += params.parameters()[i].shape.elements();
        }
        held.push_back(elements);
      }
      CHECK(*std::max_element(held.begin(), held.end()) - *std::min_element(held.begin(), held.end()) <=
            largest);
    }
  CHECK(ArenaBuckets(params, 4, false).shard_of(1).empty());
}

TEST_CASE("optimizers: parts of the parameters are updated and saved as all are") {
  for (const char* const name : {"adamw", "adafactor", "muon"}) {
    CAPTURE(name);
    ParamStore whole = store(), parts = store();
    OptimizerOptions options;
    options.optimizer = name;
    options.clip = 0.1;
    const ArenaBuckets buckets(parts, 4, true, 1000);
    const auto all = make_optimizer(whole, options);
    std::vector<std::unique_ptr<Optimizer>> own;
    for (int rank = 0; rank < 4; ++rank)
      own.push_back(make_optimizer(parts, options, buckets.shard_of(rank)));
    for (ParamStore* params : {&whole, &parts}) params->initialize(5);
    for (int step = 0; step < 3; ++step) {
      std::vector<bool> present(whole.parameters().size(), true);
      present[3] = present[7] = false;
      for (ParamStore* params : {&whole, &parts}) {
        params->zero_gradients();
        const Tensor& gradients = params->gradients();
        for (std::int64_t i = 0; i < gradients.elements(); ++i)
          gradients.mutable_data<float>()[i] = static_cast<float>((i * (step + 3)) % 17) * 0.01f - 0.07f;
        params->mark_gradients(present);
        params->zero_missing_gradients();
      }
      const Tensor norm = l2_norm(whole.gradients());
      const detail::AdamScalars scalars = all->scalars(0.01);
      const Tensor numbers = Tensor::empty({static_cast<std::int64_t>(sizeof scalars)}, Dtype::u8);
      std::memcpy(numbers.raw_data(), &scalars, sizeof scalars);
      all->apply_with_norm(numbers, norm);
      all->count_step();
      for (const auto& part : own) {
        part->apply_with_norm(numbers, norm);
        part->count_step();
      }
      CHECK(parts.values().to_vector<float>() == whole.values().to_vector<float>());
    }
    std::map<std::string, Tensor> merged;
    std::int64_t bytes = 0;
    for (const auto& part : own) {
      bytes += part->bytes();
      merged.merge(part->save());
    }
    CHECK(bytes == all->bytes());
    const std::map<std::string, Tensor> expected = all->save();
    REQUIRE(merged.size() == expected.size());
    for (const auto& [key, tensor] : expected) {
      CAPTURE(key);
      if (key != "steps") CHECK(merged.at(key).to_vector<float>() == tensor.to_vector<float>());
    }
    // A part takes its own out of the whole.
    const auto again = make_optimizer(parts, options, buckets.shard_of(2));
    again->load(expected, "whole");
    CHECK(again->steps() == 3);
    for (const auto& [key, tensor] : again->save())
      if (key != "steps") CHECK(tensor.to_vector<float>() == expected.at(key).to_vector<float>());
  }
  ParamStore params = store();
  CHECK(contains(error_of<ValueError>([&] { static_cast<void>(make_optimizer(params, {}, {true})); }),
                 "marks for"));
}
