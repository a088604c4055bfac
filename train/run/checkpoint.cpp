// Writing and reading checkpoints.
#include "train/run/checkpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "tensor/base/format.h"
#include "tensor/files/safetensors.h"
#include "train/files/text_file.h"
#include "train/run/weights.h"

namespace eddy {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

void flush_folder(const fs::path& folder) {
  const int file = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) fail<IoError>("checkpoint: cannot open {}: {}", folder.string(), std::strerror(errno));
  const int result = ::fsync(file);
  const int error = errno;
  ::close(file);
  if (result != 0) fail<IoError>("checkpoint: cannot flush {}: {}", folder.string(), std::strerror(error));
}

std::int64_t step_of(const fs::path& folder) {
  const std::string name = folder.filename().string();
  if (!name.starts_with("step-") || name.size() == 5 || name.size() > 20) return -1;
  if (!std::all_of(name.begin() + 5, name.end(), [](char c) { return c >= '0' && c <= '9'; })) return -1;
  return std::stoll(name.substr(5));
}

std::string pointed_at(const fs::path& pointer) {
  if (!fs::exists(pointer)) return {};
  std::string name = read_text_file(pointer);
  while (!name.empty() && (name.back() == '\n' || name.back() == '\r')) name.pop_back();
  return name;
}

// Removes all checkpoints but the newest `keep` and the best, and what a killed run left half-written.
void prune(const fs::path& folder, std::int64_t keep) {
  std::vector<fs::path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename().string().starts_with(".tmp-")) fs::remove_all(entry.path());
    if (step_of(entry.path()) >= 0) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end(),
            [](const fs::path& a, const fs::path& b) { return step_of(a) > step_of(b); });
  const std::string best = pointed_at(folder / "best"), latest = pointed_at(folder / "latest");
  for (std::size_t i = static_cast<std::size_t>(std::max<std::int64_t>(keep, 1)); i < found.size(); ++i)
    if (found[i].filename() != best && found[i].filename() != latest) fs::remove_all(found[i]);
}

// Renames the new checkpoint to its name. When the step was saved before (as the best, or before a resume),
// the two folders are exchanged atomically: `latest` may name the old one, and a kill between its removal and
// the rename would leave `latest` pointing to nothing.
void put_in_place(const fs::path& temporary, const fs::path& target) {
  if (!fs::exists(target)) {
    fs::rename(temporary, target);
    return;
  }
  if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) != 0) {
    const int error = errno;
    if (error != EINVAL && error != ENOSYS)
      fail<IoError>("checkpoint: cannot replace {}: {}", target.string(), std::strerror(error));
    // Some file systems (network mounts) cannot exchange; the time without a checkpoint is then kept short.
    const fs::path old = target.parent_path() / (".tmp-old-" + target.filename().string());
    fs::remove_all(old);
    fs::rename(target, old);
    fs::rename(temporary, target);
    fs::remove_all(old);
    return;
  }
  fs::remove_all(temporary);  // holds the old checkpoint now
}

json number_or_null(double value) {
  return std::isfinite(value) ? json(value) : json(nullptr);
}

}  // namespace

fs::path save_checkpoint(const fs::path& run_dir, const RunConfig& config, const Tokenizer* tokenizer,
                         const Model& model, const Optimizer& optimizer, const State& recurrent,
                         const TrainingState& state, bool is_best, std::int64_t keep) {
  const fs::path folder = run_dir / "checkpoints";
  const std::string name = "step-" + std::to_string(state.step);
  const fs::path temporary = folder / (".tmp-" + name), target = folder / name;
  try {
    fs::create_directories(folder);
    fs::remove_all(temporary);
    fs::create_directory(temporary);
    save_safetensors((temporary / "model.safetensors").string(), parameter_map(model.params()));
    save_safetensors((temporary / "optimizer.safetensors").string(), optimizer.save(model.params()));
    if (!recurrent.empty())
      save_safetensors((temporary / "recurrent.safetensors").string(), recurrent.to_map());
    const json about{{"format", 1},
                     {"config", to_json(config)},
                     {"tokenizer", tokenizer != nullptr ? json::parse(tokenizer->to_json()) : json()},
                     {"step", state.step},
                     {"tokens", state.tokens},
                     {"seconds", state.seconds},
                     {"best_loss", number_or_null(state.best_loss)},
                     {"best_step", state.best_step},
                     {"text_sha256", state.text_sha256},
                     {"task", json::parse(state.task)}};
    replace_text_file(temporary / "state.json", about.dump(1) + "\n");
    flush_folder(temporary);
    put_in_place(temporary, target);
    flush_folder(folder);
    if (is_best) replace_text_file(folder / "best", name + "\n");
    replace_text_file(folder / "latest", name + "\n");
    prune(folder, keep);
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

namespace {

fs::path checkpoint_behind(const std::string& path, const std::string& which) {
  const fs::path given(path);
  std::error_code error;
  if (!fs::is_directory(given, error))
    fail<IoError>("run: {} is not a folder (a run, or a checkpoint in it)", path);
  if (fs::exists(given / "state.json", error)) return given;
  const fs::path folder = given / "checkpoints";
  const std::string name = pointed_at(folder / which);
  if (name.empty())
    fail<IoError>("run: {} holds no checkpoint ({} is missing)", path, (folder / which).string());
  const fs::path found = folder / name;
  if (step_of(found) < 0 || !fs::exists(found / "state.json", error))
    fail<FormatError>("run: {} names {:?}, which is no checkpoint", (folder / which).string(), name);
  return found;
}

}  // namespace

LoadedRun load_run(const std::string& path, Dtype dtype, const std::string& which, Device device) {
  LoadedRun run;
  run.checkpoint = checkpoint_behind(path, which);
  const std::string state_file = (run.checkpoint / "state.json").string();
  json about;
  try {
    about = json::parse(read_text_file(state_file));
    if (about.at("format") != 1)
      fail<FormatError>("run: {} has format {} (this version reads 1)", state_file,
                        about.at("format").dump());
    run.state.step = about.at("step").get<std::int64_t>();
    run.state.tokens = about.at("tokens").get<std::int64_t>();
    run.state.seconds = about.at("seconds").get<double>();
    if (!about.at("best_loss").is_null()) run.state.best_loss = about.at("best_loss").get<double>();
    run.state.best_step = about.at("best_step").get<std::int64_t>();
    run.state.text_sha256 = about.value("text_sha256", std::string());
    run.config = run_config_from_json(about.at("config"), state_file);
    run.state.task = about.value("task", json()).dump();
    if (!about.at("tokenizer").is_null()) run.tokenizer = tokenizer_from_json(about.at("tokenizer").dump());
  } catch (const json::exception& error) {
    fail<FormatError>("run: {} is damaged: {}", state_file, error.what());
  }
  run.step = run.state.step;
  run.model = make_model(run.config.model, dtype, device);
  const std::string weights = (run.checkpoint / "model.safetensors").string();
  load_parameters(run.model->params(), load_safetensors(weights), weights);
  return run;
}

void load_optimizer(const fs::path& checkpoint, const Model& model, Optimizer& optimizer) {
  const std::string file = (checkpoint / "optimizer.safetensors").string();
  optimizer.load(model.params(), load_safetensors(file), file);
}

State load_recurrent(const fs::path& checkpoint) {
  const fs::path file = checkpoint / "recurrent.safetensors";
  std::error_code error;
  return fs::exists(file, error) ? State::from_map(load_safetensors(file.string())) : State();
}

}  // namespace eddy
