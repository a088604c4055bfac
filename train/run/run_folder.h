// The checkpoints in a run's folder: which there are, which one is meant, which go, and what a killed process
// left behind; the id of the run; the locks on the folder and on a checkpoint. checkpoint.h says what lies where.
#pragma once

#include <sys/file.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "tensor/files/descriptor.h"

namespace eddy::training {

// The N of a folder named step-N; -1 for other names.
std::int64_t checkpoint_step(const std::filesystem::path& folder);

// What the file `latest` or `best` says.
struct Pointer {
  std::string name;      // of a checkpoint that exists; empty: it names none
  std::string problem;   // why it names none, to follow "it ": "is empty"
  bool missing = false;  // there is no such file
};
Pointer read_pointer(const std::filesystem::path& file);

// Whether a save writes a file of this name into a checkpoint's folder. Any other there is the user's.
bool is_checkpoint_file(const std::string& name);

// Whether a folder is that of a run: it has a run's id, its checkpoints or its records.
bool is_run_folder(const std::filesystem::path& folder);

// The folders of runs directly in a folder, by name; `error` says why it could not be listed to its end.
std::vector<std::filesystem::path> run_folders_in(const std::filesystem::path& folder,
                                                  std::error_code& error);

// The folders of a run's checkpoints, newest first; none when there is no such run.
// errors: IoError when they cannot be listed.
std::vector<std::filesystem::path> checkpoints_of_run(const std::filesystem::path& run);

// The newest checkpoint of a run with nothing wrong in it; empty when there is none. What lies behind
// `latest` comes last: it is left of a time from which the run was taken back.
std::filesystem::path newest_whole_checkpoint(const std::filesystem::path& run);

// Whether `which` can name a checkpoint of a run: latest, best, newest-whole or step-N.
bool is_checkpoint_name(const std::string& which);

// The folder of the checkpoint meant by a path, which is a run's folder or a checkpoint's. `which` is a name
// as above. A checkpoint's folder means itself when `which` is "latest", and the run around it otherwise.
// "newest-whole" is newest_whole_checkpoint; a warning says so where `latest` names a newer one. It also stands
// for "latest" where that file is missing, as a kill after the first checkpoint leaves it; a warning says so.
// errors: IoError when there is none; FormatError when `latest` or `best` names none, or none is whole.
std::filesystem::path find_checkpoint(const std::string& path, const std::string& which);

// What to do about a checkpoint that could not be read, to end an error's text with: "; step-59 is whole (go
// on from it with ...)". Empty when nothing is wrong with the checkpoint's files.
std::string way_out(const std::filesystem::path& checkpoint);

// Removes checkpoints that are older than the one just saved, step-`saved`, but the newest `keep` (with it),
// those of the steps `stay`, the one that the file `best` names, those that are held, and, unless the one just saved
// `is_good`, the two newest whose latest loss was finite and at most kGoodLossRange above `lowest_loss`. A
// checkpoint that holds a file that Eddy did not write stays too.
// errors: IoError; std::filesystem::filesystem_error.
void prune_checkpoints(const std::filesystem::path& checkpoints, std::int64_t saved,
                       const std::vector<std::int64_t>& stay, std::int64_t keep, bool is_good,
                       double lowest_loss);

// The checkpoint to go back to where losses are no longer finite: the best one, else the newest good one, else the
// beginning; an empty path when there is none of these.
// errors: IoError when the checkpoints cannot be listed.
std::filesystem::path checkpoint_before_failure(const std::filesystem::path& run, std::int64_t best_step,
                                                double lowest_loss);

// A run that is further than this above its lowest loss has diverged. Nats: e^2 times the perplexity, which
// no noise of a batch explains.
inline constexpr double kGoodLossRange = 2;

// Which run and step a checkpoint belongs to (run_id.cpp). A run draws an id when it begins: the file `id` in its
// folder holds it, and so does the state.json of each of its checkpoints. A checkpoint that was copied from another
// run, or whose folder was renamed, is told by it.
inline constexpr const char* kRunIdFile = "id";

// 24 random hexadecimal digits, and 8 that check them.
std::string new_run_id();

// Whether the file `id` of a folder holds the id of a run and nothing else.
bool holds_run_id(const std::filesystem::path& run);

// The id of a run: that of its file, or where there is none the one that most of its checkpoints hold; empty
// when none has one.
std::string id_of_run(const std::filesystem::path& run);

// Why a checkpoint whose state.json has this step and this id of a run cannot be the one that its folder's
// name and place say; empty when it can. Without an id the run is not compared.
std::string misplacement(const std::filesystem::path& checkpoint, std::int64_t step,
                         const std::string& run_id);

// The same for a checkpoint whose state.json is read for it.
// errors: IoError; FormatError.
std::string misplacement(const std::filesystem::path& checkpoint);

// Whether a folder holds nothing but what a run leaves that was killed before its first checkpoint.
bool ended_before_first_checkpoint(const std::filesystem::path& run);

// Removes the files that killed processes left half-written in a run's folder. The caller holds its lock.
void remove_left_overs(const std::filesystem::path& run);

// Renames what is no regular file (a folder, a link, a pipe) and stands where the run writes one; a warning says
// so. The caller holds the lock.
void set_aside_obstacles(const std::filesystem::path& run);

// The lock on a run's folder, held while it lives: only one process at a time trains in it. The operating system
// releases it when the process ends, however it ends. Reading a run needs no lock. Where a folder cannot be locked, as
// on NFS, the file `.lock` in it is; where that fails too, a warning says so. `lock` takes the place of flock.
// errors: IoError when another process holds the lock, or when the folder cannot be opened.
class RunLock {
 public:
  using Lock = int (*)(int descriptor, int operation);
  explicit RunLock(const std::filesystem::path& folder, Lock lock = ::flock);

  // Whether this path still leads to the locked folder: it may have been moved or removed.
  bool is_at(const std::filesystem::path& folder) const;
  // Where the locked folder is now; empty when it was removed, or where the system does not tell.
  std::filesystem::path place() const;

 private:
  Descriptor folder_, file_;
};

// Holds a checkpoint for a reader: the process that trains in its run does not remove it meanwhile. Without
// locks it only notices that it was removed.
// errors: IoError when the folder cannot be opened.
class CheckpointHold {
 public:
  explicit CheckpointHold(const std::filesystem::path& checkpoint);

  // Whether the checkpoint of that name is still the held one: it was neither removed nor saved again.
  bool in_place() const;

 private:
  std::filesystem::path checkpoint_;
  Descriptor folder_;
};

}  // namespace eddy::training
