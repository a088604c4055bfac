// Pictures as SVG files of their own, for a README or a paper: white ground, the light colours of the palette, no
// script. Where the reader's scheme is dark, the picture is shown in it, with the same hues. chart.h draws charts in
// them.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "train/app/views/chart_axis.h"
#include "train/app/views/palette.h"
#include "train/files/output_file.h"

namespace eddy::app {

// A file that a SvgPicture wrote.
extern const training::OutputKind kPictureFile;

class SvgPicture {
 public:
  // `title` is what a reader hears who does not see the picture.
  SvgPicture(int width, int height, std::string_view title);

  struct Point {
    double x = 0, y = 0;
  };
  enum class Anchor { start, middle, end };
  enum class Font { plain, bold, code };  // code: all characters are as wide, 0.61 of the size at most

  void text(Point at, Anchor anchor, std::string_view text, std::string_view colour = kInkColour.light,
            Font font = Font::plain, double size = 13);
  void line(Point from, Point to, std::string_view colour, bool dashed = false);
  void polyline(const std::vector<Point>& points, std::string_view colour);
  // A pale area around which the points lie.
  void area(const std::vector<Point>& points, std::string_view colour);
  void dot(Point at, double radius, std::string_view colour);
  void bar(Point low, Point high, std::string_view colour);
  // A rectangle with round corners, a pale ground of the colour and a border in it.
  void box(Point low, Point high, std::string_view colour, bool dashed = false);
  // A line through the points, with a head at the last one.
  void arrow(const std::vector<Point>& points, std::string_view colour, bool dashed = false);

  // The whole file.
  std::string svg() const;

 private:
  int width_, height_;
  std::string title_, body_;
};

// A rectangle of a picture with an axis along its bottom and one along its left side.
class SvgFrame {
 public:
  SvgFrame(double left, double top, double width, double height, Axis x, Axis y)
      : left_(left), top_(top), width_(width), height_(height), x_(std::move(x)), y_(std::move(y)) {}

  SvgPicture::Point at(double x, double y) const {
    return {left_ + width_ * x_.place(x), top_ + height_ * (1 - y_.place(y))};
  }
  // Draws the lines at the ticks of y with their labels, and the labels of x.
  void draw_axes(SvgPicture& picture) const;

  double left() const { return left_; }
  double top() const { return top_; }
  double right() const { return left_ + width_; }
  double bottom() const { return top_ + height_; }

 private:
  double left_, top_, width_, height_;
  Axis x_, y_;
};

}  // namespace eddy::app
