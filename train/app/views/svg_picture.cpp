// Writes elements in the order of the calls; later ones lie above earlier ones.
#include "train/app/views/svg_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "train/files/text_file.h"
#include "train/words/human_text.h"

namespace eddy::app {
using namespace training;
namespace {

constexpr const char* kDrawnByEddy = "<!-- drawn by eddy -->";
constexpr const char* kDashes = " stroke-dasharray=\"4 3\"";
constexpr double kTextSize = 13;

// A coordinate with one decimal at most.
std::string coordinate(double value) {
  std::string text = fmt::format("{:.1f}", value);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text == "-0" ? "0" : text;
}

std::string places(const std::vector<SvgPicture::Point>& points) {
  std::string text;
  for (const SvgPicture::Point& point : points)
    text += fmt::format("{}{},{}", text.empty() ? "" : " ", coordinate(point.x), coordinate(point.y));
  return text;
}

}  // namespace

const OutputKind kPictureFile{"a picture of Eddy's", [](const std::string& path) {
                                return read_text_file(path).find(kDrawnByEddy) != std::string::npos;
                              }};

SvgPicture::SvgPicture(int width, int height, std::string_view title)
    : width_(width), height_(height), title_(html_escape(title)) {}

void SvgPicture::text(Point at, Anchor anchor, std::string_view text, std::string_view colour, Font font,
                      double size) {
  constexpr const char* kAnchors[] = {"start", "middle", "end"};
  constexpr const char* kFonts[] = {"", " font-weight=\"bold\"", " font-family=\"monospace\""};
  body_ += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"{}\" fill=\"{}\"{}{}>{}</text>\n",
                       coordinate(at.x), coordinate(at.y), kAnchors[static_cast<std::size_t>(anchor)], colour,
                       kFonts[static_cast<std::size_t>(font)],
                       size == kTextSize ? "" : fmt::format(" font-size=\"{}\"", coordinate(size)),
                       html_escape(text));
}

void SvgPicture::line(Point from, Point to, std::string_view colour, bool dashed) {
  body_ +=
      fmt::format("<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" stroke=\"{}\"{}/>\n", coordinate(from.x),
                  coordinate(from.y), coordinate(to.x), coordinate(to.y), colour, dashed ? kDashes : "");
}

void SvgPicture::polyline(const std::vector<Point>& points, std::string_view colour) {
  body_ += fmt::format("<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"2.2\" points=\"{}\"/>\n", colour,
                       places(points));
}

void SvgPicture::area(const std::vector<Point>& points, std::string_view colour) {
  body_ += fmt::format("<polygon fill=\"{}\" fill-opacity=\"0.18\" stroke=\"none\" points=\"{}\"/>\n", colour,
                       places(points));
}

void SvgPicture::dot(Point at, double radius, std::string_view colour) {
  body_ += fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"{}\" fill=\"{}\"/>\n", coordinate(at.x),
                       coordinate(at.y), coordinate(radius), colour);
}

void SvgPicture::bar(Point low, Point high, std::string_view colour) {
  body_ +=
      fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\" fill-opacity=\"0.75\"/>\n",
                  coordinate(std::min(low.x, high.x)), coordinate(std::min(low.y, high.y)),
                  coordinate(std::abs(high.x - low.x)), coordinate(std::abs(high.y - low.y)), colour);
}

void SvgPicture::box(Point low, Point high, std::string_view colour, bool dashed) {
  body_ += fmt::format(
      "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"5\" fill=\"{}\" fill-opacity=\"0.14\" "
      "stroke=\"{}\"{}/>\n",
      coordinate(low.x), coordinate(low.y), coordinate(high.x - low.x), coordinate(high.y - low.y), colour,
      colour, dashed ? kDashes : "");
}

void SvgPicture::arrow(const std::vector<Point>& points, std::string_view colour, bool dashed) {
  constexpr double kLength = 7, kHalfWidth = 3.5;
  const Point tip = points.back(), from = points[points.size() - 2];
  const double length = std::hypot(tip.x - from.x, tip.y - from.y);
  const Point along{(tip.x - from.x) / length, (tip.y - from.y) / length};
  const Point base{tip.x - kLength * along.x, tip.y - kLength * along.y};
  std::vector<Point> shaft = points;
  shaft.back() = base;
  body_ += fmt::format("<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"1.4\"{} points=\"{}\"/>\n",
                       colour, dashed ? kDashes : "", places(shaft));
  body_ += fmt::format("<polygon fill=\"{}\" points=\"{}\"/>\n", colour,
                       places({tip,
                               {base.x - kHalfWidth * along.y, base.y + kHalfWidth * along.x},
                               {base.x + kHalfWidth * along.y, base.y - kHalfWidth * along.x}}));
}

std::string SvgPicture::svg() const {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "font-family=\"sans-serif\" font-size=\"{5}\">\n{2}\n<title>{3}</title>\n"
      "<style>@media (prefers-color-scheme: dark) {{svg {{filter: invert(0.9) hue-rotate(180deg)}}}}</style>\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"{6}\"/>\n{4}</svg>\n",
      width_, height_, kDrawnByEddy, title_, body_, kTextSize, kCardColour.light);
}

void SvgFrame::draw_axes(SvgPicture& picture) const {
  for (const Tick& tick : y_.ticks) {
    const double y = at(x_.low, tick.value).y;
    picture.line({left_, y}, {right(), y}, kRuleColour.light);
    picture.text({left_ - 8, y + 4}, SvgPicture::Anchor::end, tick.label, kSoftColour.light);
  }
  for (const Tick& tick : x_.ticks)
    picture.text({at(tick.value, y_.low).x, bottom() + 18}, SvgPicture::Anchor::middle, tick.label,
                 kSoftColour.light);
}

}  // namespace eddy::app
