// Running other programs. This is the one place that starts a process. There is no shell: no word of the arguments is
// interpreted.
//
//   const ProgramEnd end = run_to_end({.words = {"tar", "-xzf", archive}});
//   if (!end.good()) say(end.why("tar"));     // "tar is not installed", "tar ended with status 2"
//
// A RunningProgram goes on beside this process: it is read from, waited for and killed.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/files/descriptor.h"

namespace eddy::training {

// Where a standard stream of a program leads, if not to a descriptor of this process.
inline constexpr int kNowhere = -1;  // /dev/null
inline constexpr int kShared = -2;   // where the same stream of this process leads
inline constexpr int kRead = -3;     // to RunningProgram::read; for output and errors

struct ProgramStart {
  std::vector<std::string> words;  // the program, looked up in PATH, and its arguments
  std::string file{};              // the program, where the first word is only what it is told of its name
  // Its standard streams: a descriptor of this process, or one of the above.
  int input = kNowhere, output = kNowhere, errors = kNowhere;
  std::vector<std::string> environment{};  // all of it, as NAME=value; empty: that of this process
  std::int64_t memory_bytes = 0;           // the most addresses it can have; 0: as this process
  bool own_group = false;                  // Ctrl-C does not reach it, and kill() ends what it started too
  bool is_trial = false;  // may crash: no core file is left, and it is killed with this process
};

// How a program ended.
struct ProgramEnd {
  int error = 0;        // of the system: it was not started, or (ECHILD) no one knows how it ended
  int status = -1;      // its exit status; -1 where it did not exit
  int signal = 0;       // that ended it; 0: none
  bool killed = false;  // by kill()
  std::string output;   // what run_to_end read: its begin
  std::string last;     // and, of what did not fit in that, the end

  // Whether there is a program of this name. Shells, and loaders that miss a library, exit with 127.
  bool found() const;
  // Whether it ended by itself with status 0.
  bool good() const { return status == 0 && !killed; }
  // Why it is not good, with what to call the program: "xz is not installed"; "" where it is.
  std::string why(std::string_view name) const;
};

// A program that runs. It is killed with this object, unless it was detached.
class RunningProgram {
 public:
  // Starts it.
  // errors: none; end() has that of the system.
  explicit RunningProgram(const ProgramStart& start);
  ~RunningProgram();
  RunningProgram(const RunningProgram&) = delete;
  RunningProgram& operator=(const RunningProgram&) = delete;

  // Returns what it wrote next to the streams that are kRead; "" at their end; nothing if so many seconds pass.
  std::optional<std::string> read(double seconds);
  // Waits for its end. Returns whether it has ended; with 0 seconds at once.
  bool wait(double seconds = std::numeric_limits<double>::infinity());
  // Asks it to end, by SIGTERM, and does not wait.
  void ask_to_stop();
  // Ends it by force, and waits: ten seconds at most, since a driver may hold a process.
  void kill();
  // Leaves it running, also after this process.
  void detach() { process_ = -1; }
  // How it ended; before that, only `error` is known.
  const ProgramEnd& end() const { return end_; }

 private:
  pid_t process_ = -1;  // -1 where none is left
  bool own_group_;
  Descriptor from_;  // the reading end of a pipe
  ProgramEnd end_;
};

// Runs a program, keeps the first `output_bytes` of what it writes and, beyond them, the last, and waits for its end.
// One that takes longer is killed.
// errors: none; the end has them.
ProgramEnd run_to_end(const ProgramStart& start, double seconds = std::numeric_limits<double>::infinity(),
                      std::size_t output_bytes = std::size_t{1} << 16);

}  // namespace eddy::training
