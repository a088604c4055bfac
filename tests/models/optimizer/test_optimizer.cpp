// Optimizers behind one interface: steps against plain loops, checkpoints, and the schedules' numbers.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "models/eddy/registry.h"
#include "models/module.h"
#include "models/optimizer/adam.h"
#include "models/optimizer/optimizer.h"
#include "models/params.h"
#include "ops/core/op_spec.h"
#include "ops/loss/cross_entropy.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "train/config/run_config.h"

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

namespace {

using Doubles = std::vector<double>;

// A large matrix, a small one and a vector.
ParamStore make_store() {
  const auto declare = [](ParamStore& store) {
    const ParamScope root = store.root();
    root.param("large.weight", {140, 129}, Init::normal(0.1));
    root.param("small.weight", {8, 5}, Init::normal(0.1));
    root.param("norm.weight", {7}, Init::ones());
  };
  ParamStore counted;
  declare(counted);
  ParamStore store(counted, Dtype::f64, kCpu);
  declare(store);
  store.initialize(1);
  return store;
}

// Gradients by backward, as in training: of the sum of parameters times fixed numbers.
void set_gradients(ParamStore& store, int step, double first = 1) {
  store.zero_gradients();
  for (const Parameter& parameter : store.parameters()) {
    const Tensor g = sample_normal(parameter.shape, (parameter.name + std::to_string(step)).c_str());
    raw::fill(raw::narrow(raw::reshape(g, {g.elements()}), 0, 0, 1), first);
    backward(sum(mul(parameter.value, g)));
  }
}

TrainConfig config_of(const std::string& optimizer) {
  TrainConfig config;
  config.optimizer = optimizer;
  config.clip = 0;
  return config;
}

std::map<std::string, Tensor> copies(const std::map<std::string, Tensor>& tensors) {
  std::map<std::string, Tensor> result;
  for (const auto& [name, tensor] : tensors) result.emplace(name, raw::copy(tensor));
  return result;
}

}  // namespace

TEST_CASE("make_optimizer makes each by its name and refuses others") {
  ParamStore store = make_store();
  for (const std::string& name : value_names<OptimizerName>())
    CHECK(make_optimizer(store, config_of(name))->steps() == 0);
  CHECK_THROWS_AS(make_optimizer(store, config_of("sdg")), ConfigError);
}

namespace {

struct Product {
  explicit Product(const ParamScope& scope) : weight(scope.param("weight", {2, 3}, Init::normal(1))) {}
  Tensor operator()(const Tensor& x) const { return x * weight; }
  Tensor weight;
};

}  // namespace

TEST_CASE("Adam trains a module and a store of the same parameters to the same bits") {
  auto net = make_module<Product>(3);
  ParamStore counted;
  static_cast<void>(Product(counted.root()));
  ParamStore store(counted, Dtype::f32, kCpu);
  const Product in_store(store.root());
  store.initialize(3);
  Adam of_net(net.params(), {.learning_rate = 0.1}), of_store(store);
  const Tensor x = Tensor::full({2, 3}, 0.5);
  for (int step = 0; step < 3; ++step) {
    of_net.zero_gradients();
    of_store.zero_gradients();
    backward(sum(net(x)));
    backward(sum(in_store(x)));
    CHECK(of_net.step() == of_store.step(0.1));
  }
  CHECK(of_net.steps() == 3);
  CHECK(net->weight.to_vector<float>() == in_store.weight.to_vector<float>());
}

TEST_CASE("Adam refuses constants out of their range and the names of other optimizers") {
  ParamStore store = make_store();
  CHECK_THROWS_AS(Adam(store, {.beta2 = 1}), ConfigError);
  CHECK_THROWS_AS(Adam(store, {.eps = 0}), ConfigError);
  CHECK_THROWS_AS(Adam(store, {.clip = -1}), ConfigError);
  CHECK_THROWS_AS(Adam(store, {.optimizer = "adafactor"}), ConfigError);
  CHECK_THROWS_AS(Adam(store, {.learning_rate = -1}).step(), ValueError);
}

