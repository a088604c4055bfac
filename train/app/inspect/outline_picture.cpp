// Modules stand in a column, in the order in which they run. What the next one reads goes straight down. What later
// ones read goes down a lane at the right of the column, one for each module that is read. What is read from behind, in
// a loop or from a part of a module, goes up a lane at the left, one for each module that reads. Below: the state and
// the reach.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tensor/base/format.h"
#include "train/app/inspect/model_outline.h"
#include "train/app/views/svg_picture.h"
#include "train/words/human_text.h"

namespace eddy::app {
using namespace training;
namespace {

using Point = SvgPicture::Point;
using Anchor = SvgPicture::Anchor;
using Font = SvgPicture::Font;

constexpr double kMargin = 14, kLeastWidth = 400, kColumn = 96, kLane = 11, kGap = 18;
constexpr double kTitle = 15, kName = 12, kSmall = 10.5, kBody = 12;    // sizes of fonts
constexpr double kNameWide = 0.61 * kName, kSmallWide = 0.61 * kSmall;  // of a character of code
constexpr double kTextWide = 0.58 * kBody, kTitleWide = 0.66 * kTitle;  // of one of prose, on average
constexpr double kSmallLine = 13, kTextLine = 16;                       // heights of lines
constexpr double kLeastBox = 46;                                        // for three lines beside it
constexpr const char *kInk = kInkColour.light, *kGrey = kSoftColour.light, *kArrow = kSoftColour.light;

// Splits at blanks into lines of at most so many characters, where words are that short.
std::vector<std::string> wrapped(const std::string& text, std::size_t characters) {
  std::vector<std::string> lines{""};
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    if (!lines.back().empty() && lines.back().size() + 1 + word.size() > characters) lines.emplace_back();
    lines.back() += (lines.back().empty() ? "" : " ") + word;
    begin = end + 1;
  }
  return lines;
}

struct Row {
  double top = 0, bottom = 0;
  std::vector<std::string> ops;  // lines of them
  bool in_loop = false;
};

// A line beside the column: from the hub to the taps, or from the taps up to the hub.
struct Lane {
  std::size_t hub = 0;
  std::vector<std::size_t> taps;
  bool up = false, loop = false;
  int place = 0;  // 0 is next to the column
  double hub_y = 0;
  std::vector<double> tap_y;

  std::size_t first() const { return std::min(hub, *std::min_element(taps.begin(), taps.end())); }
  std::size_t last() const { return std::max(hub, *std::max_element(taps.begin(), taps.end())); }
};

// Gives lanes places, short ones next to the column, so that none lies on another. Returns how many places there are.
int put_in_places(std::vector<Lane>& lanes) {
  std::stable_sort(lanes.begin(), lanes.end(),
                   [](const Lane& a, const Lane& b) { return a.last() - a.first() < b.last() - b.first(); });
  int places = 0;
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    std::set<int> taken;
    for (std::size_t j = 0; j < i; ++j)
      if (lanes[j].first() <= lanes[i].last() && lanes[i].first() <= lanes[j].last())
        taken.insert(lanes[j].place);
    while (taken.contains(lanes[i].place)) ++lanes[i].place;
    places = std::max(places, lanes[i].place + 1);
  }
  return places;
}

// Spreads the ends of lanes along the side of each box: those that go up above those that go down.
void put_ends(std::vector<Lane>& lanes, const std::vector<Row>& rows) {
  for (std::size_t row = 0; row < rows.size(); ++row) {
    std::vector<double*> up, down;
    for (Lane& lane : lanes) {
      lane.tap_y.resize(lane.taps.size());
      for (std::size_t t = 0; t < lane.taps.size(); ++t)
        if (lane.taps[t] == row) (lane.hub == row ? down : up).push_back(&lane.tap_y[t]);
      const bool to_itself_alone = lane.last() == row;
      if (lane.hub == row) (to_itself_alone ? up : down).push_back(&lane.hub_y);
    }
    up.insert(up.end(), down.begin(), down.end());
    const double step = (rows[row].bottom - rows[row].top) / static_cast<double>(up.size() + 1);
    for (std::size_t i = 0; i < up.size(); ++i) *up[i] = rows[row].top + step * static_cast<double>(i + 1);
  }
}

