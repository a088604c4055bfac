// Writing and reading checkpoints.
#include "train/run/checkpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "models/weights.h"
#include "tensor/base/format.h"
#include "tensor/files/json_text.h"
#include "tensor/files/safetensors.h"
#include "tensor/files/strict_json.h"
#include "tensor/system/files.h"
#include "train/files/folders.h"
#include "train/files/text_file.h"
#include "train/run/digests.h"
#include "train/run/run_folder.h"

namespace eddy::training {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kCheckpointFormat = 1;  // of state.json, and so of the whole checkpoint

template <class Back, class Visit>
void visit_rollback(Back& back, const Visit& visit) {
  visit("step", back.step);
  visit("to", back.to);
  visit("rate_factor", back.rate_factor);
}

// The fields of state.json but its format. A text that is JSON is visited by visit.json_text.
template <class Config, class TokenizerPointer, class TheState, class Visit>
void visit_state(Config& config, TokenizerPointer& tokenizer, TheState& s, const Visit& visit) {
  visit("step", s.step);
  visit("tokens", s.tokens);
  visit("seconds", s.seconds);
  visit("best_loss", s.best_loss);
  visit("best_step", s.best_step);
  visit("loss", s.loss);
  visit("progress", s.progress);
  visit("lowest_loss", s.lowest_loss);
  visit("learned", s.learned);
  visit("run", s.run_id);
  visit("text_sha256", s.text_sha256);
  visit("text_phases", s.text_phases);
  visit("data_folder", s.data_folder);
  visit("kernels", s.kernels);
  visit("algorithms", s.algorithms);
  visit("baselines", s.baselines);
  visit("epoch_tokens", s.epoch_tokens);
  visit("bad_steps", s.bad_steps);
  visit("good_step", s.good_step);
  visit("candidate_step", s.candidate_step);
  visit("rollbacks", s.rollbacks);
  visit("config", config);
  visit.json_text("task", s.task);
  visit("tokenizer", tokenizer);
}

// Writes fields. A number that is not finite becomes null, and a text that is not UTF-8, which a path may be, empty.
class StateWriter {
 public:
  explicit StateWriter(json& about) : about_(about) {}

  template <class Value>
  void operator()(const char* key, const Value& value) const {
    about_[key] = value;
  }
  void operator()(const char* key, const std::string& text) const {
    about_[key] = json_string(text) ? text : "";
  }
  void operator()(const char* key, const RunConfig& config) const { about_[key] = to_json(config); }
  void operator()(const char* key, const std::vector<TextPhase>& phases) const {
    about_[key] = to_json(phases);
  }
  void operator()(const char* key, const std::optional<Baselines>& baselines) const {
    about_[key] = baselines ? to_json(*baselines) : json();
  }
  void operator()(const char* key, const std::vector<Rollback>& rollbacks) const {
    json& list = about_[key] = json::array();
    for (const Rollback& back : rollbacks) visit_rollback(back, StateWriter(list.emplace_back()));
  }
  void operator()(const char* key, const Tokenizer* tokenizer) const {
    about_[key] = tokenizer != nullptr ? json_of_text(tokenizer->to_json(), "the tokenizer") : json();
  }
  void json_text(const char* key, const std::string& text) const {
    about_[key] = json_of_text(text, "the state of the task");
  }

 private:
  json& about_;
};

// Reads them; errors call the file `file`.
class StateReader {
 public:
  StateReader(const json& about, const std::string& file) : about_(about), file_(file) {}

  template <class Value>
  void operator()(const char* key, Value& value) const {
    value = about_.at(key).get<Value>();
  }
  void operator()(const char* key, double& number) const {
    // null is written for numbers that are not finite, as these are at first.
    if (!about_.at(key).is_null() || std::isfinite(number)) number = about_.at(key).get<double>();
  }
  void operator()(const char* key, RunConfig& config) const {
    config = run_config_from_json(about_.at(key), file_);
  }
  void operator()(const char* key, std::vector<TextPhase>& phases) const {
    phases = text_phases_from_json(about_.at(key), file_);
  }
  void operator()(const char* key, std::optional<Baselines>& baselines) const {
    if (!about_.at(key).is_null()) baselines = baselines_from_json(about_.at(key));
  }
  void operator()(const char* key, std::vector<Rollback>& rollbacks) const {
    for (const json& back : about_.at(key))
      visit_rollback(rollbacks.emplace_back(), StateReader(back, file_));
  }
  void operator()(const char* key, std::unique_ptr<Tokenizer>& tokenizer) const {
    if (!about_.at(key).is_null())
      tokenizer = tokenizer_from_json(about_.at(key).dump(), "the tokenizer of " + file_);
  }
  void json_text(const char* key, std::string& text) const { text = about_.at(key).dump(); }

