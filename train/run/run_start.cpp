// Everything that is checked before a run begins, and the files it begins with.
#include "train/run/run_start.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "models/eddy/fit_params.h"
#include "models/eddy/registry.h"
#include "models/optimizer/optimizer.h"
#include "models/weights.h"
#include "ops/backends.h"
#include "ops/core/product_algorithms.h"
#include "ops/core/warnings.h"
#include "tensor/base/format.h"
#include "tensor/files/json_text.h"
#include "tensor/files/strict_json.h"
#include "tensor/threads/thread_pool.h"
#include "train/config/run_config.h"
#include "train/files/folders.h"
#include "train/files/standard_input.h"
#include "train/files/text_file.h"
#include "train/plan/memory_verdict.h"
#include "train/record/metrics.h"
#include "train/run/run_folder.h"
#include "train/step/shared_steps.h"
#include "train/text/new_rows.h"
#include "train/words/human_text.h"

namespace eddy::training {
namespace {

namespace fs = std::filesystem;

// A saved state on the model's device and in its dtype: a run may be resumed in another precision.
State placed(const State& saved, Dtype dtype, Device device) {
  State state;
  for (const auto& [name, tensor] : saved) {
    const Tensor cast = is_floating(tensor.dtype()) ? raw::cast(tensor, dtype) : tensor;
    state.set(name, raw::to_device(cast, device));
  }
  return state;
}

[[noreturn]] void fail_because_it_exists(const fs::path& run) {
  if (checkpoints_of_run(run).empty())
    fail<IoError>("train: {} exists and holds no checkpoint to continue from (choose another folder)",
                  run.string());
  fail<IoError>("train: {} exists (continue it with --resume {}, or choose another folder)", run.string(),
                shell_quoted(run.string()));
}

[[noreturn]] void fail_because_it_is_a_checkpoint(const fs::path& folder) {
  const fs::path run = fs::absolute(folder).parent_path().parent_path();
  const std::string name = checkpoint_step(folder) >= 0 ? folder.filename().string() : "step-N";
  fail<ValueError>(
      "train: {} is a checkpoint (to continue from it: --resume {} --checkpoint {}; to start a new run with "
      "its weights: --init-from {})",
      folder.string(), run.string(), name, folder.string());
}

void check_same_model(const RunConfig& config, const LoadedRun& loaded, bool resuming) {
  ModelConfig theirs = resolved(loaded.config.model), mine = resolved(config.model);
  std::vector<std::string> may_differ;
  if (!loaded.config.model.positions) may_differ.emplace_back("model.context");
  // Where a call of any length is one segment, the model does not depend on the key.
  if (make_unallocated_model(config.model)->segments(2 * mine.segment) == 1)
    may_differ.emplace_back("model.segment");
  std::string differ;
  for (const auto& [key, fields] : differences(keys_of(theirs), keys_of(mine))) {
    const auto& [had, has] = fields;
    if (has.is_read_by(mine.family, mine.model) && has.change == KeyChange::refused &&
        std::find(may_differ.begin(), may_differ.end(), key) == may_differ.end())
      differ += fmt::format("{}{} {} for {}", differ.empty() ? "" : ", ", has.key, value_of(has).dump(),
                            value_of(had).dump());
  }
  if (differ.empty()) return;
  fail<ConfigError>(
      "train: the configuration's model is not that of {}: {} (leave these keys out: {} takes the model of the run)",
      loaded.checkpoint.string(), differ, resuming ? "--resume" : "--init-from");
}

// Each row of a batch has its own state, which belongs to that row's data.
void check_same_rows(const RunConfig& config, std::int64_t batch) {
  if (config.train.batch != batch)
    fail<ConfigError>(
        "train: train.batch is {} and the run carries the state of {} rows (resume with the same batch, or "
        "start a new run with --init-from)",
        config.train.batch, batch);
}

// Points `best` to the checkpoint that the state names: the run may have ended between that checkpoint and
// the pointer to it, or the pointer is damaged.
void correct_best(const ReadyRun& run) {
  const fs::path folder = run.folder / "checkpoints", pointer = folder / "best";
  const std::string name = "step-" + std::to_string(run.state.best_step);
  if (run.state.best_step <= 0 || !fs::exists(folder / name / "state.json")) return;
  if (read_pointer(pointer).name != name) replace_text_file(pointer, name + "\n");
}

// Takes up the id of the run, or gives it one, and keeps it in its folder.
void keep_id(ReadyRun& run) {
  if (run.state.run_id.empty()) run.state.run_id = id_of_run(run.folder);
  if (run.state.run_id.empty()) run.state.run_id = new_run_id();
  if (!holds_run_id(run.folder)) replace_text_file(run.folder / kRunIdFile, run.state.run_id + "\n");
}

// A folder elsewhere is not the run's: what is not needed any more would be removed there.
void refuse_linked_checkpoints(const fs::path& run) {
  std::error_code error;
  if (fs::is_symlink(run / "checkpoints", error))
    fail<IoError>(
        "train: {} is a link, and a run writes only in its own folder (put the checkpoints there, or link the whole folder)",
        (run / "checkpoints").string());
}

// The files that a run begins with, but its checkpoint. A file of these names that is there may be left of a run
// that was killed before its first checkpoint, which its id tells, and it may be the user's own: without an id it
// stays, and so it must be what would be written.
// errors: IoError.
std::vector<std::pair<fs::path, std::string>> first_files(const ReadyRun& run) {
  std::vector<std::pair<fs::path, std::string>> wanted{
      {run.folder / "config.json", to_json(run.config).dump(1) + "\n"}};
  if (const Tokenizer* tokenizer = run.task->tokenizer()) {
    wanted.emplace_back(run.folder / "tokenizer.json", tokenizer->to_json() + "\n");
    if (std::string model = tokenizer->model_file(); !model.empty())
      wanted.emplace_back(run.folder / "tokenizer.model", std::move(model));
  }
  if (holds_standard_input()) wanted.emplace_back(run.folder / kKeptInput, standard_input());
  std::erase_if(wanted, [own = holds_run_id(run.folder)](const auto& file) {
    if (own || !fs::exists(fs::symlink_status(file.first))) return false;
    if (fs::is_regular_file(fs::symlink_status(file.first)) && read_text_file(file.first) == file.second)
      return true;
    fail<IoError>(
        "train: {} exists and is not what this run would write there (choose another folder, or, if it is left of "
        "a run that was killed at its start, remove it)",
        file.first.string());
  });
  return wanted;
}

std::unique_ptr<Task> task_of(const TrainRequest& request, const std::optional<LoadedRun>& loaded) {
  TaskArguments arguments;
  const RunConfig& config = arguments.config = request.config;
  arguments.messages = &std::cout;
  if (request.tokenizer != nullptr) {
    arguments.tokenizer = tokenizer_from_json(request.tokenizer->to_json());
    arguments.run = "the weights";
  }
  if (loaded) {
    if (loaded->tokenizer) arguments.tokenizer = tokenizer_from_json(loaded->tokenizer->to_json());
    arguments.run = loaded->checkpoint.string();
    if (!request.resume.empty()) {
      expect_data_of(*loaded, arguments);
      arguments.may_grow = request.data_given;
    } else {
      arguments.may_extend = true;
    }
    // Standard input that is named again is read again: what the run kept of it does not stand in its place.
    const DataPaths& path = config.data.path;
    const bool reads_input =
        request.data_given && std::find(path.begin(), path.end(), kStandardInput) != path.end();
    if (path != loaded->config.data.path || reads_input) arguments.folders.clear();
  }
  return make_task(std::move(arguments));
}

// Begins a new phase of the texts of a run. Losses of other texts are not compared with those from here on.
// errors: ConfigError when the run would not read them.
void begin_phase(ReadyRun& run, const LoadedRun& loaded) {
  std::vector<TextPhase>& phases = run.state.text_phases;
  run.has_grown = phases.size() > loaded.state.text_phases.size();
  if (!run.has_grown) return;
  if (run.state.step >= run.config.train.steps)
    fail<ConfigError>(
        "train: {} has done all its {} steps and would not read the new texts (give --train.steps N too, N above {})",
        run.folder.string(), run.config.train.steps, run.state.step);
  phases.back().step = run.state.step;
  run.state.best_loss = run.state.lowest_loss = std::numeric_limits<double>::infinity();
  run.state.best_step = -1;
  run.notes = fmt::format(
      "phase {} of the texts begins at step {}: {} came into {} (cut into training and validation on their own; the best "
      "loss is counted anew)",
      phases.size(), run.state.step, describe(phases.back()), run.config.data.path.text());
}

// The kernels of a run's record, with the choices that came after it: what ran then was the plain kernel.
std::string kernels_of_record(std::string recorded) {
  for (const detail::KernelRecord& choice : detail::kKernelRecords)
    if (("," + recorded).find(fmt::format(",{}=", choice.name)) == std::string::npos)
      recorded += fmt::format(",{}=plain", choice.name);
  return recorded;
}

// Keeps the kernels of the run, or says that they are others.
void take_kernels_of_run(const std::string& of_record) {
  const auto now = [] {
    const std::optional<GpuKernels> kernels = gpu_kernels();
    return kernels ? describe(*kernels) : "";
  };
  if (of_record.empty() || now().empty()) return;
  const std::string recorded = kernels_of_record(of_record);
  if (now() == recorded) return;
  try {
    set_automatic_kernels(recorded);
  } catch (const ValueError&) {   // this build does not know them
  } catch (const DeviceError&) {  // one is refused here
  }
  if (now() != recorded)
    add_warning(fmt::format(
        "the run goes on with other kernels, {}, and not with {}: its bits will differ from one go", now(),
        recorded));
}

// Multiplies by the algorithms of the run.
// errors: ConfigError where they cannot be had, unless others were asked for.
void take_algorithms_of_run(const LoadedRun& loaded) {
  const std::optional<GpuKernels> kernels = gpu_kernels();
  const bool takes_them = kernels && kernels->of("algorithms") == "timed";
  try {
    set_product_algorithms(takes_them ? loaded.state.algorithms : ProductAlgorithms());
  } catch (const DeviceError& error) {
    fail<ConfigError>(
        "train: {} multiplies by algorithms that were timed for it, and they cannot be had here: {} (with "
        "EDDY_KERNELS=algorithms=plain it goes on by cuBLASLt's first proposals: its bits will differ from one go)",
        loaded.checkpoint.string(), error.what());
  }
}

// Adam and AdamW keep the same moments; those of others would be taken for them where their shapes are the same.
void check_same_moments(const std::string& now, const LoadedRun& loaded) {
  const auto kind = [](const std::string& name) {
    return value_is(name, OptimizerName::adamw) ? std::string(value_name(OptimizerName::adam)) : name;
  };
  const std::string& before = loaded.config.train.optimizer;
  if (kind(now) != kind(before))
    fail<ConfigError>(
        "train: train.optimizer is {}, and {} holds the moments of {} (resume with the same, or start a new run from its "
        "weights with --init-from)",
        now, loaded.checkpoint.string(), before);
}

// Losses of other parts of a text cannot be compared, and a part that was trained on does not validate.
void check_same_parts(const DataConfig& now, const DataConfig& before) {
  if (task_reads(now, "split") && (now.split != before.split || now.test != before.test))
    fail<ConfigError>(
        "train: data.split is {} and data.test {}, and the run cut its text by {} and {} (leave them out, or start a new run "
        "from its weights with --init-from)",
        now.split, now.test, before.split, before.test);
  if (task_reads(now, "separator") &&
      (now.separator != before.separator || now.json_field != before.json_field))
    fail<ConfigError>(
        "train: data.separator is {} and data.json_field {}, and the run cut its files by {} and {} (leave them out, or "
        "start a new run from its weights with --init-from)",
        quote_text(now.separator), quote_text(now.json_field), quote_text(before.separator),
        quote_text(before.json_field));
}

// Moments are kept in f64 or in f32, whatever products compute in.
void check_same_dtype(const std::string& now, const std::string& before) {
  if ((precision_dtype(now) == Dtype::f64) != (precision_dtype(before) == Dtype::f64))
    fail<ConfigError>(
        "train: train.precision is {}, and the run kept its moments in that of {} (leave it out, or start a new run from its "
        "weights with --init-from)",
        now, before);
}

// Takes up the state of a run where its checkpoint left it.
void resume(ReadyRun& run, const LoadedRun& loaded) {
  const bool carries = run.task->carries_state();
  const State saved = carries ? load_recurrent(loaded.checkpoint) : State();
  if (!saved.empty()) check_same_rows(run.config, loaded.config.train.batch);
  check_same_moments(run.config.train.optimizer, loaded);
  check_same_dtype(run.config.train.precision, loaded.config.train.precision);
  check_same_parts(run.config.data, loaded.config.data);
  load_optimizer(loaded.checkpoint, *run.optimizer);
  run.state = loaded.state;
  const bool no_rollback = value_is(run.config.train.rollback, RollbackRule::off);
  if (no_rollback) run.state.good_step = run.state.candidate_step = -1;
  // Switched on only now: then the run may go back to where it begins.
  if (!no_rollback && value_is(loaded.config.train.rollback, RollbackRule::off))
    run.state.candidate_step = run.state.step;
  run.planned_steps = loaded.config.train.steps;
  run.state.learned = loaded.state.learned && run.config.data.stop_loss == loaded.config.data.stop_loss;
  run.is_latest = read_pointer(run.folder / "checkpoints" / "latest").name == loaded.checkpoint.filename();
  const std::string state_file = (loaded.checkpoint / "state.json").string();
  run.task->load(json_of_text(run.state.task, state_file), state_file);
  const Tensor& values = run.model->params().values();
  if (carries) run.carried = {placed(saved, values.dtype(), values.device()), loaded.config.train.batch};
}

}  // namespace

ReadyRun prepare_run(const TrainRequest& request) {
  ReadyRun run;
  run.config = request.config;
  const TrainConfig& t = run.config.train;
  if (request.ranks != nullptr)
    check_ranks("train", "train.micro_batches", run.config, request.ranks->size());
  if (t.threads > 0) set_thread_count(static_cast<int>(t.threads));
  const auto [device, dtype, precision] =
      choose_device_precision({"train", "train.device", "train.precision"}, t.device, t.precision);
  const bool resuming = !request.resume.empty();
  run.folder = resuming ? request.resume : request.run_dir;
  if (run.folder.empty())
    fail<ValueError>("train: the run has no folder (--run DIR for a new one, --resume DIR)");
  if (!run.folder.has_filename()) run.folder = run.folder.parent_path();  // "runs/a/" becomes "runs/a"
  std::error_code error;
  if (!resuming && fs::exists(run.folder, error) && !ended_before_first_checkpoint(run.folder))
    fail_because_it_exists(run.folder);
  if (resuming && fs::exists(run.folder / "state.json", error)) fail_because_it_is_a_checkpoint(run.folder);
  if (resuming && fs::is_directory(run.folder, error))  // else load_run says more
    run.lock = std::make_unique<RunLock>(run.folder);

  std::optional<LoadedRun> loaded;
  if (const std::string& from = resuming ? request.resume : request.init_from; !from.empty())
    loaded = load_run(from, dtype, request.checkpoint);
  if (resuming && device != kCpu) {
    take_kernels_of_run(loaded->state.kernels);
    take_algorithms_of_run(*loaded);
  }
  const std::int64_t before_text = resident_bytes();
  run.task = task_of(request, loaded);
  if (request.data_given && !run.task->reads_files())
    fail<ConfigError>("train: the task {} generates its examples (leave out --data)", run.config.data.name);
  if (request.own_data_path && (!loaded || run.config.data.path != loaded->config.data.path))
    check_data_is_read(*run.task, run.config);
  if (loaded && !resuming && loaded->tokenizer && run.task->tokenizer() != nullptr) {
    run.notes =
        take_new_tokens(run.config.model, *loaded->tokenizer, *run.task->tokenizer(), request.init_from);
  }
  run.task->set_model_sizes(run.config.model);
  fit_params(run.config.model);
  const bool has_new_rows = !run.notes.empty();
  if (has_new_rows) {
    ModelConfig& theirs = loaded->config.model;
    if (theirs.n_out == theirs.vocab) theirs.n_out = run.config.model.n_out;
    theirs.vocab = run.config.model.vocab;
  }
  if (loaded) check_same_model(run.config, *loaded, resuming);
  const std::unique_ptr<Model> form = make_unallocated_model(run.config.model);
  form->check_recompute(recompute_named(t.recompute));
  if (run.task->row_length() > 0) form->check_length(run.task->row_length(), run.task->carries_state());
  const PlannedRun planned = planned_run(run.config, {device, dtype, precision}, *run.task, before_text);
  run.memory = require_memory("train", planned);
  if (!resuming && device != kCpu) {
    if (request.choose_kernels) request.choose_kernels(planned);
    const std::string note = request.precision_note ? request.precision_note(planned) : "";
    if (!note.empty()) run.notes += (has_new_rows ? "\n" : "") + note;
  }
  run.model = make_model(run.config.model, dtype, device, precision);
  ParamStore& params = run.model->params();
  if (!loaded || has_new_rows) params.initialize(static_cast<std::uint64_t>(t.seed));
  if (loaded)
    load_parameters(params, with_new_rows(parameter_map(loaded->model->params()), params),
                    loaded->checkpoint.string());
  run.optimizer = make_optimizer(params, t);
  if (resuming) resume(run, *loaded);
  run.state.kernels = device == kCpu ? "" : describe(gpu_kernels().value());
  run.state.algorithms = device == kCpu ? ProductAlgorithms() : product_algorithms();
  run.state.text_sha256 = run.task->data_sha256();
  run.state.text_phases = run.task->data_phases();
  if (resuming) begin_phase(run, *loaded);
  if (!resuming || run.config.data.path != loaded->config.data.path)
    run.state.data_folder = fs::current_path(error).string();
  return run;
}

namespace {

// Whether the run's files could be written. A resume writes its checkpoints into a folder that is there.
// errors: IoError.
void check_writable(const ReadyRun& run, bool resuming) {
  std::error_code error;
  const std::string name = run.folder.string();
  if (resuming) {
    refuse_linked_checkpoints(run.folder);
    const fs::path checkpoints = run.folder / "checkpoints";
    if (::access(checkpoints.c_str(), W_OK | X_OK) != 0)
      fail<IoError>(
          "train: {} cannot be written: {}: {}, so nothing that is learned could be saved (give yourself the right to "
          "write there, or resume a copy of the run)",
          name, checkpoints.string(), std::strerror(errno));
    return;
  }
  if (fs::is_symlink(run.folder, error) && !fs::exists(run.folder, error))
    fail<IoError>("train: {} cannot be made: it is a link to nothing (remove it, or choose another)", name);
  fs::path place = fs::absolute(run.folder).lexically_normal();
  while (!fs::exists(place, error) && place.has_relative_path()) place = place.parent_path();
  if (!fs::is_directory(place, error))
    fail<IoError>("train: {} cannot be made: {} is no folder (choose another)", name, place.string());
  if (::access(place.c_str(), W_OK | X_OK) != 0)
    fail<IoError>(
        "train: {} cannot be written: {}: {} (choose another, or give yourself the right to write there)",
        name, place.string(), std::strerror(errno));
}

}  // namespace

void check_folder(const ReadyRun& run, const TrainRequest& request) {
  check_writable(run, !request.resume.empty());
  if (request.resume.empty()) static_cast<void>(first_files(run));
}

void open_folder(ReadyRun& run, const TrainRequest& request) {
  check_writable(run, !request.resume.empty());
  if (!request.resume.empty()) {
    if (holds_standard_input()) replace_text_file(run.folder / kKeptInput, standard_input());
    release_standard_input();
    remove_left_overs(run.folder);
    set_aside_obstacles(run.folder);
    keep_id(run);
    correct_best(run);
    return;
  }
  const fs::path parent = run.folder.has_parent_path() ? run.folder.parent_path() : ".";
  try {
    make_folders(parent);
  } catch (const IoError& refused) {
    fail<IoError>("train: {} cannot be made: {}", run.folder.string(), refused.what());
  }
  // create_directory is atomic: of two programs that begin the same run only one continues.
  std::error_code error;
  const bool made = fs::create_directory(run.folder, error);
  if (error) fail<IoError>("train: {} cannot be made: {}", run.folder.string(), error.message());
  run.lock = std::make_unique<RunLock>(run.folder);
  // Looked at again under the lock: by now it may be the run of another process.
  if (!made && !ended_before_first_checkpoint(run.folder)) fail_because_it_exists(run.folder);
  run.made_folder = made;
  flush_folder(parent);
  for (const auto& [path, text] : first_files(run)) replace_text_file(path, text);
  release_standard_input();
  if (!made) fs::remove(run.folder / "metrics.jsonl", error);  // of the run that ended before its first one
  remove_left_overs(run.folder);
  set_aside_obstacles(run.folder);
  keep_id(run);
}

std::string dry_run(const TrainRequest& request) {
  const ReadyRun run = prepare_run(request);
  check_folder(run, request);
  const std::string beginning = run.task->beginning();
  return fmt::format("{}nothing was made; {} would {}: {} on {}, {} parameters, {}, {} of memory",
                     beginning.empty() ? "" : fmt::format("the text begins: {}\n", quote_text(beginning)),
                     run.folder.string(), request.resume.empty() ? "begin" : "go on", run.config.model.model,
                     run.task->name(), run.model->params().count(), run.task->summary(),
                     human_bytes(run.memory.peak));
}

}  // namespace eddy::training
