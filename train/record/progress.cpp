// The live line. It is redrawn with a carriage return and "erase to the end of the line" (ECMA-48, EL).
#include "train/record/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "train/process/stop_signal.h"
#include "train/ranks/launched.h"
#include "train/words/human_text.h"

namespace eddy::training {
namespace {

using std::chrono::duration;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kRedraw{100};  // redrawing more often is not visible, and slows short steps
constexpr milliseconds kMarkSpacing{500};
constexpr seconds kWindow{60};
constexpr double kSmoothing = 0.95;  // a mean over some 20 steps
constexpr int kUnknownColumns = 80;

// A piece of the line. Pieces of a high rank are dropped first when the line is too long.
struct Piece {
  std::string text;
  int rank;
};

std::string join(const std::vector<Piece>& pieces) {
  std::string line;
  for (const Piece& piece : pieces) {
    if (!line.empty()) line += "  ";
    line += piece.text;
  }
  return line;
}

// The width of a terminal; 0 where it is not known.
int columns_of(std::FILE* stream) {
  winsize size{};
  return ::ioctl(::fileno(stream), TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

}  // namespace

bool moves_cursor(std::FILE* stream) {
  const char* const kind = std::getenv("TERM");
  return ::isatty(::fileno(stream)) == 1 && kind != nullptr && *kind != '\0' &&
         std::string_view(kind) != "dumb";
}

bool redraws(std::FILE* stream) {
  return moves_cursor(stream) && columns_of(stream) > 0 && launched().processes == 1;
}

Progress::Progress(std::FILE* out, const ProgressOptions& options, Clock::time_point start)
    : out_(out), options_(options), terminal_(options.terminal.value_or(redraws(out))), start_(start) {}

Progress::~Progress() {
  if (live_.empty() || is_stalled()) return;
  std::fputc('\n', out_);
  std::fflush(out_);
}

void Progress::update(const StepRecord& update, Clock::time_point now) {
  // A lower step number is a new beginning (a second phase, a rollback): the old pace does not apply.
  if (has_state_ && update.step < state_.step) marks_.clear();
  state_ = update;
  has_state_ = true;
  unprinted_ = true;
  if (std::isfinite(update.loss)) {
    smooth_sum_ = kSmoothing * smooth_sum_ + (1 - kSmoothing) * update.loss;
    smooth_weight_ = kSmoothing * smooth_weight_ + (1 - kSmoothing);
  }
  if (marks_.empty() || now - marks_.back().time >= kMarkSpacing) marks_.push_back({now, update.step});
  // The last two marks stay however old they are, so that steps of more than a minute still have a pace.
  while (marks_.size() > 2 && now - marks_[1].time >= kWindow) marks_.pop_front();

  if (!last_print_ || !printed_state_ || now - *last_print_ >= interval_between_lines()) print(now);
}

Clock::duration Progress::interval_between_lines() const {
  if (terminal_) return kRedraw;
  return std::chrono::duration_cast<Clock::duration>(
      duration<double>(std::max(0.0, options_.plain_interval_s)));
}

bool Progress::is_stalled() const {
  return stop_requested() && std::ferror(out_) != 0;
}

void Progress::message(std::string_view text) {
  if (is_stalled()) return;
  clear_live();
  std::string safe = printable(text);
  if (safe.empty() || safe.back() != '\n') safe += '\n';
  std::fwrite(safe.data(), 1, safe.size(), out_);
  if (shows_work_) live_.clear();  // the work is done; the next step draws its line
  shows_work_ = false;
  draw_live();
  std::fflush(out_);
}

void Progress::work(std::string_view text, Clock::time_point now) {
  if (is_stalled()) return;
  const Clock::duration interval = interval_between_lines();
  if (now - last_print_.value_or(terminal_ ? now - interval : start_) < interval) return;
  last_print_ = now;
  if (terminal_) {
    live_ = printable(text).substr(0, static_cast<std::size_t>(std::max(0, columns() - 1)));
    shows_work_ = true;
    draw_live();
  } else {
    std::fputs((printable(text) + "\n").c_str(), out_);
  }
  std::fflush(out_);
}

void Progress::finish(Clock::time_point now) {
  if (is_stalled()) return;
  if (!has_state_) {
    clear_live();
    live_.clear();
    return;
  }
  if (unprinted_ || terminal_) print(now);
  if (!live_.empty()) std::fputc('\n', out_);
  live_.clear();
  std::fflush(out_);
  has_state_ = false;
  last_print_.reset();
  marks_.clear();
}

double Progress::part_done(std::int64_t step, Clock::time_point now) const {
  double done = 0;
  if (options_.total_steps > 0) done = static_cast<double>(step) / static_cast<double>(options_.total_steps);
  if (options_.minutes_limit > 0)
    done = std::max(done, seconds_between(start_, now) / (60 * options_.minutes_limit));
  return std::clamp(done, 0.0, 1.0);
}

std::optional<double> Progress::seconds_left(Clock::time_point now) const {
  std::optional<double> left;
  if (options_.minutes_limit > 0)
    left = std::max(0.0, options_.minutes_limit * 60 - seconds_between(start_, now));
  const std::int64_t steps_left = options_.total_steps - state_.step;
  if (options_.total_steps <= 0 || !has_state_) return left;
  if (steps_left <= 0) return 0.0;
  // From the first mark to now, not to the last step: when a step hangs, the estimate grows.
  const std::int64_t steps = marks_.empty() ? 0 : state_.step - marks_.front().step;
  if (steps <= 0) return left;
  const double pace_s = seconds_between(marks_.front().time, now) / static_cast<double>(steps);
  const double by_steps = pace_s * static_cast<double>(steps_left);
  return left ? std::min(*left, by_steps) : by_steps;
}

std::string Progress::line(Clock::time_point now, int columns) const {
  std::vector<Piece> pieces;
  const std::int64_t total = options_.total_steps;
  pieces.push_back(
      {total > 0 ? fmt::format("step {}/{}", state_.step, total) : fmt::format("step {}", state_.step), 0});
  // Rounded down: 100% is said only when the last step is done, or the time is over.
  if (total > 0 || options_.minutes_limit > 0)
    pieces.push_back({fmt::format("{:.0f}%", std::floor(100 * part_done(state_.step, now))), 5});
  const double loss = std::isfinite(state_.loss) ? smooth_sum_ / smooth_weight_ : state_.loss;
  const bool fixed =
      std::abs(loss) >= 0.01 && std::abs(loss) < 1e5;  // a fixed number of decimals is readable here
  const bool smoothed =
      std::isfinite(state_.loss) && smooth_weight_ > 1.5 * (1 - kSmoothing);  // of several steps
  pieces.push_back(
      {(smoothed ? "smoothed loss " : "loss ") + (fixed ? fmt::format("{:.4f}", loss) : human_number(loss)),
       1});
  if (std::isfinite(state_.learning_rate))
    pieces.push_back({"lr " + human_number(state_.learning_rate, 3), 6});
  if (std::isfinite(state_.tokens_per_second))
    pieces.push_back({human_count(state_.tokens_per_second) + " tokens/s", 3});
  if (const std::int64_t bytes = std::max(state_.resident_bytes, state_.memory_bytes); bytes > 0)
    pieces.push_back({human_bytes(bytes), 7});
  pieces.push_back({human_duration(std::floor(seconds_between(start_, now))), 4});
  const bool done = total > 0 && state_.step >= total;
  if (const std::optional<double> left = seconds_left(now); left && !done)
    pieces.push_back({human_duration(std::floor(*left)) + " left", 2});

  std::string text = join(pieces);
  while (static_cast<int>(text.size()) > columns && pieces.size() > 1) {
    pieces.erase(std::max_element(pieces.begin(), pieces.end(),
                                  [](const Piece& a, const Piece& b) { return a.rank < b.rank; }));
    text = join(pieces);
  }
  return text.substr(0, static_cast<std::size_t>(std::max(0, columns)));  // every character is ASCII
}

void Progress::print(Clock::time_point now) {
  if (is_stalled()) return;
  last_print_ = now;
  printed_state_ = true;
  unprinted_ = false;
  if (terminal_) {
    // One column stays free: in the last one some terminals wrap.
    live_ = line(now, columns() - 1);
    shows_work_ = false;
    draw_live();
  } else {
    constexpr int kNoLimit = 1 << 20;
    std::fputs((line(now, kNoLimit) + "\n").c_str(), out_);
  }
  std::fflush(out_);
}

void Progress::draw_live() {
  if (!live_.empty()) std::fputs(("\r" + live_ + "\x1b[K").c_str(), out_);
}

void Progress::clear_live() {
  if (!live_.empty()) std::fputs("\r\x1b[K", out_);
}

int Progress::columns() const {
  if (options_.width > 0) return options_.width;
  const int known = columns_of(out_);
  return known > 0 ? known : kUnknownColumns;
}

}  // namespace eddy::training
