// Lines of `digests` to and from text, and the checks of a checkpoint's files against them.
#include "train/run/digests.h"

#include <algorithm>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <string_view>

#include "ops/core/warnings.h"
#include "tensor/base/format.h"
#include "train/files/digest.h"
#include "train/files/text_file.h"
#include "train/run/run_folder.h"

namespace eddy::training {
namespace {

namespace fs = std::filesystem;
using Digests = std::map<std::string, FileDigest>;  // by the file's name

constexpr const char* kNeeded[] = {"model.safetensors", "optimizer.safetensors", "state.json"};
constexpr const char* kOptional = "recurrent.safetensors";  // of models that carry a state

// Reads one line; nothing when it is no such line.
std::optional<std::pair<std::string, FileDigest>> line_of(const std::string& line) {
  static const std::regex kLine("([0-9a-f]{32})  ([0-9]{1,18})  ([^/]+)");
  constexpr std::size_t kLongest = 512;  // a file's name has 255 bytes at most
  std::smatch parts;
  if (line.size() > kLongest || !std::regex_match(line, parts, kLine)) return std::nullopt;
  return std::pair{parts[3].str(), FileDigest{std::stoll(parts[2]), parts[1]}};
}

// The digests of a checkpoint.
// errors: FormatError when they are damaged or missing; IoError.
Digests read_digests(const fs::path& checkpoint) {
  const fs::path file = checkpoint / kDigestsFile;
  // A file that cannot be examined is read, so that the error says why.
  std::error_code ignored;
  if (fs::symlink_status(file, ignored).type() == fs::file_type::not_found)
    fail<FormatError>("checkpoint: {} is missing: the checkpoint is not whole without it", file.string());
  const std::string text = read_text_file(file);
  Digests digests;
  std::string_view rest = text;
  for (int number = 1; !rest.empty(); ++number) {
    const std::size_t end = rest.find('\n');
    auto line = line_of(std::string(rest.substr(0, end)));
    if (end == std::string_view::npos || !line || !digests.insert(std::move(*line)).second)
      fail<FormatError>("checkpoint: {} is damaged: line {} is no digest, size and name", file.string(),
                        number);
    rest.remove_prefix(end + 1);
  }
  for (const char* name : kNeeded)
    if (!digests.contains(name))
      fail<FormatError>("checkpoint: {} is damaged: it lacks {}", file.string(), name);
  return digests;
}

// What is wrong with a file that should have this digest; empty when nothing is.
// errors: IoError.
std::string difference(const InputFile& file, const FileDigest& saved) {
  if (file.bytes() != saved.bytes)
    return fmt::format("it has {} bytes, and {} when it was saved", file.bytes(), saved.bytes);
  const std::string now = digest_of_file(file).hex;
  return now == saved.hex ? "" : fmt::format("its digest is {}, and {} when it was saved", now, saved.hex);
}

// Whether a file is enough to read a model, without going on with its training.
bool is_of_the_model(const std::string& name) {
  return name == "state.json" || name == "model.safetensors";
}

// What a file was when it was saved; nothing when it was not, or, with a warning, when the checkpoint has lost its
// digests and the file is of the model.
// errors: FormatError when it exists and was not saved; those of read_digests.
std::optional<FileDigest> saved_digest(const fs::path& checkpoint, const std::string& name, bool exists) {
  std::error_code ignored;
  if (is_of_the_model(name) &&
      fs::symlink_status(checkpoint / kDigestsFile, ignored).type() == fs::file_type::not_found) {
    add_warning(
        fmt::format("warning: {} is missing, so the model is not checked, and no training goes on from here",
                    (checkpoint / kDigestsFile).string()));
    return std::nullopt;
  }
  const Digests digests = read_digests(checkpoint);
  const auto saved = digests.find(name);
  if (saved != digests.end()) return saved->second;
  if (exists)
    fail<FormatError>("checkpoint: {} was not saved with the checkpoint: {} does not list it (remove it)",
                      (checkpoint / name).string(), kDigestsFile);
  return std::nullopt;
}

void refuse_damage(const fs::path& file, const std::string& problem) {
  if (!problem.empty()) fail<FormatError>("checkpoint: {} is damaged: {}", file.string(), problem);
}

FileCheck check_file(const fs::path& file, const FileDigest& saved) {
  FileCheck check{file};
  std::error_code error;
  if (fs::symlink_status(file, error).type() == fs::file_type::not_found) {
    check.condition = FileCondition::missing;
    check.problem = "it is missing";
    return check;
  }
  const auto bytes = fs::file_size(file, error);
  check.bytes = error ? 0 : static_cast<std::int64_t>(bytes);
  try {
    check.problem = difference(InputFile(file.string()), saved);
    if (check.problem.empty() && file.filename() == "state.json")
      check.problem = misplacement(file.parent_path());
    if (!check.problem.empty()) check.condition = FileCondition::damaged;
  } catch (const IoError& refused) {
    check.condition = FileCondition::unreadable;
    check.problem = refused.what();
  } catch (const std::exception& wrong) {
    check.condition = FileCondition::damaged;
    check.problem = wrong.what();
  }
  return check;
}

}  // namespace

void write_digests(const fs::path& folder) {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  std::string text;
  for (const std::string& name : names) {
    if (name == kDigestsFile) continue;
    const FileDigest digest = digest_of_file(InputFile(folder / name));
    text += fmt::format("{}  {}  {}\n", digest.hex, digest.bytes, name);
  }
  replace_text_file(folder / kDigestsFile, text);
}

bool check_saved_file(const fs::path& checkpoint, const std::string& name) {
  const fs::path file = checkpoint / name;
  std::error_code ignored;
  const bool exists = fs::symlink_status(file, ignored).type() != fs::file_type::not_found;
  const std::optional<FileDigest> saved = saved_digest(checkpoint, name, exists);
  if (!saved) return exists;
  if (!exists)
    fail<FormatError>("checkpoint: {} is missing: it was saved with the checkpoint", file.string());
  refuse_damage(file, difference(InputFile(file.string()), *saved));
  return true;
}

void check_saved_file(const fs::path& checkpoint, const std::string& name, const InputFile& file) {
  const std::optional<FileDigest> saved = saved_digest(checkpoint, name, true);
  if (saved) refuse_damage(checkpoint / name, difference(file, *saved));
}

std::vector<FileCheck> check_checkpoint(const fs::path& checkpoint) {
  const fs::path file = checkpoint / kDigestsFile;
  Digests digests;
  try {
    digests = read_digests(checkpoint);
  } catch (const IoError& error) {
    return {{file, FileCondition::unreadable, 0, error.what()}};
  } catch (const FormatError& error) {
    return {{file, FileCondition::damaged, 0, error.what()}};
  }
  std::vector<FileCheck> checks{{file}};
  for (const auto& [name, digest] : digests) checks.push_back(check_file(checkpoint / name, digest));
  // Other files that lie in the folder are somebody else's.
  std::error_code ignored;
  if (!digests.contains(kOptional) && fs::exists(checkpoint / kOptional, ignored))
    checks.push_back({checkpoint / kOptional, FileCondition::damaged, 0,
                      fmt::format("{} does not list it", kDigestsFile)});
  return checks;
}

bool is_whole(const fs::path& checkpoint) {
  const std::vector<FileCheck> checks = check_checkpoint(checkpoint);
  return std::all_of(checks.begin(), checks.end(),
                     [](const FileCheck& check) { return check.problem.empty(); });
}

}  // namespace eddy::training
