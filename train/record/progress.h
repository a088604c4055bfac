// The progress display of a run: one live line on a terminal, or a plain line every few seconds in a log file
// or a pipe. Messages (evaluations, samples, warnings) print above the live line. Functions that need the
// time take it as an argument.
#pragma once

#include <cstdint>
#include <cstdio>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "train/record/metrics.h"
#include "train/step/clock.h"

namespace eddy::training {

struct ProgressOptions {
  std::int64_t total_steps = 0;       // 0: not known
  double minutes_limit = 0;           // 0: none
  double plain_interval_s = 10;       // between plain lines; 0: one for every update
  std::optional<bool> terminal = {};  // nullopt: as redraws(the stream) says
  int width = 0;                      // columns; 0: the terminal's width each time, as it may be resized
};

// Whether a stream is a terminal with a cursor that moves: TERM names its kind, and not "dumb".
bool moves_cursor(std::FILE* stream);
// Whether a line on it may be drawn again: such a terminal, of a known width, and not one of several processes. OpenMPI
// gives each process a terminal of 0 columns, whose text ends in a log.
bool redraws(std::FILE* stream);

class Progress {
 public:
  // `start` is when the run began; elapsed time and the limit in minutes count from it. The stream must
  // outlive this object.
  Progress(std::FILE* out, const ProgressOptions& options, Clock::time_point start);
  // Ends an open live line, so that what is printed next (an error) starts on a line of its own.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Records a step, and prints when a line is due (on a terminal at most ten times a second). The first
  // update prints at once. Rates that are NaN and memory of 0 bytes are not shown. The loss shown is smoothed
  // over some 20 steps; one that is not finite is shown as it is and does not enter the smoothed loss.
  void update(const StepRecord& update, Clock::time_point now);
  // Prints a text of one or more lines above the live line, made safe for a terminal (`printable` in
  // train/words/human_text.h).
  void message(std::string_view text);
  // Shows work beside the steps (an evaluation, a sample, a save) in place of the live line; in a log as a plain line
  // when one is due.
  void work(std::string_view text, Clock::time_point now);
  // Prints the last state and ends the line. Later updates start a new one.
  void finish(Clock::time_point now);

  // The part of the run that is over after `step`, from 0 to 1: of the steps or of the limit in minutes,
  // whichever ends it first; 0 when neither is known.
  double part_done(std::int64_t step, Clock::time_point now) const;
  // Seconds until the run ends: by the steps left at the pace of the last minute (evaluations and checkpoints
  // included) or by the limit in minutes, whichever comes first; nullopt while neither is known.
  std::optional<double> seconds_left(Clock::time_point now) const;
  // The state as one line of at most `columns` characters; the least important parts are left out first.
  std::string line(Clock::time_point now, int columns) const;

 private:
  struct Mark {
    Clock::time_point time;
    std::int64_t step;
  };
  // Whether a stop was requested while a reader kept the output waiting: waiting again would keep the stop.
  bool is_stalled() const;
  Clock::duration interval_between_lines() const;
  void print(Clock::time_point now);
  void draw_live();
  void clear_live();
  int columns() const;

  std::FILE* out_;
  ProgressOptions options_;
  bool terminal_;
  Clock::time_point start_;
  std::optional<Clock::time_point> last_print_;
  std::deque<Mark> marks_;  // the moving window: one mark per half second, for a minute
  StepRecord state_;
  bool has_state_ = false;
  bool unprinted_ = false;      // an update has not been shown yet
  bool printed_state_ = false;  // one has
  bool shows_work_ = false;     // the live line is one of work()
  // Exponentially decaying sum of the losses, and of their weights; the ratio has no bias at the start.
  double smooth_sum_ = 0;
  double smooth_weight_ = 0;
  std::string live_;  // the live line on the screen; empty: none
};

}  // namespace eddy::training
