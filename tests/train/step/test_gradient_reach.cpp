// Which parameters no gradient reaches, for the models of every family.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "models/eddy/registry.h"
#include "tests/support/errors.h"
#include "train/step/gradient_reach.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

// A model of a small size whose other sizes follow from it.
ModelConfig chosen(const ModelName& name, std::int64_t context) {
  ModelConfig config;
  config.family = name.family;
  config.model = name.model;
  config.vocab = 11;
  config.context = context;
  config.dim = 12;
  config.heads = 2;
  choose_sizes(config, {"vocab", "context", "dim", "heads"});
  return config;
}

Batch batch_of(std::int64_t time) {
  const std::vector<std::int32_t> ids(static_cast<std::size_t>(2 * time), 1);
  return make_batch(2, ids, ids);
}

}  // namespace

TEST_CASE("gradient reach: with the sizes that suit a model every parameter gets a gradient") {
  for (const ModelEntry& entry : model_registry()) {
    CAPTURE(entry.model);
    const ModelConfig config = chosen(entry, 32);
    const Unreached found = unreached_parameters(config, batch_of(32), carries_state(config));
    CHECK(found.names == std::vector<std::string>{});
    CHECK(unreached_warning(config, batch_of(32), carries_state(config)).empty());
  }
}

TEST_CASE("gradient reach: a recurrence that is never read is named with what carries it") {
  ModelConfig config = chosen(main_model("block_recurrent"), 32);
  config.window = 32;
  config.states = 4;
  const Unreached cold = unreached_parameters(config, batch_of(32), false);
  CHECK(!cold.names.empty());
  std::int64_t elements = 0;
  const ParamStore counted = count_parameters(config);
  for (const std::string& name : cold.names) elements += counted.get(name).shape.elements();
  CHECK(cold.elements == elements);
  const std::string warning = unreached_warning(config, batch_of(32), false);
  for (const std::string& name : cold.names) CHECK_MESSAGE(contains(warning, name), name);
  CHECK_MESSAGE(contains(warning, "what only the next call reads gets none"), warning);
}

TEST_CASE("gradient reach: the warning says what a carried state changes") {
  for (const ModelEntry& entry : model_registry()) {
    CAPTURE(entry.model);
    ModelConfig config = chosen(entry, 32);
    config.chunk = 32;
    if (config.window != 0) config.window = 32;
    const Unreached cold = unreached_parameters(config, batch_of(32), false),
                    carried = unreached_parameters(config, batch_of(32), true);
    const std::string warning = unreached_warning(config, batch_of(32), false);
    CHECK(contains(warning, "if the state is carried from batch to batch") ==
          (carried.elements < cold.elements));
    CHECK(warning.empty() == cold.names.empty());
  }
}

TEST_CASE("gradient reach: a state that is written at the end of a row and not carried is never read") {
  for (const ModelEntry& entry : model_registry()) {
    CAPTURE(entry.model);
    ModelConfig config = chosen(entry, 32);
    const auto unread = [&](bool carry) {
      return !unread_state_warning(*make_unallocated_model(config), 32, carry).empty();
    };
    for (const bool whole : {false, true}) {
      if (whole) config.chunk = config.window = 32;
      const auto model = make_unallocated_model(config);
      CHECK(unread(false) == (model->is_recurrent() && model->stream_period() == 32));
      CHECK(!unread(true));
    }
  }
}
