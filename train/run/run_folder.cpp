// Names, choice and removal of checkpoints; the locks by flock on the folders themselves, or on a file in them.
#include "train/run/run_folder.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <system_error>

#include "ops/core/warnings.h"
#include "tensor/base/format.h"
#include "tensor/files/atomic_file.h"
#include "tensor/system/files.h"
#include "train/files/folders.h"
#include "train/files/output_file.h"
#include "train/files/standard_input.h"
#include "train/files/text_file.h"
#include "train/record/event_file.h"
#include "train/record/run_series.h"
#include "train/run/digests.h"
#include "train/words/human_text.h"
#include "train/words/program_name.h"

namespace eddy::training {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kNewestWhole = "newest-whole";
constexpr const char* kLockFile = ".lock";

std::string names_of(const std::vector<fs::path>& folders) {
  std::vector<std::string> names;
  for (const fs::path& folder : folders) names.push_back(folder.filename().string());
  return fmt::format("{}", fmt::join(names, ", "));
}

// Whether the path leads to the open folder.
bool leads_to(const fs::path& path, const Descriptor& folder) {
  struct stat there {
  }, held{};
  return ::stat(path.c_str(), &there) == 0 && ::fstat(folder.get(), &held) == 0 &&
         there.st_dev == held.st_dev && there.st_ino == held.st_ino;
}

std::string advice(const fs::path& whole) {
  return fmt::format("{0} is whole (go on from it with --checkpoint {0}, or with --checkpoint {1})",
                     whole.filename().string(), kNewestWhole);
}

// Whether a name in the folder of the checkpoints is one under which a save works.
bool is_of_a_save(const std::string& name) {
  for (const std::string_view mark : {".tmp-", ".tmp-old-", ".tmp-gone-"})
    if (name.starts_with(mark) && checkpoint_step(name.substr(mark.size())) >= 0) return true;
  return false;
}

bool holds_files_of_others(const fs::path& checkpoint) {
  if (!fs::is_directory(fs::symlink_status(checkpoint))) return true;
  for (const fs::directory_entry& entry : fs::directory_iterator(checkpoint))
    if (!is_checkpoint_file(entry.path().filename().string())) return true;
  return false;
}

// Whether a checkpoint was saved while its run went well.
bool is_good(const fs::path& checkpoint, double lowest_loss) {
  try {
    const json about = read_json_file(checkpoint / "state.json");
    const json& loss = about.at("loss");
    return loss.is_number() && loss.get<double>() <= lowest_loss + kGoodLossRange;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace

std::int64_t checkpoint_step(const fs::path& folder) {
  const std::string name = folder.filename().string();
  if (!name.starts_with("step-") || name.size() == 5 || name.size() > 20) return -1;
  if (!std::all_of(name.begin() + 5, name.end(), [](char c) { return c >= '0' && c <= '9'; })) return -1;
  return std::stoll(name.substr(5));
}

Pointer read_pointer(const fs::path& file) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(file, error);
  if (status.type() == fs::file_type::not_found)
    return {.name = "", .problem = "is missing", .missing = true};
  if (!fs::is_regular_file(file, error)) return {.name = "", .problem = "is not a regular file (remove it)"};
  constexpr std::uintmax_t kLongest = 100;
  std::string name;
  try {
    if (fs::file_size(file, error) <= kLongest && !error) name = read_text_file(file);
  } catch (const IoError& refused) {
    return {.name = "", .problem = fmt::format("cannot be read: {}", refused.what())};
  }
  while (!name.empty() && (name.back() == '\n' || name.back() == '\r')) name.pop_back();
  const fs::path target = file.parent_path() / name;
  if (name.find('/') == std::string::npos && checkpoint_step(target) >= 0 && fs::is_directory(target, error))
    return {.name = name, .problem = ""};
  return {.name = "",
          .problem = name.empty() ? "is empty" : fmt::format("names {:?}, which is no checkpoint", name)};
}

bool is_checkpoint_file(const std::string& name) {
  for (const char* own :
       {"model.safetensors", "optimizer.safetensors", "recurrent.safetensors", "state.json", kDigestsFile})
    if (name == own) return true;
  return false;
}

std::vector<fs::path> checkpoints_of_run(const fs::path& run) {
  std::vector<fs::path> found;
  std::error_code error;
  const fs::path folder = run / "checkpoints";
  const bool is_folder = fs::is_directory(folder, error);
  if (!is_folder && error != std::errc::permission_denied) return found;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (checkpoint_step(entry->path()) >= 0) found.push_back(entry->path());
  if (error)
    fail<IoError>("run: {} cannot be listed: {} (give yourself the right to read it)", folder.string(),
                  error.message());
  std::sort(found.begin(), found.end(),
            [](const fs::path& a, const fs::path& b) { return checkpoint_step(a) > checkpoint_step(b); });
  return found;
}

bool is_run_folder(const fs::path& folder) {
  std::error_code error;
  return holds_run_id(folder) || fs::is_directory(folder / "checkpoints", error) ||
         fs::is_regular_file(folder / "metrics.jsonl", error);
}

std::vector<fs::path> run_folders_in(const fs::path& folder, std::error_code& error) {
  std::vector<fs::path> runs;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (is_run_folder(entry->path())) runs.push_back(entry->path());
  std::sort(runs.begin(), runs.end());
  return runs;
}

bool is_checkpoint_name(const std::string& which) {
  return which == "latest" || which == "best" || which == kNewestWhole ||
         (which.find('/') == std::string::npos && checkpoint_step(which) >= 0);
}

fs::path newest_whole_checkpoint(const fs::path& run) {
  const auto holds = [](const fs::path& folder) {
    try {
      const CheckpointHold held(folder);
      return is_whole(folder) && held.in_place();
    } catch (const IoError&) {
      return false;
    }
  };
  constexpr int kMostAttempts = 20;  // of a run that trains meanwhile and saves faster than this reads
  for (int attempt = 1;; ++attempt) {
    std::vector<fs::path> found = checkpoints_of_run(run);
    const std::string latest = read_pointer(run / "checkpoints" / "latest").name;
    if (!latest.empty())
      std::stable_partition(found.begin(), found.end(), [&](const fs::path& folder) {
        return checkpoint_step(folder) <= checkpoint_step(latest);
      });
    const auto whole = std::find_if(found.begin(), found.end(), holds);
    if (attempt == kMostAttempts || read_pointer(run / "checkpoints" / "latest").name == latest)
      return whole == found.end() ? fs::path() : *whole;
  }
}

namespace {

// For errors: "; runs has the runs a, b, ..." of the runs directly in a folder, or "".
std::string runs_text(const fs::path& folder) {
  constexpr std::size_t kShown = 5;
  std::vector<std::string> names;
  std::error_code error;
  for (const fs::path& run : run_folders_in(folder, error)) names.push_back(run.filename().string());
  if (names.empty()) return "";
  const bool more = names.size() > kShown;
  if (more) names.resize(kShown);
  return fmt::format("; {} has the runs {}{}", folder.string(), fmt::join(names, ", "), more ? ", ..." : "");
}

// For errors: how a run is made of the weights that a file or a folder has in other programs' forms, or "".
std::string importing(const fs::path& path) {
  std::error_code error;
  const bool is_file = fs::is_regular_file(path, error);
  bool found = is_file && (path.extension() == ".safetensors" || path.extension() == ".gguf");
  for (const char* const name : {"model.safetensors", "model.safetensors.index.json", "model.gguf"})
    found = found || fs::exists(path / name, error);
  if (!found) return "";
  fs::path described = path;  // what says which model it is
  const fs::path around = path.has_parent_path() ? path.parent_path() : fs::path(".");
  if (is_file && path.extension() == ".safetensors" && fs::exists(around / "config.json", error))
    described = around;
  return fmt::format(
      " (it has the weights of a model; {} import --weights {} --data TEXT --run RUN makes a run of them)",
      program_name(), shell_quoted(described.string()));
}

}  // namespace

fs::path find_checkpoint(const std::string& path, const std::string& which) {
  fs::path run(path);
  std::error_code error;
  if (!fs::is_directory(run, error)) {
    if (const std::string way = importing(run); !way.empty()) fail<IoError>("run: {} is no run{}", path, way);
    fail<IoError>("run: {} is not a folder (a run, or a checkpoint in it{})", path,
                  runs_text(run.has_parent_path() ? run.parent_path() : fs::path(".")));
  }
  if (!is_checkpoint_name(which))
    fail<ValueError>("run: no checkpoint is called {:?} (latest, best, {}, or step-N)", which, kNewestWhole);
  if (!run.has_filename()) run = run.parent_path();  // "step-5/" becomes "step-5"
  const bool in_a_run =
      checkpoint_step(run) >= 0 && fs::absolute(run).parent_path().filename() == "checkpoints";
  if (in_a_run || fs::exists(run / "state.json", error)) {
    if (which == "latest" || !in_a_run) return run;
    run = fs::absolute(run).parent_path().parent_path();
  }

  const std::vector<fs::path> found = checkpoints_of_run(run);
  if (found.empty()) {
    const std::string way = importing(run);
    fail<IoError>("run: {} holds no checkpoint{}", path,
                  !way.empty() ? way
                  : ended_before_first_checkpoint(run)
                      ? " (it ended before its first one: start it again with "
                        "the same command, --run and all)"
                      : fmt::format(" (the folder of a run holds checkpoints/step-N{})", runs_text(run)));
  }
  const Pointer latest = read_pointer(run / "checkpoints" / "latest");
  if (which == kNewestWhole || (which == "latest" && latest.missing)) {
    const fs::path whole = newest_whole_checkpoint(run);
    if (whole.empty())
      fail<FormatError>(
          "run: no checkpoint of {} is whole ({} are there; {} check {} --all says what is wrong)", path,
          names_of(found), program_name(), run.string());
    const bool is_left_out = checkpoint_step(latest.name) > checkpoint_step(whole);
    if (is_left_out || which == "latest")
      add_warning(fmt::format("warning: {} {}: {} is taken{}",
                              (run / "checkpoints" / (is_left_out ? latest.name : "latest")).string(),
                              is_left_out ? "is not whole" : latest.problem, whole.filename().string(),
                              is_left_out ? " instead" : ""));
    return whole;
  }
  if (checkpoint_step(which) >= 0) {
    const auto named = std::find_if(found.begin(), found.end(),
                                    [&](const fs::path& folder) { return folder.filename() == which; });
    if (named != found.end()) return *named;
    fail<IoError>("run: {} has no checkpoint {} (it has {})", path, which, names_of(found));
  }
  const fs::path file = run / "checkpoints" / which;
  const Pointer pointer = which == "latest" ? latest : read_pointer(file);
  if (!pointer.name.empty()) return file.parent_path() / pointer.name;
  if (which == "best" && pointer.missing)
    fail<IoError>("run: {} has no best checkpoint: no evaluation chose one ({} are there: --checkpoint {})",
                  path, names_of(found), found.front().filename().string());
  const fs::path whole = newest_whole_checkpoint(run);
  fail<FormatError>("run: {} {}; {}", file.string(), pointer.problem,
                    whole.empty() ? fmt::format("of {} none is whole ({} check {} --all says what is wrong)",
                                                names_of(found), program_name(), run.string())
                                  : advice(whole));
}

std::string way_out(const fs::path& checkpoint) {
  const std::vector<FileCheck> checks = check_checkpoint(checkpoint);
  if (std::all_of(checks.begin(), checks.end(), [](const FileCheck& check) { return check.problem.empty(); }))
    return "";
  const fs::path run = fs::absolute(checkpoint).parent_path().parent_path();
  if (const fs::path whole = newest_whole_checkpoint(run); !whole.empty()) return "; " + advice(whole);
  // Where the system refuses to read this checkpoint, it may refuse the others too, and nothing is known.
  const bool refused = std::any_of(checks.begin(), checks.end(), [](const FileCheck& check) {
    return check.condition == FileCondition::unreadable;
  });
  return refused ? "" : "; the run has no checkpoint that is whole";
}

void prune_checkpoints(const fs::path& checkpoints, std::int64_t saved,
                       const std::vector<std::int64_t>& wanted, std::int64_t keep, bool good,
                       double lowest_loss) {
  for (const fs::directory_entry& entry : fs::directory_iterator(checkpoints))
    if (is_of_a_save(entry.path().filename().string())) fs::remove_all(entry.path());
  std::vector<fs::path> older = checkpoints_of_run(checkpoints.parent_path());
  std::erase_if(older, [saved](const fs::path& folder) { return checkpoint_step(folder) >= saved; });
  const auto kept = static_cast<std::size_t>(std::max<std::int64_t>(keep, 1)) - 1;
  if (older.size() <= kept) return;
  // Two good ones: a loss is that of the weights before its step, so the step after which the newest of them
  // was saved may be the one that went wrong.
  std::set<fs::path> stay{checkpoints / read_pointer(checkpoints / "best").name};
  for (const std::int64_t step : wanted) stay.insert(checkpoints / fmt::format("step-{}", step));
  if (!good) {
    int found = 0;
    for (std::size_t i = 0; i < older.size() && found < 2; ++i)
      if (is_good(older[i], lowest_loss)) {
        stay.insert(older[i]);
        ++found;
      }
  }
  for (std::size_t i = kept; i < older.size(); ++i) {
    if (stay.contains(older[i]) || holds_files_of_others(older[i])) continue;
    const Descriptor folder(::open(older[i].c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (folder.get() >= 0 && ::flock(folder.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
      continue;  // it is being read, and goes with a later one
    // Renamed first, so that a kill leaves no checkpoint from which a part is gone.
    const fs::path gone = checkpoints / (".tmp-gone-" + older[i].filename().string());
    fs::rename(older[i], gone);
    fs::remove_all(gone);
  }
}

fs::path checkpoint_before_failure(const fs::path& run, std::int64_t best_step, double lowest_loss) {
  const std::vector<fs::path> found = checkpoints_of_run(run);
  const auto first = [&](const auto& fits) {
    const auto at = std::find_if(found.begin(), found.end(), fits);
    return at == found.end() ? fs::path() : *at;
  };
  // An evaluation measured the weights of the best one; the loss of another is that of the weights before its step.
  fs::path chosen =
      first([&](const fs::path& one) { return best_step > 0 && checkpoint_step(one) == best_step; });
  if (chosen.empty()) chosen = first([&](const fs::path& one) { return is_good(one, lowest_loss); });
  if (chosen.empty()) chosen = first([](const fs::path& one) { return checkpoint_step(one) == 0; });
  return chosen;
}

bool ended_before_first_checkpoint(const fs::path& run) {
  std::error_code error;
  if (!fs::is_directory(run, error)) return false;
  try {
    for (const fs::directory_entry& entry : fs::directory_iterator(run)) {
      const std::string name = entry.path().filename().string();
      // No link, pipe or device is Eddy's.
      if (entry.is_symlink() || (!entry.is_regular_file() && !entry.is_directory())) return false;
      if (name == "checkpoints" && entry.is_directory()) {
        for (const fs::directory_entry& inside : fs::directory_iterator(entry.path())) {
          const std::string inner = inside.path().filename().string();
          // Nothing points to step-0 yet, and nothing is learned in it.
          if (!inner.starts_with(".tmp-step-") && inner != "step-0" && !is_temporary_name(inner))
            return false;
        }
      } else if (name == "metrics.jsonl") {
        // Steps were logged: its checkpoints were there and are gone, and the numbers are still worth
        // something.
        const Metrics metrics = RunSeries::read(entry.path()).records();
        if (!metrics.steps.empty() || metrics.foreign > 0) return false;
      } else if (name == "tensorboard" && entry.is_directory()) {
        for (const fs::directory_entry& inside : fs::directory_iterator(entry.path()))
          if (!inside.is_regular_file() || !EventFile::is_name(inside.path().filename().string()))
            return false;
      } else if (name == "report.html") {
        if (!kPageFile.is_one(entry.path().string())) return false;
      } else if (name == kRunIdFile) {
        if (!holds_run_id(run)) return false;
      } else if (name != "config.json" && name != "tokenizer.json" && name != "tokenizer.model" &&
                 name != kKeptInput && name != kLockFile && !is_temporary_name(name)) {
        return false;
      }
    }
  } catch (const std::exception&) {  // what cannot be read is not touched
    return false;
  }
  return true;
}

void remove_left_overs(const fs::path& run) {
  std::error_code ignored;
  const fs::path checkpoints = run / "checkpoints";
  std::vector<fs::path> left;
  for (const fs::path& folder : {run, checkpoints})
    for (fs::directory_iterator entry(folder, ignored), end; !ignored && entry != end;
         entry.increment(ignored)) {
      const std::string name = entry->path().filename().string();
      const bool is_file = fs::is_regular_file(entry->symlink_status(ignored));
      if ((is_file && is_left_over(name)) || (folder == checkpoints && is_of_a_save(name)))
        left.push_back(entry->path());
    }
  // On a file system that cannot exchange two folders, a checkpoint saved again is set aside first, and a
  // kill may leave it so.
  constexpr std::string_view kSetAside = ".tmp-old-";
  for (const fs::path& path : left) {
    const std::string name = path.filename().string();
    const fs::path was = checkpoints / name.substr(std::min(kSetAside.size(), name.size()));
    if (name.starts_with(kSetAside) && !fs::exists(was, ignored))
      fs::rename(path, was, ignored);
    else
      fs::remove_all(path, ignored);
  }
}

void set_aside_obstacles(const fs::path& run) {
  for (const char* name :
       {kRunIdFile, "metrics.jsonl", "report.html", "checkpoints/latest", "checkpoints/best"}) {
    const fs::path file = run / name;
    std::error_code error;
    const fs::file_type type = fs::symlink_status(file, error).type();
    if (type == fs::file_type::regular || type == fs::file_type::not_found || type == fs::file_type::none)
      continue;
    if (const std::string aside = set_aside(file); !aside.empty())
      add_warning(fmt::format("warning: {} is not a regular file: it is {} now", file.string(), aside));
  }
}

RunLock::RunLock(const std::filesystem::path& folder, Lock lock)
    : folder_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (folder_.get() < 0)
    fail<IoError>("run: {} cannot be opened: {} (a run's folder)", folder.string(), std::strerror(errno));
  const auto take = [&](const Descriptor& place) {
    if (place.get() < 0) return false;
    if (lock(place.get(), LOCK_EX | LOCK_NB) == 0) return true;
    if (errno == EWOULDBLOCK)
      fail<IoError>("train: another process trains in {} (stop it first, or choose another folder)",
                    folder.string());
    return false;
  };
  if (take(folder_)) return;
  // NFS makes a lock of a range of bytes of it, which needs a file that is open for writing.
  file_.reset(::open((folder / kLockFile).c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (take(file_)) return;
  add_warning(
      fmt::format("warning: {} cannot be locked: {} (see to it that no other process trains in it meanwhile)",
                  folder.string(), std::strerror(errno)));
}

bool RunLock::is_at(const fs::path& folder) const {
  return leads_to(folder, folder_);
}

fs::path RunLock::place() const {
  const fs::path place = path_of_folder(folder_.get());
  return leads_to(place, folder_) ? place : fs::path();
}

CheckpointHold::CheckpointHold(const fs::path& checkpoint)
    : checkpoint_(checkpoint), folder_(::open(checkpoint.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (folder_.get() < 0)
    fail<IoError>("checkpoint: {} cannot be opened: {}", checkpoint.string(), std::strerror(errno));
  while (::flock(folder_.get(), LOCK_SH) != 0 && errno == EINTR) {
  }
}

bool CheckpointHold::in_place() const {
  return leads_to(checkpoint_, folder_);
}

}  // namespace eddy::training
