// What a person watches while a run trains: one live line on a terminal, or a plain line every few seconds in
// a log file or a pipe. Messages (evaluations, samples, warnings) print above the live line. The clock is the
// caller's: every function that needs the time takes it.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace eddy {

struct ProgressOptions {
  std::int64_t total_steps = 0;       // 0: not known, the run ends otherwise
  double minutes_limit = 0;           // 0: none
  double plain_interval_s = 10;       // between plain lines; 0: one for every update
  std::optional<bool> terminal = {};  // nullopt: ask the stream
  int width = 0;                      // columns; 0: ask the terminal each time, as it may be resized
};

// The state after a step. A rate that was not measured is NaN, memory then is 0, and neither is shown. The
// loss shown is smoothed over some 20 steps; one that is not finite is shown as it is and stays out of the
// smoothed one.
struct ProgressUpdate {
  std::int64_t step = 0;
  double loss = std::numeric_limits<double>::quiet_NaN();
  double learning_rate = std::numeric_limits<double>::quiet_NaN();
  double tokens_per_second = std::numeric_limits<double>::quiet_NaN();
  std::int64_t memory_bytes = 0;
};

class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  // `start` is when the run began: elapsed time and the minutes limit count from it. The stream must outlive
  // this object.
  Progress(std::FILE* out, const ProgressOptions& options, Clock::time_point start);
  // Ends an open live line, so that what is printed next (an error) starts on a line of its own.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Takes in a step; prints when it is due (a terminal: at most ten times a second). The first update prints
  // at once.
  void update(const ProgressUpdate& update, Clock::time_point now);
  // Prints a text of one or more lines above the live line, made safe for a terminal (see printable).
  void message(std::string_view text);
  // Prints the last state for good and ends the line. Later updates start a new one.
  void finish(Clock::time_point now);

  // Seconds until the run ends, by the steps left at the pace of the last minute (evaluations and checkpoints
  // in it included) or by the minutes limit, whichever comes first; nullopt while neither can be told.
  std::optional<double> seconds_left(Clock::time_point now) const;
  // The state as one line of at most `columns` characters; what matters least is left out first.
  std::string line(Clock::time_point now, int columns) const;

 private:
  struct Mark {
    Clock::time_point time;
    std::int64_t step;
  };
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
  ProgressUpdate state_;
  bool has_state_ = false;
  bool unprinted_ = false;  // an update has not been shown yet
  double smooth_sum_ =
      0;  // exponential mean of the loss and its weight; their ratio has no bias at the start
  double smooth_weight_ = 0;
  std::string live_;  // the live line on the screen; empty: none
};

}  // namespace eddy
