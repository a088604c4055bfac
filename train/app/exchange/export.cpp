// Writes the files; logits.py is embedded.
#include "train/app/exchange/export.h"

#include <nlohmann/json.hpp>
#include <string_view>

#include "models/weights.h"
#include "tensor/base/format.h"
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

}  // namespace

bool has_python(const std::string& model) {
  const std::size_t table = kLogitsProgram.find("LAYERS = {");
  return kLogitsProgram.find(fmt::format("\"{}\": (", model), table) != std::string_view::npos;
}

Exported export_model(const Model& model, const Tokenizer* tokenizer, const fs::path& folder) {
  std::error_code error;
  const bool is_there = fs::exists(fs::symlink_status(folder, error));
  if (is_there && (!fs::is_directory(folder, error) || !fs::is_empty(folder, error)))
    fail<IoError>("export: {} exists and is no empty folder (choose another)", folder.string());
  make_folders(folder);
  Exported exported;
  const auto write = [&](const char* name, const auto& how) {
    exported.files.emplace_back(name);
    how(folder / name);
  };
  const auto write_text = [&](const char* name, const std::string& text) {
    write(name, [&](const fs::path& path) { replace_text_file(path, text); });
  };
  try {
    write("model.safetensors", [&](const fs::path& path) { save_weights(model.params(), path.string()); });
    write_text("config.json", training::to_json(model.full_config()).dump(1) + "\n");
    if (tokenizer != nullptr) {
      write_text("tokenizer.json", tokenizer->to_json() + "\n");
      if (const std::string file = tokenizer->model_file(); !file.empty())
        write_text("tokenizer.model", file);
    }
    exported.has_program = has_python(model.full_config().model);
    if (exported.has_program) write_text("logits.py", std::string(kLogitsProgram));
  } catch (...) {
    for (const std::string& name : exported.files) fs::remove(folder / name, error);
    if (!is_there) fs::remove(folder, error);
    throw;
  }
  return exported;
}

}  // namespace eddy::app