 private:
  const json& about_;
  const std::string& file_;
};

// Moves what the user put into the old checkpoint's folder to the new one's, and removes the old one.
void remove_replaced(const fs::path& old, const fs::path& target) {
  std::vector<fs::path> theirs;
  if (fs::is_directory(fs::symlink_status(old)))
    for (const fs::directory_entry& entry : fs::directory_iterator(old))
      if (!is_checkpoint_file(entry.path().filename().string())) theirs.push_back(entry.path());
  for (const fs::path& path : theirs) fs::rename(path, target / path.filename());
  fs::remove_all(old);
}

// Renames the new checkpoint to its name. When the step was saved before (as the best, or before a resume),
// the two folders are exchanged atomically: `latest` may name the old one, and a kill between its removal and
// the rename would leave `latest` pointing to nothing.
void put_in_place(const fs::path& temporary, const fs::path& target) {
  if (!fs::exists(target)) {
    fs::rename(temporary, target);
    return;
  }
  if (exchange_names(temporary.string(), target.string()) != 0) {
    const int error = errno;
    if (error != EINVAL && error != ENOSYS)
      fail<IoError>("checkpoint: cannot replace {}: {}", target.string(), std::strerror(error));
    // Some systems, and file systems of a network, cannot exchange; the time without a checkpoint is then kept short.
    const fs::path old = target.parent_path() / (".tmp-old-" + target.filename().string());
    fs::remove_all(old);
    fs::rename(target, old);
    fs::rename(temporary, target);
    remove_replaced(old, target);
    return;
  }
  remove_replaced(temporary, target);
}

}  // namespace

fs::path write_checkpoint(const fs::path& run_dir, std::int64_t step,
                          const std::function<void(const fs::path&)>& write,
                          const std::function<void(const fs::path&, const std::string&)>& finish) {
  const fs::path folder = run_dir / "checkpoints";
  const std::string name = "step-" + std::to_string(step);
  const fs::path temporary = folder / (".tmp-" + name), target = folder / name;
  try {
    if (fs::create_directory(folder)) flush_folder(run_dir);
    fs::remove_all(temporary);
    fs::create_directory(temporary);
    write(temporary);
    write_digests(temporary);
    flush_folder(temporary);
    put_in_place(temporary, target);
    flush_folder(folder);
    finish(folder, name);
  } catch (const fs::filesystem_error& error) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    fail<IoError>("checkpoint: {} could not be written: {} (the checkpoints before it are whole)",
                  target.string(), error.code().message());
  } catch (const IoError&) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    throw;
  }
  return target;
}

fs::path save_checkpoint(const fs::path& run_dir, const RunConfig& config, const Tokenizer* tokenizer,
                         const Model& model, const std::map<std::string, Tensor>& optimizer,
                         const State& recurrent, const TrainingState& state, bool is_best,
                         std::int64_t keep) {
  const auto write = [&](const fs::path& temporary) {
    save_safetensors((temporary / "model.safetensors").string(), parameter_map(model.params()));
    save_safetensors((temporary / "optimizer.safetensors").string(), optimizer);
    if (!recurrent.empty())
      save_safetensors((temporary / "recurrent.safetensors").string(), recurrent.to_map());
    json about{{"format", kCheckpointFormat}};
    visit_state(config, tokenizer, state, StateWriter(about));
    replace_text_file(temporary / "state.json", about.dump(1) + "\n");
  };
  const auto finish = [&](const fs::path& folder, const std::string& name) {
    if (is_best) replace_text_file(folder / "best", name + "\n");
    replace_text_file(folder / "latest", name + "\n");
    const bool is_good = state.loss <= state.lowest_loss + kGoodLossRange;  // not where it is NaN
    prune_checkpoints(folder, state.step, {state.best_step, state.good_step, state.candidate_step}, keep,
                      is_good, state.lowest_loss);
  };
  return write_checkpoint(run_dir, state.step, write, finish);
}