class OutlinePicture {
 public:
  explicit OutlinePicture(const ModelOutline& outline) : outline_(outline) {
    for (std::size_t i = 0; i < outline.modules.size(); ++i) index_[outline.modules[i].name] = i;
    collect_lanes();
    lay_out();
  }

  std::string svg() const {
    SvgPicture picture(static_cast<int>(width_), static_cast<int>(height_),
                       fmt::format("What a {} model is made of: its modules and what they read, the "
                                   "multiply-adds of each, its state and its reach",
                                   outline_.name));
    picture.text({kMargin, 24}, Anchor::start, outline_.name, kInk, Font::bold, kTitle);
    picture.text({kMargin, 42}, Anchor::start, sizes(), kGrey, Font::plain, kBody);
    draw_flow(picture);
    draw_state(picture);
    draw_reach(picture);
    return picture.svg();
  }

 private:
  static std::string shown(const std::string& name) { return name.empty() ? "(model)" : name; }
  const char* colour(bool in_loop) const { return picture_colour(in_loop ? 1 : 0); }
  std::size_t characters(double wide) const {
    return static_cast<std::size_t>(std::max(1.0, (width_ - 2 * kMargin) / wide));
  }

  std::string sizes() const {
    return fmt::format("{} parameters, {} multiply-adds a token", grouped(outline_.parameters),
                       grouped(std::llround(outline_.multiply_adds)));
  }

  void collect_lanes() {
    const std::vector<OutlinedModule>& modules = outline_.modules;
    std::map<std::size_t, std::vector<std::size_t>> readers;
    for (std::size_t i = 0; i < modules.size(); ++i) {
      for (const std::string& from : modules[i].reads)
        if (const std::size_t source = index_.at(from); source + 1 != i) readers[source].push_back(i);
      for (const bool loop : {false, true}) {
        Lane lane{.hub = i, .taps = {}, .up = true, .loop = loop, .tap_y = {}};
        for (const std::string& from : loop ? modules[i].loops : modules[i].parts)
          lane.taps.push_back(index_.at(from));
        if (!lane.taps.empty()) left_lanes_.push_back(std::move(lane));
      }
    }
    for (const auto& [source, taps] : readers)
      right_lanes_.push_back({.hub = source, .taps = taps, .tap_y = {}});
  }

  void lay_out() {
    const int left = put_in_places(left_lanes_), right = put_in_places(right_lanes_);
    double wide = 0;  // what the widest names need
    for (const OutlinedModule& module : outline_.modules)
      wide = std::max(wide, kNameWide * static_cast<double>(shown(module.name).size()) + 16);
    const double beside = 2 * kMargin + kLane * (left + right) + 2 * kLane + kColumn;
    width_ = std::max(kLeastWidth, std::ceil(wide + beside));
    const auto make_room = [&](double text) { width_ = std::max(width_, std::ceil(text + 2 * kMargin)); };
    make_room(kTitleWide * static_cast<double>(outline_.name.size()));
    make_room(kTextWide * static_cast<double>(sizes().size()));
    for (const auto& [name, shape] : outline_.state)
      make_room(kSmallWide * static_cast<double>(name.size() + to_string(shape).size() + 2) + kColumn);
    left_ = kMargin + kLane * left + (left > 0 ? kLane : 0);
    right_ = width_ - kMargin - kColumn - kLane * (right + 1);

    double y = kFlow;
    const auto fit = static_cast<std::size_t>((right_ - left_ - 14) / kSmallWide);
    for (std::size_t i = 0; i < outline_.modules.size(); ++i) {
      Row row{.top = y, .ops = wrapped(fmt::format("{}", fmt::join(outline_.modules[i].ops, ", ")), fit)};
      row.bottom = y + std::max(kLeastBox, 26 + kSmallLine * static_cast<double>(row.ops.size()));
      row.in_loop = outline_.modules[i].in_steps;
      has_loop_ = has_loop_ || row.in_loop;
      y = row.bottom + kGap;
      rows_.push_back(std::move(row));
    }
    put_ends(left_lanes_, rows_);
    put_ends(right_lanes_, rows_);
    state_top_ = y + kTextLine + (has_loop_ ? 42 : 18);
    const double tensors = static_cast<double>(outline_.state.size());
    reach_top_ = state_top_ + kTextLine * (tensors + static_cast<double>(kept().size())) + 26;
    height_ = reach_top_ + (outline_.reach ? 52 : 4) + kTextLine * static_cast<double>(seen().size());
  }