TEST_CASE("sgd and lion step as plain loops do, and leave parameters without a gradient alone") {
  for (const char* name : {"sgd", "lion"}) {
    CAPTURE(name);
    ParamStore store = make_store();
    TrainConfig config = config_of(name);
    config.beta2 = 0.99;
    const auto optimizer = make_optimizer(store, config);
    const Parameter &weight = store.get("small.weight"), &vector = store.get("norm.weight");
    Doubles p = weight.value.to_vector<double>(), m(p.size(), 0.0), q = vector.value.to_vector<double>();
    const Doubles large = store.get("large.weight").value.to_vector<double>();
    for (int step = 0; step < 3; ++step) {
      optimizer->zero_gradients();
      const Tensor g = sample_normal(weight.shape, ("g" + std::to_string(step)).c_str());
      backward(sum(mul(weight.value, g)) + sum(vector.value));
      optimizer->step(0.1);
      const Doubles gradient = g.to_vector<double>();
      const bool sgd = config.optimizer == "sgd";
      for (std::size_t i = 0; i < p.size(); ++i) {
        const double mixed = 0.9 * m[i] + 0.1 * gradient[i];
        m[i] = sgd ? 0.9 * m[i] + gradient[i] : 0.99 * m[i] + 0.01 * gradient[i];
        p[i] = p[i] * (1 - 0.1 * 0.1) - 0.1 * (sgd ? m[i] : mixed > 0 ? 1 : -1);
      }
      // The gradient of a vector is 1, and vectors do not decay: the momentum of sgd is 1, 1.9, 2.71.
      for (double& value : q) value -= 0.1 * (sgd ? (1 - std::pow(0.9, step + 1)) / 0.1 : 1);
    }
    for (std::size_t i = 0; i < p.size(); ++i)
      CHECK(weight.value.to_vector<double>()[i] == doctest::Approx(p[i]).epsilon(1e-12));
    for (std::size_t i = 0; i < q.size(); ++i)
      CHECK(vector.value.to_vector<double>()[i] == doctest::Approx(q[i]).epsilon(1e-12));
    CHECK(store.get("large.weight").value.to_vector<double>() == large);
    CHECK(optimizer->save().count("m.small.weight") == 1);
    CHECK(optimizer->save().count("v.small.weight") == 0);
    config.beta1 = 1;
    CHECK_THROWS_AS(make_optimizer(store, config), ConfigError);
  }
}

TEST_CASE("an optimizer that was saved and loaded goes on to the same bits") {
  for (const std::string& name : value_names<OptimizerName>()) {
    CAPTURE(name);
    ParamStore store = make_store();
    const auto optimizer = make_optimizer(store, config_of(name));
    for (int step = 0; step < 3; ++step) {
      set_gradients(store, step);
      optimizer->step(0.01);
    }
    const std::map<std::string, Tensor> saved = copies(optimizer->save());
    ParamStore other = make_store();
    raw::copy_into(other.values(), store.values());
    const auto resumed = make_optimizer(other, config_of(name));
    resumed->load(saved, "memory");
    CHECK(resumed->steps() == 3);
    set_gradients(store, 3);
    set_gradients(other, 3);
    optimizer->step(0.01);
    resumed->step(0.01);
    CHECK(store.values().to_vector<double>() == other.values().to_vector<double>());
  }
}