namespace {

// Calls `read`; the error of a damaged checkpoint then says which one is whole.
template <class Read>
auto reading(const fs::path& checkpoint, const Read& read) {
  try {
    return read();
  } catch (const FormatError& error) {
    fail<FormatError>("{}{}", error.what(), way_out(checkpoint));
  } catch (const IoError& error) {
    fail<IoError>("{}{}", error.what(), way_out(checkpoint));
  }
}

// Returns read(checkpoint) of the checkpoint that is meant. Where the run that trains has saved over it or
// removed it meanwhile, the one that is meant then is read.
template <class Read>
auto reading_of_run(const std::string& path, const std::string& which, const Read& read) {
  constexpr int kFewAttempts = 3, kMostAttempts = 100;  // a file system may show two renames as a short gap
  const fs::path pointer = fs::path(path) / "checkpoints" / "latest";
  for (int attempt = 1;; ++attempt) {
    const std::string latest = read_pointer(pointer).name;
    fs::path checkpoint;
    std::optional<CheckpointHold> held;
    try {
      checkpoint = find_checkpoint(path, which);
      held.emplace(checkpoint);
      auto result = read(checkpoint);
      if (held->in_place() || attempt == kMostAttempts) return result;
    } catch (const Error&) {
      const bool was_replaced = held && !held->in_place();
      const bool has_saved = was_replaced || read_pointer(pointer).name != latest;
      if ((held && !was_replaced) || attempt >= (has_saved ? kMostAttempts : kFewAttempts)) {
        if (!held) throw;
        reading(checkpoint, [] { throw; });
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// The tensors of a checkpoint's file, checked. Its bytes are read once for both.
std::map<std::string, Tensor> saved_tensors(const fs::path& checkpoint, const char* name) {
  std::optional<SafetensorsFile> file;
  try {
    file = SafetensorsFile::open((checkpoint / name).string());
  } catch (const Error&) {
    static_cast<void>(check_saved_file(checkpoint, name));  // says more than that it cannot be read
    throw;
  }
  check_saved_file(checkpoint, name, file->file());
  return load_safetensors(*file);
}

// Everything that state.json holds.
void read_state(LoadedRun& run) {
  const std::string state_file = (run.checkpoint / "state.json").string();
  static_cast<void>(check_saved_file(run.checkpoint, "state.json"));
  try {
    json about = read_json_file(state_file);
    check_format(about, "run: " + state_file, kCheckpointFormat);
    if (about.contains("pass_tokens"))
      fail<FormatError>("run: {} has pass_tokens, which is epoch_tokens since 0.1.0 (train it anew)",
                        state_file);
    if (about.contains("numbers"))
      fail<FormatError>(
          "run: {} is of a program's own loop, without a configuration (its program goes on with it)",
          state_file);
    visit_state(run.config, run.tokenizer, run.state, StateReader(about, state_file));
  } catch (const json::exception& error) {
    fail<FormatError>("run: {} is damaged: {}", state_file, plain_message(error.what()));
  }
  if (const std::string wrong = misplacement(run.checkpoint, run.state.step, run.state.run_id);
      !wrong.empty())
    fail<FormatError>("run: {} is not in its place: {}", run.checkpoint.string(), wrong);
  run.step = run.state.step;
}

}  // namespace

LoadedRun load_run(const std::string& path, Dtype dtype, const std::string& which, Device device,
                   MatmulPrecision precision) {
  return reading_of_run(path, which, [&](const fs::path& checkpoint) {
    constexpr const char* kName = "model.safetensors";
    LoadedRun run;
    run.checkpoint = checkpoint;
    read_state(run);
    run.model = make_model(run.config.model, dtype, device, precision);
    load_parameters(run.model->params(), saved_tensors(checkpoint, kName), (checkpoint / kName).string());
    return run;
  });
}

void expect_data_of(const LoadedRun& run, TaskArguments& arguments) {
  arguments.expected_sha256 = run.state.text_sha256;
  arguments.expected_phases = run.state.text_phases;
  if (!run.state.data_folder.empty()) arguments.folders.push_back(run.state.data_folder);
  // The data may have been moved together with the run.
  for (fs::path folder = fs::absolute(run.checkpoint).lexically_normal(); folder != folder.parent_path();
       folder = folder.parent_path())
    arguments.folders.push_back(folder.parent_path().string());
}

RunConfig load_config_of_run(const std::string& path, const std::string& which) {
  return reading_of_run(path, which, [](const fs::path& checkpoint) {
    LoadedRun run;
    run.checkpoint = checkpoint;
    read_state(run);
    return run.config;
  });
}

void load_weights(const fs::path& checkpoint, ParamStore& params) {
  reading(checkpoint, [&] {
    constexpr const char* kName = "model.safetensors";
    load_parameters(params, saved_tensors(checkpoint, kName), (checkpoint / kName).string());
  });
}

void load_optimizer(const fs::path& checkpoint, Optimizer& optimizer) {
  reading(checkpoint, [&] {
    constexpr const char* kName = "optimizer.safetensors";
    optimizer.load(saved_tensors(checkpoint, kName), (checkpoint / kName).string());
  });
}

State load_recurrent(const fs::path& checkpoint) {
  return reading(checkpoint, [&] {
    constexpr const char* kName = "recurrent.safetensors";
    if (!check_saved_file(checkpoint, kName)) return State();
    return State::from_map(load_safetensors((checkpoint / kName).string()));
  });
}

}  // namespace eddy::training
