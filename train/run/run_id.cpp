// The file `id`, and the comparison of a checkpoint with its place.
#include "train/run/run_folder.h"

#include <map>
#include <random>
#include <string_view>
#include <utility>

#include "tensor/base/format.h"
#include "tensor/files/json_text.h"
#include "tensor/files/strict_json.h"
#include "train/files/digest.h"
#include "train/files/text_file.h"

namespace eddy::training {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kRandomDigits = 24, kDigits = 32;

// The last digits of an id, which tell a damaged one.
std::string check_digits(std::string_view random_digits) {
  Digest digest;
  digest.update(random_digits);
  return digest.hex().substr(0, kDigits - kRandomDigits);
}

bool is_id(std::string_view text) {
  return text.size() == kDigits && text.substr(kRandomDigits) == check_digits(text.substr(0, kRandomDigits));
}

// The id in the file of a run; empty when it holds none.
std::string read_id(const fs::path& run) {
  std::error_code error;
  const fs::path file = run / kRunIdFile;
  if (!fs::is_regular_file(file, error) || fs::file_size(file, error) != kDigits + 1) return "";
  const std::string text = read_text_file(file);
  return text.back() == '\n' && is_id(std::string_view(text).substr(0, kDigits)) ? text.substr(0, kDigits)
                                                                                 : "";
}

// The step and the id of the run in a checkpoint's state.json.
std::pair<std::int64_t, std::string> origin_of(const fs::path& checkpoint) {
  const fs::path file = checkpoint / "state.json";
  const JsonResult about = parse_strict_json(read_text_file(file));
  if (!about.ok() || !about.value.is_object())
    fail<FormatError>("checkpoint: {} is damaged: {}", file.string(),
                      about.ok() ? "it is no object" : about.problem);
  try {
    return {about.value.at("step").get<std::int64_t>(), about.value.value("run", std::string())};
  } catch (const nlohmann::json::exception& error) {
    fail<FormatError>("checkpoint: {} is damaged: {}", file.string(), plain_message(error.what()));
  }
}

}  // namespace

std::string new_run_id() {
  std::random_device device;
  std::string id;
  while (id.size() < kRandomDigits) id += fmt::format("{:08x}", device());
  return id + check_digits(id);
}

bool holds_run_id(const fs::path& run) {
  try {
    return !read_id(run).empty();
  } catch (const IoError&) {
    return false;
  }
}

std::string id_of_run(const fs::path& run) {
  if (holds_run_id(run)) return read_id(run);
  std::map<std::string, int> counts;
  std::string most;
  for (const fs::path& checkpoint : checkpoints_of_run(run)) {
    try {
      const std::string id = origin_of(checkpoint).second;
      if (is_id(id) && ++counts[id] >= counts[most]) most = id;  // of two equal counts the older checkpoint's
    } catch (const Error&) {                                     // other checks tell
    }
  }
  return most;
}

std::string misplacement(const fs::path& checkpoint, std::int64_t step, const std::string& run_id) {
  const fs::path place = fs::absolute(checkpoint).lexically_normal();
  if (const std::int64_t named = checkpoint_step(place); named >= 0 && named != step)
    return fmt::format("it is of step {} (give each checkpoint's folder the name of its own step)", step);
  if (run_id.empty() || place.parent_path().filename() != "checkpoints") return "";
  const fs::path run = place.parent_path().parent_path();
  const std::string own = id_of_run(run);
  if (own.empty() || own == run_id) return "";
  return fmt::format(
      "it is of another run: id {}, and that of {} is {} (move it to its own run; if the id is wrong, remove {})",
      run_id, run.string(), own, (run / kRunIdFile).string());
}

std::string misplacement(const fs::path& checkpoint) {
  const auto [step, run_id] = origin_of(checkpoint);
  return misplacement(checkpoint, step, run_id);
}

}  // namespace eddy::training
