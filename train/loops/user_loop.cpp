// Checkpoints and metrics of a loop that no configuration describes.
#include "train/loops/user_loop.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "models/weights.h"
#include "tensor/base/format.h"
#include "tensor/files/json_text.h"
#include "tensor/files/safetensors.h"
#include "tensor/files/strict_json.h"
#include "train/files/folders.h"
#include "train/files/text_file.h"
#include "train/record/metrics_summary.h"
#include "train/run/checkpoint.h"
#include "train/run/digests.h"
#include "train/run/run_folder.h"
#include "train/words/program_name.h"

namespace eddy::training {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr int kLoopFormat = 1;  // of state.json

// Makes the folder of a loop, and refuses one that `eddy train` keeps: its checkpoints and metrics would be removed.
void take_folder(const fs::path& folder) {
  std::error_code error;
  if (fs::exists(folder / kRunIdFile, error))
    fail<IoError>("training: {} is a run of {} train, which goes on by --resume (name another folder)",
                  folder.string(), program_name());
  make_folders(folder);
}

SavedTraining read_training(const fs::path& checkpoint) {
  const std::string file = (checkpoint / "state.json").string();
  static_cast<void>(check_saved_file(checkpoint, "state.json"));
  SavedTraining training;
  try {
    const json about = read_json_file(file);
    check_format(about, "training: " + file, kLoopFormat);
    if (!about.contains("numbers"))
      fail<FormatError>(
          "training: {} is of a run of {} train, which goes on by --resume (name another folder)", file,
          program_name());
    training.step = about.at("step").get<std::int64_t>();
    training.numbers = about.at("numbers").get<std::map<std::string, double>>();
    if (about.contains("task")) training.task = about.at("task");
  } catch (const json::exception& error) {
    fail<FormatError>("training: {} is damaged: {}", file, plain_message(error.what()));
  }
  if (const std::string wrong = misplacement(checkpoint, training.step, ""); !wrong.empty())
    fail<FormatError>("training: {} is not in its place: {}", checkpoint.string(), wrong);
  return training;
}

}  // namespace

void save_training(const fs::path& folder, const ParamStore& params, const Optimizer& optimizer,
                   const SavedTraining& training, std::int64_t keep) {
  for (const auto& [name, number] : training.numbers)
    if (!std::isfinite(number))
      fail<ValueError>("save_training: the number {} is {} (finite: JSON has no other)", name, number);
  take_folder(folder);
  write_checkpoint(
      folder, training.step,
      [&](const fs::path& temporary) {
        save_safetensors((temporary / "model.safetensors").string(), parameter_map(params));
        save_safetensors((temporary / "optimizer.safetensors").string(), optimizer.save());
        if (!training.state.empty())
          save_safetensors((temporary / "recurrent.safetensors").string(), training.state.to_map());
        json about{{"format", kLoopFormat}, {"step", training.step}, {"numbers", training.numbers}};
        if (!training.task.is_null()) about["task"] = training.task;
        replace_text_file(temporary / "state.json", about.dump(1) + "\n");
      },
      [&](const fs::path& checkpoints, const std::string& name) {
        replace_text_file(checkpoints / "latest", name + "\n");
        prune_checkpoints(checkpoints, training.step, {}, keep, true,
                          std::numeric_limits<double>::infinity());
      });
}

std::optional<SavedTraining> load_training(const fs::path& folder, ParamStore& params, Optimizer& optimizer) {
  std::error_code error;
  if (!fs::is_directory(folder, error) || checkpoints_of_run(folder).empty()) return std::nullopt;
  const fs::path checkpoint = find_checkpoint(folder.string(), "latest");
  SavedTraining training = read_training(checkpoint);
  load_weights(checkpoint, params);
  load_optimizer(checkpoint, optimizer);
  training.state = load_recurrent(checkpoint);
  return training;
}

MetricsWriter continue_metrics(const fs::path& folder, std::int64_t step, const RunRecord& about) {
  take_folder(folder);
  const fs::path path = folder / "metrics.jsonl";
  MetricsSummary kept;
  drop_metrics_after(path, step, kept);
  std::error_code error;
  const bool is_new = !fs::exists(path, error) || fs::file_size(path, error) == 0;
  MetricsWriter metrics(path);
  if (is_new) metrics.write(about);
  return metrics;
}

}  // namespace eddy::training