  void draw_flow(SvgPicture& picture) const {
    const double middle = (left_ + right_) / 2;
    picture.text({middle, kFlow - kGap - 4}, Anchor::middle, "tokens", kGrey, Font::plain, kBody);
    picture.text({width_ - kMargin, kFlow - kGap - 18}, Anchor::end, "multiply-adds", kInk, Font::plain, 11);
    picture.text({width_ - kMargin, kFlow - kGap - 5}, Anchor::end, "parameters", kGrey, Font::plain, 11);
    double most = 1;
    for (const OutlinedModule& module : outline_.modules) most = std::max(most, module.multiply_adds);
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const Row& row = rows_[i];
      const OutlinedModule& module = outline_.modules[i];
      const bool reads_last = i > 0 && std::find(module.reads.begin(), module.reads.end(),
                                                 outline_.modules[i - 1].name) != module.reads.end();
      if (i == 0 || reads_last) picture.arrow({{middle, row.top - kGap}, {middle, row.top}}, kArrow);
      picture.box({left_, row.top}, {right_, row.bottom}, colour(row.in_loop), row.in_loop);
      picture.text({left_ + 7, row.top + 17}, Anchor::start, shown(module.name), kInk, Font::code, kName);
      for (std::size_t line = 0; line < row.ops.size(); ++line)
        picture.text({left_ + 7, row.top + 32 + kSmallLine * static_cast<double>(line)}, Anchor::start,
                     row.ops[line], kGrey, Font::code, kSmall);
      const double at = (row.top + row.bottom) / 2;
      picture.text({width_ - kMargin, at - 6}, Anchor::end, grouped(std::llround(module.multiply_adds)), kInk,
                   Font::code, kSmall);
      if (module.multiply_adds > 0)
        picture.bar({width_ - kMargin - std::max(1.0, kColumn * module.multiply_adds / most), at - 2},
                    {width_ - kMargin, at + 3}, colour(row.in_loop));
      picture.text({width_ - kMargin, at + 14}, Anchor::end, grouped(module.parameters), kGrey, Font::code,
                   kSmall);
    }
    for (const Lane& lane : right_lanes_) draw_lane(picture, lane, right_, right_ + kLane * (lane.place + 1));
    for (const Lane& lane : left_lanes_) draw_lane(picture, lane, left_, left_ - kLane * (lane.place + 1));
    const double end = rows_.empty() ? kFlow : rows_.back().bottom;
    picture.arrow({{middle, end}, {middle, end + kGap}}, kArrow);
    picture.text({middle, end + kGap + 12}, Anchor::middle, "logits", kGrey, Font::plain, kBody);
    if (has_loop_)
      picture.text({kMargin, end + kGap + 32}, Anchor::start,
                   "dashed: in a loop, whose steps wait for each other", colour(true), Font::plain, kBody);
  }

  // Draws a lane at x beside the boxes whose side is at `side`.
  static void draw_lane(SvgPicture& picture, const Lane& lane, double side, double x) {
    const char* const colour = lane.loop ? picture_colour(1) : kArrow;
    const auto furthest = std::max_element(lane.tap_y.begin(), lane.tap_y.end());
    const Point hub{side, lane.hub_y}, at_hub{x, lane.hub_y};
    const Point end{side, *furthest}, at_end{x, *furthest};
    if (lane.up)
      picture.arrow({end, at_end, at_hub, hub}, colour, lane.loop);
    else
      picture.arrow({hub, at_hub, at_end, end}, colour);
    for (const double& y : lane.tap_y) {
      if (&y == &*furthest) continue;
      picture.dot({x, y}, 2, colour);
      if (lane.up)
        picture.line({side, y}, {x, y}, colour, lane.loop);
      else
        picture.arrow({{x, y}, {side, y}}, colour);
    }
  }

  // What a stream keeps, as lines.
  std::vector<std::string> kept() const {
    std::string text = outline_.state.empty() ? "nothing; " : "";
    text += fmt::format("a stream keeps {} bytes", grouped(outline_.stream_bytes));
    text += outline_.stream_bytes == outline_.long_stream_bytes
                ? ", at any length"
                : fmt::format(" after {} {}, {} after {}", grouped(outline_.tokens),
                              plural(outline_.tokens, "token"), grouped(outline_.long_stream_bytes),
                              grouped(10 * outline_.tokens));
    return wrapped(text, characters(kTextWide));
  }

  void draw_state(SvgPicture& picture) const {
    double y = state_top_;
    picture.text({kMargin, y}, Anchor::start, "state for the next call", kInk, Font::bold, kBody);
    std::int64_t most = 1;
    for (const auto& [name, shape] : outline_.state) most = std::max(most, shape.elements());
    for (const auto& [name, shape] : outline_.state) {
      y += kTextLine;
      picture.text({kMargin, y}, Anchor::start, fmt::format("{} {}", name, to_string(shape)), kInk,
                   Font::code, kSmall);
      const double share = static_cast<double>(shape.elements()) / static_cast<double>(most);
      picture.bar({width_ - kMargin - std::max(1.0, kColumn * share), y - 7}, {width_ - kMargin, y - 1},
                  colour(true));
    }
    for (const std::string& line : kept())
      picture.text({kMargin, y += kTextLine}, Anchor::start, line, kGrey, Font::plain, kBody);
  }

  // What the last token sees, as lines.
  std::vector<std::string> seen() const {
    const std::string text =
        outline_.reach ? fmt::format("the last token sees {} of the {} {} of its call, and {} before it{}",
                                     grouped(*outline_.reach), grouped(outline_.tokens),
                                     plural(outline_.tokens, "token"),
                                     outline_.sees_before ? "through the state what was" : "nothing",
                                     outline_.faint ? ", the farthest by less than f64 shows" : "")
                       : "not measured at this size";
    return wrapped(text, characters(kTextWide));
  }

  // The tokens of two calls as two strips; what the last one sees is filled.
  void draw_reach(SvgPicture& picture) const {
    double y = reach_top_;
    picture.text({kMargin, y}, Anchor::start, "reach", kInk, Font::bold, kBody);
    if (outline_.reach) {
      const double call = kMargin + (width_ - 2 * kMargin) / 3, end = width_ - kMargin;
      const double seen_from = end - (end - call) * static_cast<double>(*outline_.reach) /
                                         static_cast<double>(std::max<std::int64_t>(1, outline_.tokens));
      const double top = y + 26, bottom = y + 38;
      picture.text({kMargin, y + 21}, Anchor::start, "the call before", kGrey, Font::plain, 11);
      picture.text({call, y + 21}, Anchor::start, "this call", kGrey, Font::plain, 11);
      picture.text({end, y + 21}, Anchor::end, "last token", kGrey, Font::plain, 11);
      if (outline_.sees_before) picture.bar({kMargin, top}, {call - 4, bottom}, colour(true));
      picture.bar({seen_from, top}, {end, bottom}, colour(false));
      picture.box({kMargin, top}, {call - 4, bottom}, kGrey, true);
      picture.box({call, top}, {end, bottom}, kGrey);
      y = bottom + 4;
    }
    for (const std::string& line : seen())
      picture.text({kMargin, y += kTextLine}, Anchor::start, line, kGrey, Font::plain, kBody);
  }

  static constexpr double kFlow = 104;  // where the first box begins

  const ModelOutline& outline_;
  std::map<std::string, std::size_t> index_;  // of modules by name
  bool has_loop_ = false;
  std::vector<Lane> right_lanes_, left_lanes_;
  std::vector<Row> rows_;
  double width_ = 0, height_ = 0, left_ = 0, right_ = 0, state_top_ = 0, reach_top_ = 0;
};

}  // namespace

std::string draw_outline(const ModelOutline& outline) {
  return OutlinePicture(outline).svg();
}

}  // namespace eddy::app
