// How long a table takes: some steps of every row are timed before the first is trained, and the times of finished rows
// correct the rest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "train/app/reproduce/reproduce.h"

namespace eddy::training {
class Task;
}

namespace eddy::app {

// Times steps of rows on their own data. Rows in a row that read the same data share their task.
class RowTimer {
 public:
  RowTimer();
  ~RowTimer();

  // units: seconds; 0 where the memory has no room for the row.
  struct Times {
    double step = 0;
    double training = 0;  // the whole of it, with its evaluations
  };
  // Times steps for about so many seconds.
  // errors: those of the row's data, its model and its steps.
  Times of(const training::RunConfig& config, double seconds);

 private:
  std::unique_ptr<training::Task> task_;
  std::string key_;  // task_key of its rows
};

class TimeLeft {
 public:
  // `rows` are those that are to be trained, in order.
  explicit TimeLeft(const std::vector<const ReproduceRow*>& rows);

  // Times steps of every row, a second each and once for all of its seeds, and tells the whole, with the steps of the
  // trials that tune the rows; rows of a few steps are not timed. A row whose time cannot be known, such as one that
  // does not fit the memory, counts as none. Steps are the first ones: where examples grow, as those of the copy
  // tasks do, the time is too short.
  struct Measuring {
    double seconds = 1;     // for each row
    std::int64_t jobs = 1;  // rows that run side by side
    double most = 1e9;      // seconds for all; what follows is estimated by its operations
    std::map<std::string, double> operations{};  // of the training of rows, by name
  };
  void measure(const std::function<void(std::string_view)>& log, const Measuring& how);

  // Says that a row begins: "== row 2 of 9 ...". Returns the line.
  std::string begin(const ReproduceRow& row);
  // Says that it ended after so many seconds; returns a line, which is empty where nothing is known or left.
  std::string end(const ReproduceRow& row, double seconds);

 private:
  std::size_t place_of(const ReproduceRow& row) const;
  double left_from(std::size_t place) const;

  std::vector<ReproduceRow> rows_;
  std::vector<double> seconds_;     // of each row; 0: not known
  double planned_ = 0, taken_ = 0;  // of rows that were trained in this call
};

}  // namespace eddy::app
