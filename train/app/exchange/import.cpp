// Begins a run as training does, and puts other weights into it before its first checkpoint.
#include "train/app/exchange/import.h"

#include <fmt/ranges.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>

#include "models/weights.h"
#include "ops/core/warnings.h"
#include "tensor/base/format.h"
#include "tensor/files/safetensors.h"
#include "train/app/exchange/export.h"
#include "train/app/exchange/foreign_llama.h"
#include "train/app/exchange/foreign_tokenizer.h"
#include "train/app/exchange/gguf.h"
#include "train/app/exchange/name_map.h"
#include "train/config/run_config.h"
#include "train/files/text_file.h"
#include "train/record/metrics.h"
#include "train/run/checkpoint.h"
#include "train/run/run_facts.h"
#include "train/run/run_start.h"
#include "train/words/human_text.h"
#include "train/words/program_name.h"

namespace eddy::app {
using namespace training;
namespace {

namespace fs = std::filesystem;

// Tensors by name, of the files that were named.
class TensorFiles {
 public:
  // Reads a file, the files of an index, or those of a folder as programs write them.
  void add(const fs::path& path) {
    std::error_code error;
    if (path.extension() == ".json") return add_index(path);
    if (!fs::is_directory(path, error)) return add_file(path);
    const fs::path index = path / "model.safetensors.index.json", whole = path / "model.safetensors";
    if (fs::exists(index, error)) return add_index(index);
    if (fs::exists(whole, error)) return add_file(whole);
    for (const char* const other : {"pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5",
                                    "flax_model.msgpack", "consolidated.00.pth"})
      if (const fs::path weights = path / other; fs::exists(weights, error)) {
        if (weights.extension() == ".json") return add_index(weights);
        return add_file(weights);  // which says what it is
      }
    fail<IoError>("import: {} is a folder without {} and {} (name the files with weights)", path.string(),
                  whole.filename().string(), index.filename().string());
  }
  const std::map<std::string, Tensor>& tensors() const { return tensors_; }

 private:
  void add_file(const fs::path& file) {
    for (auto& [name, tensor] : load_safetensors(file.string()))
      if (!tensors_.emplace(name, std::move(tensor)).second)
        fail<FormatError>("import: {} has {} too (a tensor is in one file)", file.string(), name);
  }
  // The file that each tensor is in stands under "weight_map".
  void add_index(const fs::path& index) {
    const nlohmann::json content = read_json_file(index);
    const auto files = content.is_object() ? content.find("weight_map") : content.end();
    if (!content.is_object() || files == content.end() || !files->is_object())
      fail<FormatError>(
          "import: {} is no index of weights: it has no \"weight_map\" (name the safetensors files)",
          index.string());
    std::set<std::string> shards;
    for (const auto& [name, file] : files->items()) {
      const std::string shard = file.is_string() ? file.get<std::string>() : std::string();
      if (shard.empty() || fs::path(shard).filename() != shard)
        fail<FormatError>("import: {}: the file of {} is {} (a file beside the index)", index.string(), name,
                          file.dump());
      shards.insert(shard);
    }
    std::error_code error;
    for (const std::string& shard : shards)
      if (!fs::exists(index.parent_path() / shard, error))
        fail<IoError>("import: {} names {} {}, of which {} is not there (fetch it into the same folder)",
                      index.string(), shards.size(), plural(shards.size(), "file"), shard);
    for (const std::string& shard : shards) add_file(index.parent_path() / shard);
    for (const auto& [name, file] : files->items())
      if (!tensors_.contains(name))
        fail<FormatError>("import: {} says that {} is in {}, which lacks it (fetch the files again)",
                          index.string(), name, file.get<std::string>());
  }

