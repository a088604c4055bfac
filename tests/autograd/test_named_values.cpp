// Naming and capturing values: paths, patterns, and what is left alone.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "autograd/checkpoint.h"
#include "autograd/named_values.h"
#include "autograd/scope.h"
#include "autograd/tape.h"
#include "tensor/create.h"
#include "tests/autograd/tiny_ops.h"

namespace {

using namespace eddy;

TEST_CASE("a value has the path of its scope, and a scope that runs again names another") {
  const auto layer = [](double value) {
    const ScopeGuard scope("layers.0");
    name_value("gate", Tensor::full({1}, value, Dtype::f32));
  };
  const NamedValues values = capture_values({"layers.*.gate"}, [&] {
    layer(0.25);
    layer(0.5);
    name_value("top", Tensor::full({1}, 1.0, Dtype::f32));
  });
  REQUIRE(values.size() == 1);
  REQUIRE(values.at("layers.0.gate").size() == 2);
  CHECK(values.at("layers.0.gate")[0].item() == 0.25);
  CHECK(values.at("layers.0.gate")[1].item() == 0.5);
}

TEST_CASE("a value is made only where somebody captures it") {
  int made = 0;
  const auto run = [&] {
    name_value("wanted", [&] {
      ++made;
      return Tensor::full({1}, 1.0, Dtype::f32);
    });
    name_value("other", [&] {
      made += 100;
      return Tensor::full({1}, 1.0, Dtype::f32);
    });
  };
  run();
  CHECK(made == 0);
  static_cast<void>(capture_values({"wanted"}, run));
  CHECK(made == 1);
  CHECK_FALSE(captures_values());
}

TEST_CASE("captured values are copies without a graph") {
  const Tensor x = require_grad(Tensor::full({2}, 1.0, Dtype::f32));
  const NamedValues values = capture_values({"x"}, [&] { name_value("x", x); });
  CHECK_FALSE(requires_grad(values.at("x")[0]));
  x.mutable_data<float>()[0] = 7;
  CHECK(values.at("x")[0].data<float>()[0] == 1);
}

TEST_CASE("what a backward pass recomputes is not captured again") {
  const Tensor x = require_grad(Tensor::full({1}, 3.0, Dtype::f64));
  const NamedValues values = capture_values({"y"}, [&] {
    backward(checkpoint(
        [](const std::vector<Tensor>& in) {
          const Tensor y = tiny::mul(in[0], in[0]);
          name_value("y", y);
          return y;
        },
        {x}));
  });
  CHECK(values.at("y").size() == 1);
  CHECK(grad(x).item() == 6);
}

TEST_CASE("a pattern that fits nothing is an error that lists the names of the run") {
  const auto run = [] {
    name_value("b", Tensor::full({1}, 1.0, Dtype::f32));
    name_value("a", Tensor::full({1}, 1.0, Dtype::f32));
  };
  CHECK_THROWS_WITH_AS(capture_values({"a", "c*"}, run),
                       "capture_values: nothing is named \"c*\" (this run names a, b)", CaptureError);
  CHECK_THROWS_WITH_AS(capture_values({"c"}, [] {}),
                       "capture_values: nothing is named \"c\" (this run names no values)", CaptureError);
  CHECK_FALSE(captures_values());
}

TEST_CASE("values can be chosen by their path, and where none is chosen there is none") {
  int made = 0;
  const auto run = [&] {
    for (const char* name : {"state", "probabilities"})
      name_value(name, [&] {
        ++made;
        return Tensor::full({1}, 1.0, Dtype::f32);
      });
  };
  const NamedValues values = capture_values_if([](const std::string& path) { return path == "state"; }, run);
  CHECK(values.size() == 1);
  CHECK(values.count("state") == 1);
  CHECK(made == 1);
  CHECK(capture_values_if([](const std::string&) { return false; }, run).empty());
  CHECK_FALSE(captures_values());
}

}  // namespace
