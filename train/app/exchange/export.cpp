// Writes the files; logits.py and the names of Llama weights are embedded.
#include "train/app/exchange/export.h"

#include <unistd.h>

#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "models/weights.h"
#include "tensor/base/format.h"
#include "tensor/files/atomic_file.h"
#include "tensor/files/safetensors.h"
#include "train/app/exchange/foreign_tokenizer.h"
#include "train/config/run_config.h"
#include "train/files/folders.h"
#include "train/files/text_file.h"

namespace eddy::app {
using namespace training;
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kLogitsProgram =
#include "embedded/train/app/exchange/logits.py"
    ;

constexpr std::string_view kHuggingFaceNames =
#include "embedded/train/app/exchange/llama.toml"
    ;
constexpr std::string_view kGgufNames =
#include "embedded/train/app/exchange/gguf.toml"
    ;

constexpr std::array<const char*, 7> kFiles = {"model.safetensors", "config.json", "tokenizer.json",
                                               "tokenizer.model",   "logits.py",   "tokenizer_config.json",
                                               "model.gguf"};
constexpr const char* kMark = "export";

// Removes what an export that was interrupted left in a folder: while one writes, a file of its own stands there, whose
// name says which process it is (tensor/files/atomic_file.h). Without that the files may be the user's.
void remove_interrupted(const fs::path& folder) {
  std::vector<fs::path> left;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with(kMark) && is_left_over(name)) left.push_back(entry->path());
  }
  if (left.empty()) return;
  for (const char* name : kFiles) {
    remove_left_overs_of((folder / name).string());
    fs::remove(folder / name, error);
  }
  for (const fs::path& mark : left) fs::remove(mark, error);
}

}  // namespace

bool has_python(const std::string& model) {
  const std::size_t table = kLogitsProgram.find("LAYERS = {");
  return kLogitsProgram.find(fmt::format("\"{}\": (", model), table) != std::string_view::npos;
}

NameMap llama_names(ModelForm form) {
  return name_map_of(form == ModelForm::gguf ? config_from_toml(kGgufNames, "gguf.toml")
                                             : config_from_toml(kHuggingFaceNames, "llama.toml"));
}

Exported export_model(const Model& model, const Tokenizer* tokenizer, const fs::path& folder,
                      ModelForm form) {
  const ModelConfig& config = model.full_config();
  check_exportable(config, form);
  if (form == ModelForm::gguf && tokenizer != nullptr) check_gguf_tokenizer(*tokenizer);
  std::error_code error;
  const bool is_there = fs::exists(fs::symlink_status(folder, error));
  if (is_there) remove_interrupted(folder);
  if (is_there && (!fs::is_directory(folder, error) || !fs::is_empty(folder, error)))
    fail<IoError>("export: {} exists and is no empty folder (choose another)", folder.string());
  make_folders(folder);
  const fs::path mark = folder / fmt::format("{}.tmp-{}-0", kMark, ::getpid());
  Exported exported;
  const auto write = [&](const char* name, const auto& how) {
    exported.files.emplace_back(name);
    how(folder / name);
  };
  const auto write_text = [&](const char* name, const std::string& text) {
    write(name, [&](const fs::path& path) { replace_text_file(path, text); });
  };
  try {
    replace_text_file(mark, "");
    const auto theirs = [&] {
      return renamed_weights(llama_names(form), model.params(), config.dim / config.heads);
    };
    if (form == ModelForm::gguf) {
      GgufFile file{gguf_config(config), theirs()};
      file.values.merge(gguf_tokenizer(tokenizer, config.vocab));
      write("model.gguf", [&](const fs::path& path) { write_gguf(path.string(), file); });
    } else if (form == ModelForm::huggingface) {
      write("model.safetensors", [&](const fs::path& path) {
        save_safetensors(path.string(), theirs(), {{"format", "pt"}});
      });
      write_text("config.json", huggingface_config(config).dump(1) + "\n");
      if (tokenizer != nullptr)
        for (const auto& [name, text] : huggingface_tokenizer(*tokenizer, config.context))
          write_text(name.c_str(), text);
    } else {
      write("model.safetensors", [&](const fs::path& path) { save_weights(model.params(), path.string()); });
      write_text("config.json", training::to_json(config).dump(1) + "\n");
      if (tokenizer != nullptr) {
        write_text("tokenizer.json", tokenizer->to_json() + "\n");
        if (const std::string file = tokenizer->model_file(); !file.empty())
          write_text("tokenizer.model", file);
      }
      exported.has_program = has_python(config.model);
      if (exported.has_program) write_text("logits.py", std::string(kLogitsProgram));
    }
    fs::remove(mark);
    flush_folder(folder);
  } catch (...) {
    for (const std::string& name : exported.files) fs::remove(folder / name, error);
    fs::remove(mark, error);
    if (!is_there) fs::remove(folder, error);
    throw;
  }
  return exported;
}

}  // namespace eddy::app
