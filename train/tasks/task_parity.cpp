// The parity task: a stream of random bits, and behind each bit whether the ones so far are odd. One bit of
// memory solves it; a model without recurrence must count all bits at every position.
#include <utility>

#include "tensor/base/format.h"
#include "tensor/random/philox.h"
#include "train/tasks/task_registry.h"

namespace eddy {
namespace {

constexpr std::int64_t kValidBatches = 4;  // of a whole evaluation

class ParityTask final : public Task {
 public:
  explicit ParityTask(const RunConfig& config) : config_(config), length_(segment_length(config)) {}

  std::string name() const override { return "parity"; }
  std::string summary() const override { return fmt::format("streams of {} random bits", length_); }
  std::int64_t row_length() const override { return length_; }
  bool uses_seed(const EvalOptions&) const override { return true; }

  void set_model_sizes(ModelConfig& model) const override {
    if (model.vocab == 0) model.vocab = 2;
    if (model.n_out == 0) model.n_out = 2;
    if (model.vocab != 2 || model.n_out != 2)
      fail<ConfigError>("config: model.vocab is {} and model.n_out {}; parity has 2 tokens (leave them out)",
                        model.vocab, model.n_out);
    if (model.readout != "all")
      fail<ConfigError>("config: model.readout is \"{}\" (each bit has an answer: set \"all\")",
                        model.readout);
  }

  Batch next(std::int64_t step, std::int64_t micro) override {
    return bits("parity.train", static_cast<std::uint64_t>(config_.train.seed),
                step * config_.train.accumulate + micro, config_.train.batch);
  }

  // Adds "accuracy": the share of positions whose parity is named.
  EvalResult evaluate(const Model& model, const EvalOptions& options,
                      const EvalProgress& progress) const override {
    if (options.split != "valid")
      fail<ValueError>("parity: there is no split \"{}\" (valid: fresh streams)", options.split);
    const std::int64_t batches = options.batches > 0 ? options.batches : kValidBatches;
    std::int64_t done = 0;
    EvalResult seen;
    EvalPlan plan;
    plan.capture = options.capture;
    plan.count_correct = true;
    plan.on_batch = [&](const Batch&, std::span<const double> losses) {
      if (!options.by_position) return;
      for (std::size_t i = 0; i < losses.size(); ++i)
        seen.add_position(static_cast<std::int64_t>(i) % length_, losses[i]);
    };
    const auto next = [&](Batch& batch) {
      if (done == batches) return false;
      batch = bits("parity.valid", options.seed, done++, options.batch);
      return true;
    };
    EvalResult result = evaluate_batches(model, next, plan, progress);
    result.position_loss = std::move(seen.position_loss);
    result.position_count = std::move(seen.position_count);
    return result;
  }

 private:
  Batch bits(const char* stream, std::uint64_t seed, std::int64_t index, std::int64_t rows) const {
    const RandomKey key = random_key(seed, stream, static_cast<std::uint64_t>(index));
    std::vector<std::int32_t> tokens, parities;
    for (std::int64_t row = 0; row < rows; ++row) {
      std::int32_t parity = 0;
      for (std::int64_t t = 0; t < length_; ++t) {
        tokens.push_back(
            static_cast<std::int32_t>(key.word(static_cast<std::uint64_t>(row * length_ + t)) >> 31));
        parity ^= tokens.back();
        parities.push_back(parity);
      }
    }
    return make_batch(rows, std::move(tokens), std::move(parities), {});
  }

  RunConfig config_;
  std::int64_t length_;
};

}  // namespace

std::unique_ptr<Task> make_parity_task(TaskArguments&& arguments) {
  return std::make_unique<ParityTask>(arguments.config);
}

}  // namespace eddy