TEST_CASE(
    "a checkpoint of Adam keeps its names and one of Adafactor holds rows and columns of large matrices") {
  ParamStore store = make_store();
  const std::map<std::string, Tensor> adam = make_optimizer(store, config_of("adamw"))->save();
  CHECK(adam.size() == 7);
  for (const char* name : {"steps", "m.large.weight", "v.large.weight", "m.norm.weight", "v.norm.weight"})
    CHECK(adam.count(name) == 1);
  const std::map<std::string, Tensor> factored = make_optimizer(store, config_of("adafactor"))->save();
  CHECK(factored.size() == 8);
  CHECK(factored.at("r.large.weight").shape() == Shape{140});
  CHECK(factored.at("c.large.weight").shape() == Shape{129});
  CHECK(factored.at("v.small.weight").shape() == Shape{8, 5});
  CHECK(factored.at("m.large.weight").shape() == Shape{140, 129});
}

TEST_CASE("optimizers with masks are groups: each steps as one of all parameters at its rate would") {
  const auto stepped = [](double large_rate, double other_rate, bool grouped) {
    ParamStore store = make_store();
    OptimizerOptions options{.learning_rate = large_rate, .clip = 0.5};
    ParameterMask group =
        parameters_where(store, [](const Parameter& p) { return p.name == "large.weight"; });
    if (!grouped) group.assign(group.size(), true);
    const auto large = make_optimizer(store, options, group);
    options.learning_rate = other_rate;
    group.flip();
    const auto other = make_optimizer(store, options, group);
    for (int step = 0; step < 3; ++step) {
      set_gradients(store, step);
      const double norm = large->step();
      if (grouped) CHECK(other->step() == norm);
    }
    return store;
  };
  const ParamStore groups = stepped(0.01, 0.002, true), fast = stepped(0.01, 0, false),
                   slow = stepped(0.002, 0, false);
  for (std::size_t i = 0; i < groups.parameters().size(); ++i) {
    const ParamStore& same = i == 0 ? fast : slow;
    CAPTURE(groups.parameters()[i].name);
    CHECK(groups.parameters()[i].value.to_vector<double>() == same.parameters()[i].value.to_vector<double>());
  }
}

TEST_CASE("an optimizer that holds no parameter refuses a step, and names those that there are") {
  ParamStore store = make_store(), none(ParamStore(), Dtype::f64, kCpu);
  const ParameterMask empty =
      parameters_where(store, [](const Parameter& p) { return p.name == "lagre.weight"; });
  set_gradients(store, 0);
  for (const char* const name : {"adamw", "adafactor", "sgd", "muon"}) {
    CAPTURE(name);
    const auto optimizer = make_optimizer(store, config_of(name), empty);
    const std::string told = error_of<ValueError>([&] { optimizer->step(); });
    CHECK_MESSAGE(contains(told, "its mask marks no parameter (parameters: large.weight, "), told);
    CHECK(optimizer->steps() == 0);
  }
  Adam adam(none);
  CHECK(contains(error_of<ValueError>([&] { adam.step(); }), "there are no parameters"));
}

TEST_CASE("loading the state of another optimizer names what is missing and changes nothing") {
  ParamStore store = make_store();
  const auto adam = make_optimizer(store, config_of("adam"));
  const auto adafactor = make_optimizer(store, config_of("adafactor"));
  set_gradients(store, 0);
  adafactor->step(0.1);
  const std::map<std::string, Tensor> before = copies(adafactor->save());
  try {
    adafactor->load(adam->save(), "old.safetensors");
    FAIL("no error");
  } catch (const FormatError& error) {
    const std::string text = error.what();
    CHECK(text.find("r.large.weight in old.safetensors is missing") != std::string::npos);
  }
  for (const auto& [name, tensor] : adafactor->save()) {
    if (name == "steps") continue;
    CHECK(tensor.to_vector<double>() == before.at(name).to_vector<double>());
  }
  CHECK(adafactor->steps() == 1);
}

TEST_CASE("loading the state of an optimizer that keeps more names what is left over and changes nothing") {
  ParamStore store = make_store();
  const auto adam = make_optimizer(store, config_of("adamw"));
  const auto sgd = make_optimizer(store, config_of("sgd"));
  set_gradients(store, 0);
  adam->step(0.1);
  const std::string told = error_of<FormatError>([&] { sgd->load(adam->save(), "old.safetensors"); });
  CHECK_MESSAGE(contains(told, "v.large.weight in old.safetensors is nothing that this optimizer keeps"),
                told);
  CHECK(sgd->steps() == 0);
}

