// The parity task: a stream of random bits, and behind each bit whether the ones so far are odd. One bit of
// memory solves it; a model without recurrence must count all bits at every position.
#include <utility>

#include "tensor/base/format.h"
#include "tensor/random/philox.h"
#include "train/tasks/task.h"

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
  std::string answer_name(std::int32_t answer) const override { return answer == 1 ? "odd" : "even"; }

  void set_model_sizes(ModelConfig& model) const override {
    fit_tokens(model, 2, 2, "parity has 2 tokens", "each bit has an answer");
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
    const std::int64_t batches = options.batches > 0  ? options.batches
                                 : options.sample > 0 ? std::min(options.sample, kValidBatches)
                                                      : kValidBatches;
    EvalPlan plan{.count_correct = true, .capture = options.capture, .share = options.share};
    if (options.by_position) plan.position = [this](std::int64_t i) { return i % length_; };
    const auto next = batches_of(
        batches, [&](std::int64_t i) { return bits("parity.valid", options.seed, i, options.batch); });
    return evaluate_batches(model, next, plan, progress);
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
