// The width of a model for a number of parameters.
#include "models/eddy/fit_params.h"

#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "models/eddy/registry.h"
#include "tensor/base/error.h"
#include "tests/models/every_model.h"
#include "tests/support/errors.h"

namespace {

using namespace eddy;
using namespace eddy::test;

ModelConfig asked(const ModelName& name, std::int64_t params) {
  ModelConfig config = even_config(name, 65, 32);
  config.params = params;
  return config;
}

bool is_near(std::int64_t count, std::int64_t target) {
  return std::abs(static_cast<double>(count - target)) <= 0.03 * static_cast<double>(target);
}

}  // namespace

TEST_CASE("model.params: every model gets a width at which it has so many parameters within 3 percent") {
  for (const ModelName& name : model_registry())
    for (const std::int64_t params : {60'000, 1'000'000, 20'000'000}) {
      CAPTURE(name.model);
      CAPTURE(params);
      ModelConfig config = asked(name, params);
      fit_params(config);
      CHECK(config.params == 0);
      CHECK(is_near(count_parameters(config).count(), params));
      CHECK(resolved(asked(name, params)) == resolved(config));
    }
}

TEST_CASE("model.params: a config without it stays as it is") {
  ModelConfig config = asked(model_registry()[0], 0);
  const ModelConfig before = config;
  fit_params(config);
  CHECK(config == before);
}

TEST_CASE("model.params: widths that are even for each head are preferred") {
  ModelConfig config;
  config.vocab = 65;
  config.params = 1'000'000;
  fit_params(config);
  CHECK(config.dim % (2 * config.heads) == 0);
  CHECK(config.mlp_dim == 0);
}

TEST_CASE("model.params: where the widths of many heads are too coarse, the MLP's width makes up for it") {
  ModelConfig config;
  config.model = "regular";
  config.heads = 64;
  config.vocab = 65;
  config.params = 120'000;
  fit_params(config);
  CHECK(config.dim % 64 == 0);
  CHECK(config.mlp_dim > 0);
  CHECK(is_near(count_parameters(config).count(), 120'000));
}

TEST_CASE("model.params: what no size reaches is refused with the nearest counts") {
  ModelConfig config;
  config.model = "regular";
  config.heads = 64;
  config.vocab = 65;
  config.params = 1'000;
  const std::string small = error_of<ConfigError>([&] { fit_params(config); });
  CHECK(contains(small, "regular cannot have model.params = 1000 within 3 %"));
  CHECK(contains(small, "model.dim = 64"));
  CHECK(contains(small, "model.heads"));
  config.params = 10'000'000;
  config.mlp_dim = 7;  // given, so only the width moves
  config.heads = 1024;
  const std::string between = error_of<ConfigError>([&] { fit_params(config); });
  CHECK(contains(between, "model.dim = 1024"));
  CHECK(contains(between, "model.dim = 2048"));
}
