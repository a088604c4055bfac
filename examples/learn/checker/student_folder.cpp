// Copies exercises once, and reads and writes progress.json.
#include "examples/learn/checker/student_folder.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <system_error>

#include "tensor/base/error.h"
#include "tensor/base/format.h"
#include "train/files/folders.h"
#include "train/files/text_file.h"

namespace eddy::app {
using namespace training;
namespace {

namespace fs = std::filesystem;
constexpr const char* kFile = "progress.json";

}  // namespace

StudentFolder::StudentFolder(const fs::path& folder) : folder_(folder) {
  const fs::path file = folder / kFile;
  std::error_code error;
  if (!fs::exists(folder, error)) return;
  if (!fs::is_directory(folder, error))
    fail<IoError>("learn: {} is not a folder (name another: --folder)", folder.string());
  if (!fs::exists(file, error)) {
    if (fs::is_empty(folder, error)) return;
    fail<IoError>("learn: {} has other files and no {} (name another folder: --folder)", folder.string(),
                  kFile);
  }
  const nlohmann::json saved = read_json_file(file);
  try {
    right_ = saved.at("right").get<std::set<std::string>>();
    hints_ = saved.at("hints").get<std::map<std::string, int>>();
  } catch (const nlohmann::json::exception&) {
    fail<FormatError>("learn: {} is damaged (remove it to begin anew; the exercises stay)", file.string());
  }
}

bool StudentFolder::is_one(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / kFile, error);
}

void StudentFolder::save() const {
  const nlohmann::json saved{{"right", right_}, {"hints", hints_}};
  make_folders(folder_);
  replace_text_file(folder_ / kFile, saved.dump(1) + "\n");
}

bool StudentFolder::take(const fs::path& exercise) {
  const fs::path copy = folder_ / exercise.filename();
  std::error_code error;
  if (fs::exists(copy, error)) return false;
  save();  // first, so that the folder is known as one of exercises
  replace_text_file(copy, read_text_file(exercise));
  return true;
}

void StudentFolder::note_right(const std::string& name) {
  if (right_.insert(name).second) save();
}

int StudentFolder::next_hint(const std::string& name, int hints) {
  int& given = hints_[name];
  given = std::clamp(given + 1, 1, hints);
  save();
  return given;
}

}  // namespace eddy::app
