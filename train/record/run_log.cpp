// Opening the files of a run's log, and which numbers TensorBoard shows.
#include "train/record/run_log.h"

namespace eddy::training {

void RunLog::open_metrics(const std::filesystem::path& folder, bool resumed, std::int64_t step) {
  const std::filesystem::path file = folder / "metrics.jsonl";
  try {
    if (resumed) done_again_ = progress_after(file, step);
    if (resumed) drop_metrics_after(file, step, records_, done_again_);
    metrics_.emplace(file);
  } catch (const IoError& error) {
    say(fmt::format("warning: nothing is recorded: {}", error.what()));
  }
}

void RunLog::open_board(const std::filesystem::path& folder, std::int64_t step) {
  try {
    board_.emplace(folder / "tensorboard", step);
  } catch (const IoError& error) {
    say(fmt::format("warning: {}", error.what()));
  }
}

std::vector<std::pair<std::string, double>> numbers_of(const StepRecord& record) {
  std::vector<std::pair<std::string, double>> numbers{{"train/loss", record.loss},
                                                      {"train/learning_rate", record.learning_rate},
                                                      {"train/gradient_norm", record.grad_norm},
                                                      {"speed/tokens_per_second", record.tokens_per_second},
                                                      {"speed/milliseconds", record.ms}};
  if (record.memory_bytes > 0)
    numbers.emplace_back("memory/tensors", static_cast<double>(record.memory_bytes));
  if (record.resident_bytes > 0)
    numbers.emplace_back("memory/resident", static_cast<double>(record.resident_bytes));
  return numbers;
}

std::vector<std::pair<std::string, double>> numbers_of(const EvalRecord& record) {
  const std::string split = record.split + (record.whole ? "_whole/" : "/");
  std::vector<std::pair<std::string, double>> numbers{{split + "loss", record.loss}};
  for (const auto& [name, value] : record.metrics) numbers.emplace_back(split + name, value);
  return numbers;
}

}  // namespace eddy::training