  std::map<std::string, Tensor> tensors_;
};

// Eddy's own names, for what it exported.
NameMap own_names(const std::string& path) {
  NameMap map;
  map.file = path;
  map.names.emplace_back("*", "*");
  return map;
}

DescribedModel described_by_gguf(const fs::path& file, bool ids) {
  GgufFile read = read_gguf(file.string());
  DescribedModel described{model_of_gguf(read, file.string()), {}, llama_names(ModelForm::gguf), {}};
  described.tokenizer =
      ids ? ids_tokenizer(described.model.vocab) : tokenizer_of_gguf(read.values, file.string());
  described.tensors = std::move(read.tensors);
  return described;
}

}  // namespace

DescribedModel read_described_model(const std::string& path, bool ids) {
  std::error_code error;
  const fs::path folder = path, config = folder / "config.json", gguf = folder / "model.gguf";
  if (!fs::exists(folder, error))
    fail<IoError>("import: there is no {} (a folder or a file with weights)", path);
  if (folder.extension() == ".gguf") return described_by_gguf(folder, ids);
  if (fs::is_directory(folder, error) && fs::exists(gguf, error)) return described_by_gguf(gguf, ids);
  if (fs::is_regular_file(folder, error) && folder.extension() != ".json")  // one of another kind is named
    static_cast<void>(load_safetensors(path, [](const std::string&) { return false; }));
  if (const fs::path around = folder.has_parent_path() ? folder.parent_path() : fs::path(".");
      fs::is_regular_file(folder, error) && fs::exists(around / "config.json", error))
    fail<IoError>("import: {} does not say what its model is (name its folder {}, which has config.json)",
                  path, around.string());
  if (!fs::is_directory(folder, error) || !fs::exists(config, error))
    fail<IoError>(
        "import: {} does not say what its model is (a folder with config.json, or a GGUF file; of any other tensors "
        "--map says which parameters they become)",
        path);
  const nlohmann::json content = read_json_file(config);
  const bool own = content.is_object() && content.contains("family");
  DescribedModel described{
      own ? model_config_from_json(content, config.string()) : model_of_huggingface(content, config.string()),
      {},
      own ? own_names(path) : llama_names(ModelForm::huggingface),
      {}};
  described.tokenizer = ids ? ids_tokenizer(described.model.vocab) : tokenizer_of_folder(folder);
  TensorFiles files;
  files.add(folder);
  described.tensors = files.tensors();
  return described;
}

std::string import_run(const ImportRequest& request) {
  const bool described = request.described.has_value();
  const NameMap map = described ? request.described->map : read_name_map(request.map);
  TensorFiles files;
  if (!described)
    for (const std::string& path : request.weights) files.add(path);
  const std::map<std::string, Tensor>& tensors = described ? request.described->tensors : files.tensors();
  TrainRequest begin;
  if (described) begin.tokenizer = request.described->tokenizer;
  begin.config = request.config;
  begin.run_dir = request.run_dir;
  if (described && !begin.tokenizer && begin.config.data.tokenizer == DataConfig().tokenizer)
    add_warning(fmt::format(
        "warning: {} {} no tokenizer, and its tokens are taken for the characters of the text (--data.tokenizer gives "
        "that of the weights; with ids the texts are token ids)",
        fmt::join(request.weights, ", "), request.weights.size() == 1 ? "has" : "have"));
  ReadyRun run = prepare_run(begin);
  ParamStore& params = run.model->params();
  const CommonKeys& sizes = run.model->config();
  const MappedWeights weights =
      mapped_weights(map, tensors, params, sizes.head_dim > 0 ? sizes.head_dim : sizes.dim / sizes.heads);
  load_parameters(params, weights.values, map.file);
  run.state.task = run.task->save().dump();
  open_folder(run, begin);
  try {
    save_checkpoint(run.folder, run.config, run.task->tokenizer(), *run.model, run.optimizer->save(), {},
                    run.state, false, run.config.train.keep);
    MetricsWriter metrics(run.folder / "metrics.jsonl");
    metrics.write(record_of(run));
    if (!request.command_line.empty()) metrics.write(CommandRecord{0, request.command_line});
    metrics.write(EventRecord{
        0, fmt::format("weights of {}, named by {}", fmt::join(request.weights, ", "), map.file)});
  } catch (...) {
    std::error_code ignored;
    if (run.made_folder) fs::remove_all(run.folder, ignored);
    throw;
  }
  std::string copies;
  for (const std::string& copy : weights.copies) copies += copy + ", which the model needs once\n";
  return fmt::format("{}{}: {}, {} parameters, {} tensors read; go on with: {} train --resume {}", copies,
                     run.folder.string(), run.config.model.model, grouped(params.count()), tensors.size(),
                     program_name(), shell_quoted(run.folder.string()));
}

}  // namespace eddy::app
