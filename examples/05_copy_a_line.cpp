// Example 5: a trained model. One transformer layer learns to copy: it reads a line and the sign '|', and
// writes the line again. It trains on lines of random letters, so it cannot learn the text, only the copying. The line
// that it copies at the end is yours:
//
//   example_05_copy_a_line "to be or not"
//
//   tokens   e d d y | e d d
//   targets  . . . . e d d y     (.: not scored, target -1)
//
// Read beside it: models/module.h, models/layers.h, models/recurrent_transformer/transformer_layer.h,
// models/optimizer/adam.h. The step of a real run is train/step/train_step.cpp: the same lines for
// several batches and a recurrent state. Its loop, train/run/trainer.cpp, adds files, evaluation, checkpoints and
// a report.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "autograd/tape.h"
#include "models/module.h"
#include "models/optimizer/adam.h"
#include "models/recurrent_transformer/transformer_layer.h"
#include "ops/loss/cross_entropy.h"
#include "ops/pointwise/pointwise.h"
#include "ops/product/linear.h"
#include "ops/views/views.h"
#include "tensor/base/error.h"

using eddy::Tensor;

namespace {

constexpr std::int64_t kBatch = 32, kLength = 16;
constexpr std::int64_t kTime = 2 * kLength;  // the last letter is predicted but never an input
const std::string kLetters = "abcdefghijklmnopqrstuvwxyz |";
const std::int64_t kVocab = static_cast<std::int64_t>(kLetters.size()), kBar = kVocab - 1;

// A model declares its parameters in its constructor, by name, under a scope. The token ids select rows of a
// table, the positions are added, the layer runs, and the transposed table gives the logits.
struct CopyModel {
  CopyModel(const eddy::ParamScope& scope, const eddy::recurrent_transformer::Config& config)
      : embed(scope.scope("embed"), config.vocab, config.dim, config.init_std),
        positions(scope.param("positions", {config.context, config.dim}, eddy::Init::normal(0.02))),
        layer(scope.scope("layer"), "layer", config),
        final_norm(scope.scope("final_norm"), config.dim, config.norm_eps, false) {}

  Tensor operator()(const Tensor& tokens) const {
    const Tensor x = embed(tokens) + eddy::narrow(positions, 0, 0, tokens.dim(1));
    return eddy::linear(final_norm(layer(x, eddy::DropoutSite{})), embed.weight);
  }

  eddy::Embedding embed;
  Tensor positions;
  eddy::TransformerLayer layer;
  eddy::LayerNorm final_norm;
};

// Returns tokens and targets of random lines. They depend on (seed, stream, step), so step 7 is the same in
// every run.
std::pair<Tensor, Tensor> random_lines(std::uint64_t step) {
  const eddy::RandomKey key = eddy::random_key(1, "example.lines", step);
  std::vector<std::int64_t> tokens, targets;
  for (std::int64_t row = 0; row < kBatch; ++row) {
    std::vector<std::int64_t> line;
    for (auto i = static_cast<std::uint64_t>(row * kLength); line.size() < kLength; ++i)
      line.push_back(key.word(i) % static_cast<std::uint32_t>(kBar));
    tokens.insert(tokens.end(), line.begin(), line.end());
    tokens.push_back(kBar);
    tokens.insert(tokens.end(), line.begin(), line.end() - 1);
    targets.insert(targets.end(), kLength, -1);
    targets.insert(targets.end(), line.begin(), line.end());
  }
  return {Tensor::from(tokens, {kBatch, kTime}), Tensor::from(targets, {kBatch, kTime})};
}

// Returns what the model writes after "line|", taking the most probable letter each time.
std::string copy_of(const CopyModel& model, const std::string& line) {
  const eddy::NoGrad no_grad;  // records no tape
  std::vector<std::int64_t> tokens;
  for (const char letter : line + "|") tokens.push_back(static_cast<std::int64_t>(kLetters.find(letter)));
  std::string written;
  while (static_cast<std::int64_t>(written.size()) < kLength) {
    const auto time = static_cast<std::int64_t>(tokens.size());
    const Tensor logits = eddy::select(model(Tensor::from(tokens, {1, time})), 1, time - 1);
    const std::vector<float> scores = logits.to_vector<float>();
    const auto best = std::max_element(scores.begin(), scores.end()) - scores.begin();
    tokens.push_back(best);
    written += kLetters[static_cast<std::size_t>(best)];
  }
  return written;
}

// Returns the line of the command line, filled up with spaces to the length that the model was trained on.
// errors: ValueError for a longer one, and for other signs than letters and spaces.
std::string line_of(int count, char** words) {
  std::string line = count > 1 ? words[1] : "an eddy turns up";
  for (int i = 2; i < count; ++i) line += std::string(" ") + words[i];
  for (const char sign : line)
    if (sign == '|' || kLetters.find(sign) == std::string::npos)
      throw eddy::ValueError("copy: '" + line + "' has a '" + sign + "' (letters from a to z, and spaces)");
  if (static_cast<std::int64_t>(line.size()) > kLength)
    throw eddy::ValueError("copy: '" + line + "' has " + std::to_string(line.size()) + " signs (at most " +
                           std::to_string(kLength) + ")");
  line.resize(static_cast<std::size_t>(kLength), ' ');
  return line;
}

}  // namespace

int main(int count, char** words) try {
  const std::string line = line_of(count, words);
  eddy::recurrent_transformer::Config config;
  config.vocab = kVocab;
  config.context = kTime;
  config.dim = 64;
  config.heads = 2;
  config.mlp_dim = 128;
  auto net = eddy::make_module<CopyModel>(/*seed=*/1, config);
  eddy::Adam adam(net.params(), {.learning_rate = 3e-3});
  std::printf("%lld parameters\n", static_cast<long long>(net.params().count()));

  double loss_value = 1;
  for (std::uint64_t step = 0; step < 3000 && !(loss_value < 0.01); ++step) {
    const auto [tokens, targets] = random_lines(step);
    const Tensor loss = eddy::cross_entropy(net(tokens), targets);
    adam.zero_gradients();
    eddy::backward(loss);
    adam.step();
    loss_value = loss.item();
    if (step % 10 == 0) std::printf("step %4d  loss %.4f\n", static_cast<int>(step), loss_value);
  }

  const std::string written = copy_of(*net, line);
  std::printf("%s|%s\n", line.c_str(), written.c_str());
  return written == line ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
