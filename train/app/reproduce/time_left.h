// How long a table takes: some steps of every row are timed before the first is trained, and the times of finished rows
// correct the rest.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "train/app/reproduce/reproduce.h"

namespace eddy::app {

class TimeLeft {
 public:
  // `rows` are those that are to be trained, in order.
  explicit TimeLeft(std::vector<const ReproduceRow*> rows);

  // Times steps of every row, a second each, and tells the whole; rows of a few steps are not timed. A row whose time
  // cannot be known, such as one that does not fit the memory, counts as none. Steps are the first ones: where examples
  // grow, as those of the copy tasks do, the time is too short.
  void measure(const std::function<void(std::string_view)>& log);

  // Says that a row begins: "== row 2 of 9 ...". Returns the line.
  std::string begin(const ReproduceRow& row);
  // Says that it ended after so many seconds; returns a line, which is empty where nothing is known or left.
  std::string end(const ReproduceRow& row, double seconds);

 private:
  std::size_t place_of(const ReproduceRow& row) const;
  double left_from(std::size_t place) const;

  std::vector<const ReproduceRow*> rows_;
  std::vector<double> seconds_;     // of each row; 0: not known
  double planned_ = 0, taken_ = 0;  // of rows that were trained in this call
};

}  // namespace eddy::app
