// The end of every model: the loss of its classifier is the cross-entropy of its logits, with many classes
// (in chunks) and with few.
#include "models/classifier.h"

#include <doctest/doctest.h>

#include "ops/loss/linear_cross_entropy.h"
#include "tests/models/bf16_models.h"

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

namespace {

struct Loss {
  double value;
  std::map<std::string, Tensor> gradients;
};

// The loss without logits.
Loss classified(Model& model, ForwardInput input, const Tensor& targets) {
  model.params().zero_gradients();
  input.logits = false;
  const ForwardOutput output = model.forward(input);
  CHECK_FALSE(output.logits.defined());
  const Tensor loss = output.classifier.loss(targets, -1);
  backward(loss);
  Loss result{loss.item(), {}};
  for (const Parameter& parameter : model.params().parameters()) {
    const Tensor gradient = grad(parameter.value);
    result.gradients[parameter.name] = gradient.defined() ? raw::copy(gradient) : Tensor();
  }
  return result;
}

}  // namespace

TEST_CASE("classifier: the loss of every model and its gradients are those of its logits") {
  for (const std::int64_t classes : {std::int64_t{11}, kManyClasses})
    for (ModelConfig config : bf16_configs()) {
      CAPTURE(config.model);
      config.vocab = classes;
      const auto model = random_model(config);
      ForwardInput input;
      input.tokens = random_ids(3, 16, classes, 1);
      const Tensor targets = random_ids(3, 16, classes, 2);
      for (const std::int64_t ignored : {3, 17, 40}) targets.mutable_data<std::int64_t>()[ignored] = -1;
      const Outcome want = run(*model, input, targets);
      const Loss got = classified(*model, input, targets);
      CHECK(std::abs(got.value - want.loss) <= 1e-12 * want.loss);
      for (const auto& [name, gradient] : want.gradients) {
        CHECK(got.gradients.at(name).defined() == gradient.defined());
        if (gradient.defined()) check_close(name, got.gradients.at(name), gradient, 1e-12);
      }
      const Classifier classifier = model->forward(input).classifier;
      CHECK(classifier.rows() == 16);
      check_close("losses", classifier.losses(targets, -1), cross_entropy_rows(want.logits, targets), 1e-12);
    }
}