TEST_CASE("a gradient that is not finite is no step for any optimizer") {
  for (const std::string& name : value_names<OptimizerName>()) {
    ParamStore store = make_store();
    const auto optimizer = make_optimizer(store, config_of(name));
    set_gradients(store, 0, std::numeric_limits<double>::quiet_NaN());
    const Doubles before = store.values().to_vector<double>();
    CHECK(!std::isfinite(optimizer->step(0.1)));
    CHECK(optimizer->steps() == 0);
    CHECK(store.values().to_vector<double>() == before);
  }
}

TEST_CASE("AdafactorOptimizer counts its steps from 0 and treats each parameter by itself") {
  ParamStore store = make_store();
  const auto optimizer = make_optimizer(store, config_of("adafactor"));
  const Parameter& small = store.get("small.weight");
  const std::int64_t n = small.shape.elements();
  const auto part = [&](const Tensor& arena) {
    return raw::copy(raw::narrow(arena, 0, small.offset, n)).to_vector<double>();
  };
  Doubles w = part(store.values()), v(w.size()), m(w.size());
  for (int t = 0; t < 4; ++t) {
    set_gradients(store, t);
    const Doubles g = part(store.gradients());
    optimizer->step(0.05);
    const double beta2 = 1 - std::pow(t + 1.0, -0.8);
    double size = 0, length = 0;
    for (std::size_t i = 0; i < w.size(); ++i) {
      v[i] = beta2 * v[i] + (1 - beta2) * (g[i] * g[i] + 1e-30);
      size += w[i] * w[i] / static_cast<double>(n);
      length += g[i] * g[i] / v[i] / static_cast<double>(n);
    }
    const double rate = 0.05 * std::max(std::sqrt(size), 1e-3) / std::max(1.0, std::sqrt(length));
    for (std::size_t i = 0; i < w.size(); ++i) {
      m[i] = 0.9 * m[i] + 0.1 * rate * g[i] / std::sqrt(v[i]);
      w[i] -= m[i];
    }
    const Doubles got = part(store.values());
    for (std::size_t i = 0; i < w.size(); ++i) CHECK(std::abs(got[i] - w[i]) <= 1e-14);
  }
}

TEST_CASE("Adam leaves a parameter that no gradient reached whole: no decay and no move of its moments") {
  // Two stores, stepped together; in one of them small.weight takes part in the second and fourth step only.
  const auto reaches = [](ParamStore& store, int step, bool small) {
    store.zero_gradients();
    for (const Parameter& parameter : store.parameters()) {
      if (parameter.name == "small.weight" && !small) continue;
      backward(sum(mul(parameter.value,
                       sample_normal(parameter.shape, (parameter.name + std::to_string(step)).c_str()))));
    }
  };
  const auto of = [](const ParamStore& store, const Tensor& arena, const char* name) {
    const Parameter& p = store.get(name);
    return raw::copy(raw::narrow(arena, 0, p.offset, p.shape.elements())).to_vector<double>();
  };
  for (const char* name : {"adamw", "adam"}) {
    CAPTURE(name);
    ParamStore store = make_store(), whole = make_store();
    const auto optimizer = make_optimizer(store, config_of(name));
    const auto reference = make_optimizer(whole, config_of(name));
    for (int step = 0; step < 5; ++step) {
      CAPTURE(step);
      const bool small = step == 1 || step == 3;
      const Doubles before = of(store, store.values(), "small.weight");
      const std::map<std::string, Tensor> moments = copies(optimizer->save());
      reaches(store, step, small);
      reaches(whole, step, true);
      optimizer->step(0.01);
      reference->step(0.01);
      CHECK((of(store, store.values(), "small.weight") == before) == !small);
      for (const char* moment : {"m.small.weight", "v.small.weight"})
        CHECK((optimizer->save().at(moment).to_vector<double>() == moments.at(moment).to_vector<double>()) ==
              !small);
      for (const char* other : {"large.weight", "norm.weight"})
        CHECK(of(store, store.values(), other) == of(whole, whole.values(), other));
    }
    store.zero_gradients();  // nothing was reached at all
    const Doubles before = store.values().to_vector<double>();
    optimizer->step(0.01);
    CHECK(store.values().to_vector<double>() == before);
  }
}

