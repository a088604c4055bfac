// Norms, changes and means.
#include "train/app/inspect/token_series.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tensor/tensor.h"

namespace eddy::app {
using namespace training;
namespace {

constexpr double kNotKnown = std::numeric_limits<double>::quiet_NaN();

double norm_of(std::span<const double> x) {
  double sum = 0;
  for (const double v : x) sum += v * v;
  return std::sqrt(sum);
}

// |after - before| / |before|; none where there was nothing before.
double change_of(std::span<const double> after, std::span<const double> before) {
  if (before.size() != after.size()) return kNotKnown;
  double sum = 0;
  for (std::size_t i = 0; i < after.size(); ++i) sum += (after[i] - before[i]) * (after[i] - before[i]);
  const double size = norm_of(before);
  return size > 0 ? std::sqrt(sum) / size : kNotKnown;
}

// The rows of a value [1, rows, width] or [1, width].
struct ValueRows {
  std::span<const double> numbers;
  std::int64_t count = 0;
  std::size_t width = 0;

  explicit ValueRows(const Tensor& x)
      : numbers(x.data<double>(), static_cast<std::size_t>(x.elements())),
        count(x.rank() > 2 ? x.elements() / std::max<std::int64_t>(1, x.dim(-1)) : 1),
        width(count > 0 ? numbers.size() / static_cast<std::size_t>(count) : 0) {}
  std::span<const double> operator[](std::int64_t row) const {
    return numbers.subspan(static_cast<std::size_t>(row) * width, width);
  }
};

double mean_of(const Tensor& x) {
  const double* const first = x.data<double>();
  return std::accumulate(first, first + x.elements(), 0.0) / static_cast<double>(x.elements());
}

// The tokens behind each beginning of a state until its norm first reaches the lowest quarter of all its norms.
std::vector<TokenRange> settling_of(const std::vector<float>& norms,
                                    const std::vector<std::int64_t>& begins) {
  std::vector<float> sorted;
  for (const float norm : norms)
    if (std::isfinite(norm)) sorted.push_back(norm);
  if (sorted.empty()) return {};
  const auto quarter = sorted.begin() + std::ssize(sorted) / 4;
  std::ranges::nth_element(sorted, quarter);
  std::vector<TokenRange> ranges;
  for (std::size_t i = 0; i < begins.size(); ++i) {
    const std::int64_t end = i + 1 < begins.size() ? begins[i + 1] : std::ssize(norms);
    std::int64_t token = begins[i];
    while (token < end && !(norms[static_cast<std::size_t>(token)] >= *quarter)) ++token;
    if (token > begins[i]) ranges.push_back({begins[i], token});
  }
  return ranges;
}

}  // namespace

bool is_state_path(const ModelConfig& config, const std::string& path) {
  const ValueMeaning* const meaning = meaning_of(config, path);
  return meaning != nullptr ? !meaning->rows.empty() : path.ends_with("state");
}

const std::vector<Tensor>* NamedSegment::places_of(const std::string& path, std::size_t calls) const {
  const auto found = values.find(beside(scope_of(path), "place"));
  return found != values.end() && found->second.size() == calls ? &found->second : nullptr;
}

Tensor in_f64(const Tensor& x) {
  return raw::contiguous(x.dtype() == Dtype::f64 ? x : raw::cast(x, Dtype::f64));
}

std::string scope_of(const std::string& path) {
  const std::size_t dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}

std::string beside(const std::string& scope, std::string_view name) {
  return scope.empty() ? std::string(name) : scope + "." + std::string(name);
}

std::vector<float>& SeriesCollector::series(TokenMeasure measure, const std::string& path) {
  std::vector<float>& found = series_[{measure, path}];
  if (found.empty()) found.assign(static_cast<std::size_t>(tokens_), std::numeric_limits<float>::quiet_NaN());
  return found;
}

bool SeriesCollector::is_whole(const NamedSegment& segment, std::int64_t block, std::int64_t call) {
  const std::int64_t has = std::clamp<std::int64_t>(segment.valid - call * block, 0, block);
  if (has > 0 && has < block) unfilled_ = std::max(unfilled_, has);
  return has == block;
}

// States come before the attention that moves them, whatever the order of their names.
void SeriesCollector::add(const NamedSegment& segment, bool goes_on) {
  changes_.clear();
  for (const auto& [path, calls] : segment.values) {
    if (calls.empty() || is_attention_path(path) || is_place_path(path)) continue;
    if (is_bias_path(path)) {
      add_bias(segment, path, calls);
      continue;
    }
    const ValueMeaning* const meaning = meaning_of(segment.config, path);
    if (is_state_path(segment.config, path))
      add_state(segment, path, calls, meaning, goes_on);
    else
      add_gate(segment, path, calls, meaning);
  }
  for (const auto& [path, calls] : segment.values)
    if (is_attention_path(path))
      if (const ValueMeaning* const meaning = meaning_of(segment.config, path);
          meaning != nullptr && !meaning->moves.empty())
        add_moved(segment, path, calls, beside(scope_of(scope_of(path)), meaning->moves));
}

// A learned bias is that of every call. Another one is a mean over the queries of a call: the last call counts that has
// tokens of the text alone. Where calls are parts of a segment, its attention, if it was looked at,
// says how many queries each has.
void SeriesCollector::add_bias(const NamedSegment& segment, const std::string& path,
                               const std::vector<Tensor>& calls) {
  if (calls.back().rank() != 2) return;
  const ValueMeaning* const meaning = meaning_of(segment.config, path);
  auto call = std::ssize(calls) - 1;
  if (segment.valid < segment.time &&
      (meaning == nullptr || !value_is(meaning->covers, GateCover::nothing))) {
    const std::vector<Tensor>* const places = segment.places_of(path, calls.size());
    const auto attention = segment.values.find(beside(scope_of(path), "probabilities"));
    const bool known =
        places != nullptr && attention != segment.values.end() && attention->second.size() == calls.size();
    const auto end_of = [&](std::ptrdiff_t i) {
      const auto at = static_cast<std::size_t>(i);
      return static_cast<std::int64_t>((*places)[at].data<double>()[0]) + attention->second[at].dim(2);
    };
    while (call >= 0 && (!known || end_of(call) > segment.valid)) --call;
  }
  if (call < 0) {
    has_padded_bias_ = true;
    return;
  }
  const Tensor& chosen = calls[static_cast<std::size_t>(call)];
  BiasCurve& curve = biases_[path] = {path, chosen.dim(0), {}};
  for (const double v : chosen.to_vector<double>()) curve.values.push_back(static_cast<float>(v));
}

void SeriesCollector::add_state(const NamedSegment& segment, const std::string& path,
                                const std::vector<Tensor>& calls, const ValueMeaning* meaning, bool goes_on) {
  if (!goes_on) {
    before_.erase(path);
    begins_[path].push_back(segment.begin);
  }
  if (const std::vector<Tensor>* const places = segment.places_of(path, calls.size()))
    return add_passes(segment, path, calls, *places);
  std::int64_t rows = 0;
  for (const Tensor& call : calls) rows += ValueRows(call).count;
  const bool slots = meaning != nullptr ? value_is(meaning->rows, StateRows::slots) : rows > segment.time;
  if (slots) return add_slots(segment, path, calls);
  if (rows > segment.time) {
    unplaced_.insert(path);
    return;
  }
  const bool several = calls.size() > 1 && ValueRows(calls.front()).count > 1;
  add_rows(segment, path, calls, meaning != nullptr ? value_is(meaning->rows, StateRows::blocks) : several);
}

void SeriesCollector::add_rows(const NamedSegment& segment, const std::string& path,
                               const std::vector<Tensor>& calls, bool by_block) {
  std::vector<float>&norms = series(TokenMeasure::norm, path), &changes = series(TokenMeasure::change, path);
  Before& before = before_[path];
  std::int64_t at = 0;
  for (const Tensor& call : calls) {
    const ValueRows rows(call);
    const std::span<const double> earlier(before.numbers);
    for (std::int64_t row = 0; row < rows.count; ++row, ++at) {
      std::span<const double> old;
      if (by_block && row < before.rows)
        old = earlier.subspan(static_cast<std::size_t>(row) * rows.width, rows.width);
      if (!by_block) old = row > 0 ? rows[row - 1] : earlier;
      if (at >= segment.valid) continue;
      const auto token = static_cast<std::size_t>(segment.begin + at);
      norms[token] = static_cast<float>(norm_of(rows[row]));
      changes[token] = static_cast<float>(change_of(rows[row], old));
      visit(path, segment.begin + at, segment.begin + at + 1, rows[row]);
    }
    const std::span<const double> last = by_block || rows.count == 0 ? rows.numbers : rows[rows.count - 1];
    before = {{last.begin(), last.end()}, by_block ? rows.count : 1};
  }
}

// All tokens of a block have the numbers of its state; those of a block that padding fills up have none.
void SeriesCollector::add_slots(const NamedSegment& segment, const std::string& path,
                                const std::vector<Tensor>& calls) {
  const auto count = std::ssize(calls);
  if (segment.time % count != 0) {
    unplaced_.insert(path);
    return;
  }
  std::vector<float>&norms = series(TokenMeasure::norm, path), &changes = series(TokenMeasure::change, path);
  Before& before = before_[path];
  const std::int64_t block = segment.time / count;
  for (std::int64_t call = 0; call < count; ++call) {
    if (!is_whole(segment, block, call)) {
      changes_[path].push_back(kNotKnown);
      continue;
    }
    const ValueRows rows(calls[static_cast<std::size_t>(call)]);
    const double change = change_of(rows.numbers, before.numbers);
    changes_[path].push_back(change);
    for (std::int64_t at = call * block; at < (call + 1) * block; ++at) {
      const auto token = static_cast<std::size_t>(segment.begin + at);
      norms[token] = static_cast<float>(norm_of(rows.numbers));
      changes[token] = static_cast<float>(change);
    }
    visit(path, segment.begin + call * block, segment.begin + (call + 1) * block, rows.numbers);
    before = {{rows.numbers.begin(), rows.numbers.end()}, rows.count};
  }
}

// A token's row occurs in several calls: what counts is the last one, and the one before that.
void SeriesCollector::add_passes(const NamedSegment& segment, const std::string& path,
                                 const std::vector<Tensor>& calls, const std::vector<Tensor>& places) {
  std::vector<float>&norms = series(TokenMeasure::norm, path), &changes = series(TokenMeasure::change, path);
  std::vector<std::vector<double>> last(static_cast<std::size_t>(segment.valid));
  for (std::size_t call = 0; call < calls.size(); ++call) {
    const ValueRows rows(calls[call]);
    const auto first = static_cast<std::int64_t>(places[call].data<double>()[0]);
    for (std::int64_t row = 0; row < rows.count; ++row) {
      const std::int64_t at = first + row;
      if (at < 0 || at >= segment.valid) continue;
      std::vector<double>& old = last[static_cast<std::size_t>(at)];
      const auto token = static_cast<std::size_t>(segment.begin + at);
      norms[token] = static_cast<float>(norm_of(rows[row]));
      changes[token] = static_cast<float>(change_of(rows[row], old));
      old.assign(rows[row].begin(), rows[row].end());
    }
  }
  for (std::int64_t at = 0; at < segment.valid; ++at)
    if (const std::vector<double>& numbers = last[static_cast<std::size_t>(at)]; !numbers.empty())
      visit(path, segment.begin + at, segment.begin + at + 1, numbers);
}

// Attention [1, heads, vectors, keys] of each update, whose last key is the last token of the block.
void SeriesCollector::add_moved(const NamedSegment& segment, const std::string& path,
                                const std::vector<Tensor>& calls, const std::string& state) {
  const auto found = changes_.find(state);
  const auto count = std::ssize(calls);
  if (found == changes_.end() || std::ssize(found->second) != count) {
    unplaced_.insert(path);
    return;
  }
  std::vector<float>& moved = series(TokenMeasure::moved, state);
  const std::int64_t block = segment.time / count;
  for (std::int64_t call = 0; call < count; ++call) {
    if (!is_whole(segment, block, call)) continue;
    const double change = found->second[static_cast<std::size_t>(call)];
    const Tensor p = in_f64(calls[static_cast<std::size_t>(call)]);
    const std::int64_t keys = p.dim(3), readers = p.elements() / std::max<std::int64_t>(1, keys);
    if (keys == 0) continue;
    std::vector<double> paid(static_cast<std::size_t>(keys));
    const double* row = p.data<double>();
    for (std::int64_t reader = 0; reader < readers; ++reader, row += keys)
      for (std::int64_t key = 0; key < keys; ++key) paid[static_cast<std::size_t>(key)] += row[key];
    for (std::int64_t key = 0; key < keys; ++key) {
      const std::int64_t at = (call + 1) * block - keys + key, token = segment.begin + at;
      if (token < 0) continue;
      float& sum = moved[static_cast<std::size_t>(token)];
      const double share = std::isnan(change)
                               ? 0
                               : change * paid[static_cast<std::size_t>(key)] / static_cast<double>(readers);
      sum = static_cast<float>((std::isnan(sum) ? 0.0 : static_cast<double>(sum)) + share);
    }
  }
}

void SeriesCollector::add_gate(const NamedSegment& segment, const std::string& path,
                               const std::vector<Tensor>& calls, const ValueMeaning* meaning) {
  const auto count = std::ssize(calls);
  const Tensor& first = calls.front();
  const bool last_axis = meaning != nullptr ? value_is(meaning->covers, GateCover::last_axis)
                                            : count == 1 && first.rank() == 3 && first.dim(2) == segment.time;
  const bool nothing = meaning != nullptr ? value_is(meaning->covers, GateCover::nothing) : first.rank() < 2;
  if (nothing) {
    std::vector<float>& kept = learned_[path];
    kept.clear();
    for (const double v : calls.back().to_vector<double>()) kept.push_back(static_cast<float>(v));
    return;
  }
  if (first.elements() == 0 || (last_axis ? count != 1 : segment.time % count != 0)) {
    unplaced_.insert(path);
    return;
  }
  std::vector<float>& gates = series(TokenMeasure::gate, path);
  if (!last_axis) {
    const std::int64_t block = segment.time / count;
    for (std::int64_t call = 0; call < count; ++call) {
      if (!is_whole(segment, block, call)) continue;
      const double mean = mean_of(calls[static_cast<std::size_t>(call)]);
      for (std::int64_t at = call * block; at < (call + 1) * block; ++at)
        gates[static_cast<std::size_t>(segment.begin + at)] = static_cast<float>(mean);
    }
    return;
  }
  const std::int64_t time = first.dim(-1), rows = first.elements() / time;
  for (std::int64_t at = 0; at < std::min(time, segment.valid); ++at) {
    double sum = 0;
    for (std::int64_t row = 0; row < rows; ++row) sum += first.data<double>()[row * time + at];
    gates[static_cast<std::size_t>(segment.begin + at)] = static_cast<float>(sum / static_cast<double>(rows));
  }
  if (meaning == nullptr || meaning->enters.empty()) return;
  // The state of the segment before, key 0 of the window of the first token.
  const auto entered = segment.values.find(beside(scope_of(path), meaning->enters));
  if (entered == segment.values.end() || entered->second.empty()) return;
  const Tensor window = in_f64(entered->second.front());
  double sum = 0;
  for (std::int64_t head = 0; head < window.dim(1); ++head)
    sum += window.data<double>()[head * window.dim(2) * window.dim(3)];
  gates[static_cast<std::size_t>(segment.begin)] =
      static_cast<float>(sum / static_cast<double>(window.dim(1)));
}

void SeriesCollector::take(Inspection& inspection) && {
  for (auto& [key, values] : series_) {
    // Where a token has one pass, or a text one block, nothing changes.
    if (std::ranges::all_of(values, [](float v) { return std::isnan(v); })) continue;
    inspection.series.push_back({key.first, key.second, std::move(values)});
  }
  for (TokenSeries& one : inspection.series)
    if (one.measure == TokenMeasure::change || one.measure == TokenMeasure::moved)
      if (const TokenSeries* const norms = inspection.find(TokenMeasure::norm, one.path))
        one.settling = settling_of(norms->values, begins_[one.path]);
  for (auto& [path, curve] : biases_) inspection.biases.push_back(std::move(curve));
  for (auto& [path, values] : learned_) inspection.learned.push_back({path, std::move(values)});
  inspection.unfilled = unfilled_;
  inspection.has_padded_bias = has_padded_bias_ && inspection.biases.empty();
  inspection.unplaced.assign(unplaced_.begin(), unplaced_.end());
}

}  // namespace eddy::app
