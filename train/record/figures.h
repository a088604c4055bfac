// What a task shows in the report of its run, as data: charts, pictures and texts. The report draws them
// (train/app/views/).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace eddy::training {

// faint: a thin pale line for raw values behind a smoothed one. Its rare outliers do not stretch the y axis:
// they are drawn on its edge, and a note counts them.
// band: a pale area around which its points lie, of which the first ones are its upper edge and the others its lower
// one, backwards. It has no entry in the legend and no values under the pointer.
enum class SeriesStyle { line, faint, points, line_points, band };

struct Series {
  std::string name;  // in the legend; as a label of a picture (chart_picture) it may have several lines
  std::vector<double> x;
  std::vector<double> y;  // as many as x; a value that is not finite is a gap
  SeriesStyle style = SeriesStyle::line;
  int colour = -1;  // index into the palette of kChartColours; -1: the index of the series in the chart

  void add(double at, double value) {
    x.push_back(at);
    y.push_back(value);
  }
};

inline constexpr int kChartColours = 6;

struct Chart {
  std::string title;
  std::string x_title;
  std::string y_title;
  bool log_x = false;
  bool log_y = false;  // values <= 0 are not shown, and a note counts them
  std::vector<Series> series;
  bool percent = false;  // y is a share, whose ticks are labelled in percent
};

struct LabelledText {
  std::string label;
  std::string text;
};

// A small grey picture, drawn enlarged with a caption. `good` = false marks it as wrong.
struct Picture {
  int width = 0, height = 0;
  std::vector<std::uint8_t> grey;  // width * height, row by row
  std::string caption;
  bool good = true;
};

// A section of a report; what is empty is left out, and the rest stands in this order.
struct ReportSection {
  std::string heading;
  std::vector<Picture> pictures{};  // side by side
  std::vector<Chart> wide{};        // each over the whole width
  std::vector<Chart> charts{};      // two by two
  std::vector<LabelledText> texts{};
};

}  // namespace eddy::training
