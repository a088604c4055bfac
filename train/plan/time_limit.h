// How train.minutes are spent: when the steps end, so that what closes the run still fits, and when everything ends.
//
//   start        steps, evaluations, samples, saves       | save, evaluation, sample, report |
//                                                         end of the steps               minutes     + 5 %
//
// The closing work is estimated from what the run has measured so far. No number of the run depends on it but how many
// steps it takes, a learning rate that follows them (run_progress.h), and whether the end measures the whole validation
// split. Times are passed in, in seconds.
#pragma once

#include <algorithm>
#include <cstdint>

namespace eddy::training {

class TimeLimit {
 public:
  // minutes: 0 for no limit. Seconds count from the beginning of the run.
  explicit TimeLimit(double minutes) : limit_(60 * minutes) {}
  bool is_set() const { return limit_ > 0; }

  // What was measured. An evaluation read `tokens` targets of the `of` that the split has; 0: not known.
  void note_step(double seconds, std::int64_t tokens);
  double step_seconds() const { return step_; }  // of the last one
  void note_save(double seconds) { save_ = seconds; }
  void note_report(double seconds) { report_ = seconds; }
  void note_sample(double seconds) { sample_ = seconds; }
  void note_evaluation(double seconds, std::int64_t tokens, std::int64_t of);
  // What the end will do: an evaluation of so many tokens (0: none), and then the whole split if it is cheap.
  void plan_evaluation(std::int64_t tokens, bool then_whole);

  // Whether the next step ends in time, as long as the last one took.
  bool step_fits(double now) const;
  // Whether a step that has not finished is given up.
  bool step_is_late(double now) const { return is_set() && now >= steps_end() + kSlack * limit_; }
  // When the last step is to end, by what is known now; only with a limit.
  double steps_end() const { return limit_ - closing(); }
  // When everything ends; infinity without a limit.
  double end() const;
  // The latest end of an evaluation or a sample that begins now and does not close the run: a quarter of the limit.
  double end_of_part(double now) const;
  // Whether a first evaluation is due, however many steps there are until the next: after a sixth of the limit or 20 s.
  bool first_evaluation_is_due(double now) const { return is_set() && now >= std::min(limit_ / 6, 20.0); }
  // The latest end of the sample before the first step, which shows noise: a fiftieth.
  double end_of_first_sample(double now) const;
  // Whether the whole split can be measured at the end; `seconds` is what it takes.
  bool whole_fits(double now, double seconds) const { return now + seconds <= end(); }
  // What the whole split takes, by the last evaluation of a part of it; 0: not known.
  double whole_seconds() const { return whole_; }

 private:
  static constexpr double kSlack = 0.05;       // by which everything may end later
  static constexpr double kCheapWhole = 0.1;   // a whole split that takes no more of the limit is planned for
  static constexpr double kMostClosing = 0.5;  // of the limit, for what closes the run

  double closing() const;

  double limit_;
  double step_ = 0, token_ = 0;  // of training
  double save_ = 0, report_ = 0, sample_ = 0, evaluation_ = 0, whole_ = 0;
  std::int64_t evaluated_tokens_ = 0;
  bool then_whole_ = false;
};

}  // namespace eddy::training
