// The parity task: a stream of random bits, and behind each bit whether the ones so far are odd. One bit of
// memory solves it; a model without recurrence must count all bits at every position.
#include <utility>

#include "tensor/base/format.h"
#include "train/tasks/synthetic/synthetic_task.h"

namespace eddy::training {
namespace {

constexpr const char* kParity = "parity";

class ParityTask final : public SyntheticTask {
 public:
  using SyntheticTask::SyntheticTask;

  bool may_read_ahead(std::int64_t) const override { return true; }
  std::string name() const override { return kParity; }
  std::string summary() const override { return fmt::format("streams of {} random bits", row_length()); }
  std::string token_name(std::int32_t token) const override { return token == 1 ? "1" : "0"; }
  std::string answer_name(std::int32_t answer) const override { return answer == 1 ? "odd" : "even"; }

  void set_model_sizes(ModelConfig& model) const override {
    fit_tokens(model, 2, 2, "parity has 2 tokens", "each bit has an answer");
  }

 private:
  Batch draw(const RandomKey& key, std::int64_t rows) const override {
    std::vector<std::int32_t> tokens, parities;
    for (std::int64_t row = 0; row < rows; ++row) {
      std::int32_t parity = 0;
      for (std::int64_t t = 0; t < row_length(); ++t) {
        tokens.push_back(
            static_cast<std::int32_t>(key.word(static_cast<std::uint64_t>(row * row_length() + t)) >> 31));
        parity ^= tokens.back();
        parities.push_back(parity);
      }
    }
    return make_batch(rows, std::move(tokens), std::move(parities), {});
  }
};

}  // namespace

TaskEntry parity_task() {
  return {.name = kParity,
          .summary = "whether the ones of a stream of bits so far are odd",
          .make = [](TaskArguments&& arguments) -> std::unique_ptr<Task> {
            return std::make_unique<ParityTask>(arguments.config);
          }};
}

}  // namespace eddy::training
