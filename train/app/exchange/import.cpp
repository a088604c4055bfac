// Begins a run as training does, and puts other weights into it before its first checkpoint.
#include "train/app/exchange/import.h"

#include <fmt/ranges.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "models/weights.h"
#include "tensor/base/format.h"
#include "tensor/files/safetensors.h"
#include "train/app/exchange/name_map.h"
#include "train/record/metrics.h"
#include "train/run/checkpoint.h"
#include "train/run/run_facts.h"
#include "train/run/run_start.h"
#include "train/words/human_text.h"
#include "train/words/program_name.h"

namespace eddy::app {
using namespace training;

std::string import_run(const ImportRequest& request) {
  namespace fs = std::filesystem;
  const NameMap map = read_name_map(request.map);
  std::map<std::string, Tensor> theirs;
  for (const std::string& file : request.weights)
    for (auto& [name, tensor] : load_safetensors(file))
      if (!theirs.emplace(name, std::move(tensor)).second)
        fail<FormatError>("import: {} has {} too (a tensor is in one file)", file, name);
  TrainRequest begin;
  begin.config = request.config;
  begin.run_dir = request.run_dir;
  ReadyRun run = prepare_run(begin);
  ParamStore& params = run.model->params();
  const CommonKeys& sizes = run.model->config();
  load_parameters(
      params,
      mapped_weights(map, theirs, params, sizes.head_dim > 0 ? sizes.head_dim : sizes.dim / sizes.heads),
      map.file);
  run.state.task = run.task->save().dump();
  open_folder(run, begin);
  try {
    save_checkpoint(run.folder, run.config, run.task->tokenizer(), *run.model, run.optimizer->save(), {},
                    run.state, false, run.config.train.keep);
    MetricsWriter metrics(run.folder / "metrics.jsonl");
    metrics.write(record_of(run));
    if (!request.command_line.empty()) metrics.write(CommandRecord{0, request.command_line});
    metrics.write(EventRecord{
        0, fmt::format("weights of {}, named by {}", fmt::join(request.weights, ", "), request.map)});
  } catch (...) {
    std::error_code ignored;
    if (run.made_folder) fs::remove_all(run.folder, ignored);
    throw;
  }
  return fmt::format("{}: {}, {} parameters, {} tensors read; go on with: {} train --resume {}",
                     run.folder.string(), run.config.model.model, grouped(params.count()), theirs.size(),
                     program_name(), shell_quoted(run.folder.string()));
}

}  // namespace eddy::app