TEST_CASE("AdamW leaves the query matrix of a memory as it began: it has no influence") {
  ModelConfig config;
  config.family = "blockwise_recurrent";
  config.model = "memory_llama";
  config.vocab = 7;
  config.dim = 8;
  config.heads = 2;
  config.layers = 1;
  config.chunk = 2;
  config.memory_query = true;
  const auto model = make_model(config, Dtype::f64);
  model->params().initialize(1);
  const auto value = [&](const char* name) { return model->params().get(name).value.to_vector<double>(); };
  const Doubles query = value("layers.0.memory.wq.weight"), key = value("layers.0.memory.wk.weight");
  const auto optimizer = make_optimizer(model->params(), config_of("adamw"));
  ForwardInput input;
  input.tokens = Tensor::from(std::vector<std::int32_t>{1, 2, 3, 4}, {1, 4});
  backward(cross_entropy(model->forward(input).logits, input.tokens, -1));
  optimizer->step(0.1);
  CHECK(value("layers.0.memory.wq.weight") == query);
  CHECK(value("layers.0.memory.wk.weight") != key);
}

TEST_CASE("Adam moves a parameter whose gradient is zeros: it decays") {
  ParamStore store = make_store();
  TrainConfig config = config_of("adamw");
  config.weight_decay = 0.5;
  const auto optimizer = make_optimizer(store, config);
  const Doubles before = store.values().to_vector<double>();
  store.zero_gradients();
  for (const Parameter& parameter : store.parameters())
    backward(sum(mul(parameter.value, Tensor::zeros(parameter.shape, Dtype::f64))));
  optimizer->step(0.1);
  const Doubles after = store.values().to_vector<double>();
  const Parameter& norm = store.get("norm.weight");
  for (std::size_t i = 0; i < after.size(); ++i) {
    const double kept = static_cast<std::int64_t>(i) < norm.offset ? 1 - 0.1 * 0.5 : 1.0;
    CHECK(std::abs(after[i] - before[i] * kept) <= 1e-15);
  }
}

