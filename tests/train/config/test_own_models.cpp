// What register_model and register_task refuse, so that nothing is left of it, and keys that a program adds. The whole
// way of a model that is registered, from flags to a resumed run, is examples/07_own_cell.cpp, which is a test too.
#include <doctest/doctest.h>

#include <memory>
#include <string>

#include "models/eddy/extension_keys.h"
#include "models/eddy/registry.h"
#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "train/config/config.h"
#include "train/config/run_config.h"
#include "train/tasks/task.h"

namespace own_test {

using namespace eddy;
using namespace eddy::training;

struct Keys {
  std::int64_t rows = 3;
  friend bool operator==(const Keys&, const Keys&) = default;
};
void describe(KeyList& keys, Keys& c) {
  keys.add("own_rows", c.rows, "Rows", {1, 9});
}
struct TakenKeys {
  std::int64_t block = 3;
  friend bool operator==(const TakenKeys&, const TakenKeys&) = default;
};
void describe(KeyList& keys, TakenKeys& c) {
  keys.add("block", c.block, "A key that is there already");
}
struct TakenDataKeys {
  std::int64_t noise = 3;
  friend bool operator==(const TakenDataKeys&, const TakenDataKeys&) = default;
};
void describe(KeyList& keys, TakenDataKeys& c) {
  keys.add("noise", c.noise, "A key that is there already");
}

template <class K>
class Nothing final : public FamilyModel<K> {
 public:
  Nothing(const FamilyConfig<K>& config, const ParamScope&) : FamilyModel<K>(config) {}
  ForwardOutput forward(const ForwardInput& input) const override { return {input, {}, {}}; }
};

std::unique_ptr<Task> no_task(TaskArguments&&) {
  return nullptr;
}

}  // namespace own_test

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;
using own_test::Nothing;

template <class Register>
std::string refusal(const Register& attempt) {
  const std::size_t families = family_registry().size(), models = model_registry().size(),
                    tasks = task_registry().size();
  RunConfig config;
  const std::size_t keys = keys_of(config).fields().size();
  const std::string text = error_of<ConfigError>(attempt);
  CHECK(family_registry().size() == families);
  CHECK(model_registry().size() == models);
  CHECK(task_registry().size() == tasks);
  CHECK(keys_of(config).fields().size() == keys);
  return text;
}

}  // namespace

TEST_CASE("own models: a name that is taken or is none is refused, and nothing is left of it") {
  CHECK(refusal([] {
          register_model<Nothing<own_test::Keys>>({"own", "lstm"}, "");
        }) == "register_model: lstm is the name of a model of the family staircase (name it otherwise)");
  CHECK(refusal([] {
          register_model<Nothing<own_test::Keys>>({"own", "Own cell"}, "");
        }) == "register_model: \"Own cell\" is no name (letters a-z, digits and _)");
  CHECK(refusal([] {
          register_model<Nothing<own_test::Keys>>({"staircase", "own_cell"}, "");
        }) == "register_model: the family staircase of own_cell has other keys (name another family)");
  CHECK(refusal([] {
          register_task({"parity", "", own_test::no_task});
        }) == "register_task: parity is the name of a task already (name it otherwise)");
}

TEST_CASE("own models: a key that is described twice is refused, and nothing is left of it") {
  CHECK(
      refusal([] {
        register_model<Nothing<own_test::TakenKeys>>({"own", "own_cell"}, "");
      }) ==
      "register_model: own_cell: config: model.block is described twice (give the second key another name)");
  CHECK(refusal([] {
          register_task<own_test::TakenDataKeys>({"own_task", "", own_test::no_task});
        }) ==
        "register_task: own_task: config: data.noise is described twice (give the second key another name)");
  CHECK(refusal([] {
          register_task(
              {.name = "own_task", .summary = "", .make = own_test::no_task, .common = "path nois"});
        }) ==
        "register_task: own_task: there is no key data.nois (TaskEntry::common has keys that are described)");
}

TEST_CASE("own tasks: a data set that there is none of is refused") {
  CHECK(contains(
      refusal([] {
        register_task(
            {.name = "own_task", .summary = "", .make = own_test::no_task, .data_sets = "enwik8 enwik9"});
      }),
      "register_task: own_task: there is no data set \"enwik9\" (TaskEntry::data_sets has names that "));
  CHECK(tasks_of_data_set("enwik8") == std::vector<std::string>{"text"});
}

TEST_CASE("own models: a common key that there is none of is refused") {
  CHECK(
      refusal([] {
        register_model<Nothing<own_test::Keys>>({"own", "own_cell"}, "", {.common = "-heds"});
      }) ==
      "register_model: own_cell: there is no key model.heds (ModelTraits::common has keys that are described)");
}

TEST_CASE(
    "own tasks: a model without n_out has a class for each token, and one with more answers is refused") {
  ModelConfig model;
  model.family = "block_recurrent";
  model.model = "slide";
  const auto fitted = [&](std::int64_t tokens, std::int64_t answers) {
    ModelConfig sized = model;
    fit_tokens(sized, tokens, answers, "a task");
    return sized;
  };
  CHECK(make_unallocated_model(fitted(8, 3))->config().n_out == 8);
  const ModelConfig many = fitted(2, 8);
  CHECK(contains(
      error_of<ConfigError>([&] { static_cast<void>(make_unallocated_model(many)); }),
      "model slide has a class for each of its 2 tokens and no more, and model.n_out is 8 (models that read "
      "n_out: all models but slide"));
  model.family = "staircase";
  model.model = "lstm";
  CHECK(make_unallocated_model(fitted(2, 8))->config().n_out == 8);
}

TEST_CASE(
    "own keys are values: copies are their own, and the initial value equals one that nobody asked for") {
  ExtensionKeys a;
  CHECK(std::as_const(a).get<own_test::Keys>().rows == 3);
  ExtensionKeys b = a;
  b.get<own_test::Keys>().rows = 3;
  CHECK(a == b);
  b.get<own_test::Keys>().rows = 4;
  CHECK(a != b);
  CHECK(b != a);
  const ExtensionKeys c = b;
  b.get<own_test::Keys>().rows = 5;
  CHECK(c.get<own_test::Keys>().rows == 4);
}
