// Means and variances of every number of a state, by the answer.
#include "train/app/inspect/state_numbers.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "autograd/tape.h"
#include "tensor/base/format.h"
#include "train/app/views/chart.h"
#include "train/app/views/svg_picture.h"
#include "train/eval/eval_parts.h"
#include "train/words/human_text.h"

namespace eddy::app {
using namespace training;
namespace {

// Sums of numbers and of their squares. Numbers are counted from their first value, so that rounding does not drown a
// small variance.
struct Moments {
  double count = 0, sum = 0, squares = 0;
  void add(double x) {
    ++count;
    sum += x;
    squares += x * x;
  }
  double mean() const { return sum / count; }
  double variance() const { return std::max(0.0, squares / count - mean() * mean()); }
};

struct StatePlace {
  std::string tensor;
  std::int64_t width = 0;  // numbers of a row
};

// The tensors of a state that have a row for each stream.
std::vector<StatePlace> state_places_of(const State& state, std::int64_t rows) {
  std::vector<StatePlace> places;
  for (const auto& [name, tensor] : state)
    if (is_floating(tensor.dtype()) && tensor.rank() > 0 && tensor.dim(0) == rows && tensor.elements() > 0)
      places.push_back({name, tensor.elements() / rows});
  return places;
}

// Calls visit(t, logits, state) after each token.
template <class Visit>
void stream_rows(const Model& model, const Batch& batch, const Visit& visit) {
  const NoGrad no_grad;
  State state;
  const Device device = model.params().values().device();
  for (std::int64_t t = 0; t < batch.tokens.dim(1); ++t) {
    const Tensor token = raw::to_device(raw::contiguous(raw::narrow(batch.tokens, 1, t, 1)), device);
    const Tensor logits = plain_f64(model.stream(token, state));
    visit(t, logits, state);
  }
}

}  // namespace

std::string StateNumber::name() const {
  return fmt::format("{}[{}]", tensor, index);
}

StateStudy study_state(const Model& model, const Batch& batch, std::int32_t answer,
                       const std::function<void(std::int64_t, std::int64_t)>& progress) {
  StateStudy study;
  study.rows = batch.tokens.dim(0);
  study.time = batch.tokens.dim(1);
  if (batch.targets.dim(1) != study.time)
    fail<ValueError>("state: {} answers in a row of {} tokens (each token needs one)", batch.targets.dim(1),
                     study.time);
  const std::int32_t* const target = batch.targets.data<std::int32_t>();
  const auto at = [&](std::int64_t row, std::int64_t t) {
    return static_cast<std::size_t>(row * study.time + t);
  };
  for (std::int64_t i = 0; i < study.rows * study.time; ++i)
    study.is_answer.push_back(static_cast<char>(target[i] < 0 ? 2 : target[i] == answer ? 1 : 0));

  std::vector<StatePlace> places;
  std::vector<std::vector<double>> origin;
  std::vector<std::vector<std::array<Moments, 2>>> moments;
  stream_rows(model, batch, [&](std::int64_t t, const Tensor& logits, const State& state) {
    if (progress) progress(t, 2 * study.time);
    const std::int64_t classes = logits.dim(-1);
    for (std::int64_t row = 0; row < study.rows; ++row) {
      const double* const of_row = logits.data<double>() + row * classes;
      if (target[at(row, t)] < 0) continue;
      ++study.answers;
      if (std::max_element(of_row, of_row + classes) - of_row == target[at(row, t)]) ++study.right;
    }
    if (t == 0) {
      places = state_places_of(state, study.rows);
      for (const StatePlace& place : places) {
        moments.emplace_back(static_cast<std::size_t>(place.width));
        origin.push_back(plain_f64(state.get(place.tensor)).to_vector<double>());
      }
    }
    for (std::size_t p = 0; p < places.size();) {
      const Tensor* const tensor = state.find(places[p].tensor);
      if (tensor == nullptr || tensor->elements() != study.rows * places[p].width) {  // it grows
        moments.erase(moments.begin() + static_cast<std::ptrdiff_t>(p));
        origin.erase(origin.begin() + static_cast<std::ptrdiff_t>(p));
        places.erase(places.begin() + static_cast<std::ptrdiff_t>(p));
        continue;
      }
      const Tensor values = plain_f64(*tensor);
      const double* x = values.data<double>();
      for (std::int64_t row = 0; row < study.rows; ++row)
        for (std::int64_t i = 0; i < places[p].width; ++i, ++x)
          if (const char kind = study.is_answer[at(row, t)]; kind < 2)
            moments[p][static_cast<std::size_t>(i)][static_cast<std::size_t>(kind)].add(
                *x - origin[p][static_cast<std::size_t>(i)]);
      ++p;
    }
  });
  if (places.empty())
    fail<ValueError>("state: {} keeps no state of a size that does not grow (take a recurrent model)",
                     model.config().model);
  for (std::size_t p = 0; p < places.size(); ++p)
    for (std::int64_t i = 0; i < places[p].width; ++i) {
      const auto& [others, mine] = moments[p][static_cast<std::size_t>(i)];
      if (mine.count == 0 || others.count == 0)
        fail<ValueError>("state: answer {} is {} in these streams (name one that is given now and then)",
                         answer, mine.count == 0 ? "never given" : "the only one");
      const double spread = std::sqrt((mine.variance() + others.variance()) / 2);
      const double zero = origin[p][static_cast<std::size_t>(i)];
      if (spread > 0)
        study.numbers.push_back({places[p].tensor, i, std::abs(mine.mean() - others.mean()) / spread,
                                 zero + mine.mean(), zero + others.mean()});
    }
  if (study.numbers.empty()) fail<ValueError>("state: no number of the state ever changes");
  std::stable_sort(study.numbers.begin(), study.numbers.end(),
                   [](const StateNumber& a, const StateNumber& b) { return a.separation > b.separation; });

  study.values.resize(study.is_answer.size());
  const StateNumber& best = study.numbers.front();
  stream_rows(model, batch, [&](std::int64_t t, const Tensor&, const State& state) {
    if (progress) progress(study.time + t, 2 * study.time);
    const Tensor values = plain_f64(state.get(best.tensor));
    const std::int64_t width = values.elements() / study.rows;
    for (std::int64_t row = 0; row < study.rows; ++row)
      study.values[at(row, t)] = values.data<double>()[row * width + best.index];
  });
  return study;
}

std::string draw_state(const StateStudy& study, const StateCaption& caption) {
  using At = SvgPicture::Anchor;
  constexpr int kWidth = 720, kHeight = 300;
  constexpr double kLeft = 60, kTop = 44, kTime = 470, kCounts = 150, kBetween = 14, kPlotHeight = 208;
  constexpr std::size_t kBars = 60;
  const StateNumber& number = study.numbers.front();
  const auto [low, high] = std::minmax_element(study.values.begin(), study.values.end());
  const Axis y = make_axis(*low, *high, {.round_ends = true});
  const std::string title = fmt::format(
      "One number of the state, {}, after each token: {} and {} lie {:.0f} standard deviations apart",
      number.name(), caption.answer, caption.others, number.separation);
  SvgPicture picture(kWidth, kHeight, title);
  const SvgFrame time(kLeft, kTop, kTime, kPlotHeight,
                      make_axis(0, static_cast<double>(study.time), {.whole_steps = true}), y);
  time.draw_axes(picture);
  const char *const mine = picture_colour(0), *const theirs = picture_colour(1);
  const char* const soft = kSoftColour.light;
  picture.text({kLeft, 16}, At::start,
               fmt::format("one of the {} numbers of the state, along one stream", study.numbers.size()));
  picture.text({kLeft, 34}, At::start, "answer: " + caption.answer, mine);
  picture.text({kLeft + 140, 34}, At::start, "answer: " + caption.others, theirs);
  picture.text({kLeft + kTime / 2, kHeight - 8}, At::middle, "tokens read", soft);
  if (caption.trained > 0 && caption.trained < study.time) {
    const double x = time.at(static_cast<double>(caption.trained), y.low).x;
    picture.line({x, kTop}, {x, time.bottom()}, soft, true);
    picture.text({x + 5, kTop + kPlotHeight / 2}, At::start,
                 fmt::format("trained on streams of {}", caption.trained), soft);
  }
  Chart along;
  along.series = {{caption.answer, {}, {}, SeriesStyle::points},
                  {caption.others, {}, {}, SeriesStyle::points}};
  for (std::int64_t t = 0; t < study.time; ++t)
    if (const char kind = study.is_answer[static_cast<std::size_t>(t)]; kind < 2)
      along.series[kind == 1 ? 0 : 1].add(static_cast<double>(t + 1),
                                          study.values[static_cast<std::size_t>(t)]);
  draw_series(picture, time, along);

  // How often the number takes each value, over all streams.
  std::vector<std::array<double, 2>> counts(kBars);
  for (std::size_t i = 0; i < study.values.size(); ++i) {
    const double place = (study.values[i] - y.low) / (y.high - y.low) * static_cast<double>(kBars);
    if (study.is_answer[i] < 2)
      ++counts[std::min(kBars - 1, static_cast<std::size_t>(std::max(0.0, place)))]
              [static_cast<std::size_t>(study.is_answer[i])];
  }
  double most = 1;
  for (const auto& pair : counts) most = std::max({most, pair[0], pair[1]});
  const double begin = kLeft + kTime + kBetween;
  picture.line({begin, kTop}, {begin, time.bottom()}, soft);
  for (std::size_t i = 0; i < kBars; ++i)
    for (const std::size_t kind : {std::size_t{0}, std::size_t{1}})
      if (counts[i][kind] > 0) {
        const double step = (y.high - y.low) / static_cast<double>(kBars);
        const double from = time.at(0, y.low + static_cast<double>(i) * step).y;
        const double to = time.at(0, y.low + static_cast<double>(i + 1) * step).y;
        picture.bar({begin, from}, {begin + std::max(1.0, counts[i][kind] / most * kCounts), to},
                    kind == 1 ? mine : theirs);
      }
  picture.text({begin, 16}, At::start, fmt::format("in {} streams:", grouped(study.rows)));
  picture.text({begin, 34}, At::start, fmt::format("{:.0f} deviations apart", number.separation));
  picture.text({begin, kHeight - 8}, At::start,
               fmt::format("right: {:.4g} % of {}",
                           100 * static_cast<double>(study.right) /
                               static_cast<double>(std::max<std::int64_t>(1, study.answers)),
                           grouped(study.answers)),
               soft);
  return picture.svg();
}

}  // namespace eddy::app