TEST_CASE("the cosine schedule counted from 0 has the published fixtures") {
  TrainConfig config;
  config.learning_rate = 5e-4;
  config.warmup = 1000;
  config.warmup_from = 0;
  config.steps = 100'000;
  config.schedule = "cosine";
  CHECK(learning_rate_at(config, config.learning_rate, 0) == 0);
  CHECK(std::abs(learning_rate_at(config, config.learning_rate, 500) - 2.5e-4) <= 1e-18);
  CHECK(std::abs(learning_rate_at(config, config.learning_rate, 1000) - 5e-4) <= 1e-18);
  CHECK(std::abs(learning_rate_at(config, config.learning_rate, 50'500) - 2.5e-4) <= 1e-18);
  CHECK(std::abs(learning_rate_at(config, config.learning_rate, 100'000)) <= 1e-18);
}

TEST_CASE("a warm-up counted from 1 gives update k the share k of W") {
  TrainConfig config;
  config.learning_rate = 1e-4;
  config.warmup = 1000;
  CHECK(config.warmup_from == 1);
  CHECK(std::abs(learning_rate_at(config, config.learning_rate, 0) - 1e-7) <= 1e-20);
  CHECK(std::abs(learning_rate_at(config, config.learning_rate, 499) - 5e-5) <= 1e-18);
  CHECK(learning_rate_at(config, config.learning_rate, 999) == 1e-4);
  CHECK(learning_rate_at(config, config.learning_rate, 123'456) == 1e-4);
}

TEST_CASE("a schedule takes the part of the run that is over where that is more than its steps") {
  TrainConfig config;
  config.learning_rate = 0.5;
  config.steps = 1000;
  config.warmup = 100;
  for (const char* name : {"constant", "cosine", "linear", "block_cosine"}) {
    CAPTURE(name);
    config.schedule = name;
    const auto rate = [&](std::int64_t step, double part = 0) {
      return learning_rate_at(config, config.learning_rate, step, part);
    };
    CHECK(follows_end(config));
    CHECK(rate(3, 0.0625) == doctest::Approx((rate(62) + rate(63)) / 2));
    CHECK(rate(3, 0.25) == rate(250));
    CHECK(rate(250, 0.125) == rate(250));
    CHECK(rate(3, 1) == rate(1000));
    CHECK(rate(250, std::nan("")) == rate(250));
    // The quotient as it is recorded does not move the step by a rounding.
    for (std::int64_t step = 0; step < 1000; ++step)
      CHECK(rate(step, static_cast<double>(step) / 1000) == rate(step));
  }
}

TEST_CASE("rsqrt and a constant rate without warm-up do not depend on the end of the run") {
  TrainConfig config;
  config.steps = 1000;
  CHECK_FALSE(follows_end(config));
  CHECK(learning_rate_at(config, 0.5, 7, 0.9) == 0.5);
  config.schedule = "rsqrt";
  config.warmup = 100;
  CHECK_FALSE(follows_end(config));
  CHECK(learning_rate_at(config, 0.5, 7, 0.9) == learning_rate_at(config, 0.5, 7));
}

TEST_CASE("rsqrt rises to its peak and falls with the root of the step") {
  TrainConfig config;
  config.schedule = "rsqrt";
  config.learning_rate = 1;
  config.warmup = 1000;
  config.steps = 500'000;
  CHECK(learning_rate_at(config, config.learning_rate, 0) == 0);
  CHECK(std::abs(learning_rate_at(config, config.learning_rate, 500) - 0.5 / std::sqrt(1000.0)) <= 1e-16);
  CHECK(std::abs(learning_rate_at(config, config.learning_rate, 1000) - 0.0316227766) <= 1e-10);
  CHECK(std::abs(learning_rate_at(config, config.learning_rate, 500'000) - 0.00141421356) <= 1e-10);
  config.warmup = 0;
  CHECK(learning_rate_at(config, config.learning_rate, 0) == 1);
  CHECK(std::abs(learning_rate_at(config, config.learning_rate, 4) - 0.5) <= 1e-16);
}

TEST_CASE("block_cosine falls to its minimum at the last step and halves with every run's length after") {
  TrainConfig config;
  config.schedule = "block_cosine";
  config.learning_rate = 0.01;
  config.min_learning_rate = 0.001;
  config.warmup = 1000;
  config.steps = 500'000;
  const double at_warmup = 0.001 + 0.009 * (1 + std::cos(3.14159265358979323846 / 500)) / 2;
  CHECK(learning_rate_at(config, config.learning_rate, 0) == 0);
  CHECK(std::abs(learning_rate_at(config, config.learning_rate, 250) - at_warmup / 4) <= 1e-17);
  CHECK(std::abs(learning_rate_at(config, config.learning_rate, 1000) - at_warmup) <= 1e-17);
  CHECK(std::abs(learning_rate_at(config, config.learning_rate, 250'000) - 0.0055) <= 1e-17);
  CHECK(std::abs(learning_rate_at(config, config.learning_rate, 500'000) - 0.001) <= 1e-17);
  CHECK(std::abs(learning_rate_at(config, config.learning_rate, 1'000'000) - 0.0005) <= 1e-17);
}
