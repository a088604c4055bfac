// Where each row of probabilities stands, and its largest numbers.
#include "train/app/inspect/attention_rows.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tensor/base/format.h"
#include "train/words/human_text.h"

namespace eddy::app {
using namespace training;
namespace {

// One token's probabilities: of head h and key k at p[h * stride + k], which stands at token first + k of the segment.
struct TokenRows {
  const double* p = nullptr;
  std::int64_t stride = 0, heads = 0, keys = 0, first = 0;
};

// Whether a value is an attention whose queries are tokens, and no gate shows it.
bool is_of_tokens(const NamedSegment& segment, const std::string& path) {
  if (!is_attention_path(path)) return false;
  const ValueMeaning* const meaning = meaning_of(segment.config, path);
  if (meaning != nullptr && !meaning->queries.empty()) return false;
  // An attention that only enters a gate is drawn as part of the gate.
  for (const auto& [other, calls] : segment.values) {
    const ValueMeaning* const gate = meaning_of(segment.config, other);
    if (gate != nullptr && !gate->enters.empty() && beside(scope_of(other), gate->enters) == path)
      return false;
  }
  return true;
}

}  // namespace

AttentionCollector::AttentionCollector(std::int64_t tokens, const InspectOptions& options)
    : options_(options), from_(options.from), to_(options.to < 0 ? tokens : options.to) {
  if (from_ < 0 || from_ >= to_ || to_ > tokens)
    fail<ValueError>("inspect: attention {}:{} of {} tokens (FROM below TO, TO at most {})", options.from,
                     to_, tokens, tokens);
}

template <class Visit>
void AttentionCollector::visit_rows(const NamedSegment& segment, bool numbers, const Visit& visit) const {
  std::vector<std::int64_t> visits(static_cast<std::size_t>(segment.valid));
  for (const auto& [path, calls] : segment.values) {
    const ValueMeaning* const meaning = meaning_of(segment.config, path);
    if (meaning != nullptr && !meaning->enters.empty()) {
      // A gate g is an attention to two keys: the state, which stands at the token before, and the token.
      const Tensor& gate = calls.front();
      const std::int64_t heads = gate.dim(1), time = gate.dim(2);
      const auto entered = segment.values.find(beside(scope_of(path), meaning->enters));
      const bool enters = entered != segment.values.end() && !entered->second.empty();
      const Tensor window = enters ? in_f64(entered->second.front()) : Tensor();
      std::vector<double> pair(static_cast<std::size_t>(2 * heads));
      for (std::int64_t at = 0; at < std::min(time, segment.valid); ++at) {
        for (std::int64_t head = 0; head < heads; ++head) {
          double g = gate.data<double>()[head * time + at];
          if (at == 0 && enters) g = window.data<double>()[head * window.dim(2) * window.dim(3)];
          pair[static_cast<std::size_t>(2 * head)] = g;
          pair[static_cast<std::size_t>(2 * head + 1)] = 1 - g;
        }
        visit(path, std::string(), at, std::int64_t{0}, TokenRows{pair.data(), 2, heads, 2, at - 1});
      }
      continue;
    }
    if (calls.empty() || !is_of_tokens(segment, path)) continue;
    std::ranges::fill(visits, 0);
    const std::vector<Tensor>* const places = segment.places_of(path, calls.size());
    std::int64_t next = 0;
    for (std::size_t call = 0; call < calls.size(); ++call) {
      const Tensor all = numbers ? in_f64(calls[call]) : calls[call];
      if (all.rank() != 4) continue;
      const double* const probabilities = numbers ? all.data<double>() : nullptr;
      const std::int64_t parts = all.dim(0), heads = all.dim(1), queries = all.dim(2), keys = all.dim(3);
      for (std::int64_t part = 0; part < parts; ++part) {
        const double* const place = places != nullptr ? (*places)[call].data<double>() : nullptr;
        const std::int64_t first =
            place != nullptr ? static_cast<std::int64_t>(place[0]) + part * queries : next % segment.time;
        const std::int64_t key =
            place != nullptr ? static_cast<std::int64_t>(place[1]) + part * queries : first + queries - keys;
        next += queries;
        for (std::int64_t query = 0; query < queries; ++query) {
          const std::int64_t at = first + query;
          if (at < 0 || at >= segment.valid) continue;
          const std::int64_t pass = visits[static_cast<std::size_t>(at)]++;
          const double* const p = numbers ? probabilities + (part * heads * queries + query) * keys : nullptr;
          visit(path, meaning != nullptr ? meaning->keys : std::string(), at, pass,
                TokenRows{p, queries * keys, heads, keys, key});
        }
      }
    }
  }
}

namespace {

// Gives a view its range, and what it had before, with at most as many passes and keys,
// in a range that began at `from` too.
void fill_view(AttentionView& view, const AttentionView& before, std::int64_t from, std::int64_t to) {
  view.from = from;
  view.to = to;
  const auto rows = static_cast<std::size_t>(view.passes * (view.heads + 1) * (to - from)),
             kept = static_cast<std::size_t>(view.kept), had = static_cast<std::size_t>(before.kept);
  view.key.assign(rows * kept, 0);
  view.share.assign(rows * kept, 0);
  view.rest.assign(rows, 0);
  for (std::int64_t pass = 0; had > 0 && pass < before.passes; ++pass)
    for (std::int64_t head = 0; head <= before.heads; ++head)
      for (std::int64_t token = from; token < std::min(to, before.to); ++token) {
        const std::size_t old = before.row(pass, head, token), row = view.row(pass, head, token);
        std::copy_n(before.key.data() + old * had, had, view.key.data() + row * kept);
        std::copy_n(before.share.data() + old * had, had, view.share.data() + row * kept);
        view.rest[row] = before.rest[old];
      }
}

}  // namespace

void AttentionCollector::make_room(const NamedSegment& segment) {
  std::map<std::string, AttentionView> wanted;  // sizes
  for (const auto& [path, view] : views_)
    wanted[path] = {view.path, view.keys, view.passes, view.heads, view.kept};
  bool more = false;
  visit_rows(segment, false,
             [&](const std::string& path, const std::string& keys, std::int64_t at, std::int64_t pass,
                 const TokenRows& rows) {
               if (const std::int64_t token = segment.begin + at; token < from_ || token >= to_) return;
               const auto [found, is_new] = wanted.try_emplace(path);
               AttentionView& view = found->second;
               if (is_new) view = {path, keys, 0, rows.heads};
               const std::int64_t kept = std::min(options_.kept, rows.keys);
               more = more || pass >= view.passes || kept > view.kept;
               view.passes = std::max(view.passes, pass + 1);
               view.kept = std::max(view.kept, kept);
             });
  if (!more) return;
  std::int64_t bytes = 0;  // of a token
  for (const auto& [path, view] : wanted) bytes += view.passes * (view.heads + 1) * (3 * view.kept + 1);
  const std::int64_t most = options_.most_bytes / bytes;
  if (options_.to < 0) {
    std::int64_t room = options_.bytes / bytes;
    if (segment.begin > from_)
      room = std::clamp(segment.begin + segment.valid - from_, room, std::max(room, most));
    to_ = std::min(to_, from_ + std::max<std::int64_t>(1, room));
  } else if (to_ - from_ > most) {
    fail<ValueError>(
        "inspect: the attention of {} tokens takes {} (at most {} tokens of this model, or fewer --keys)",
        to_ - from_, human_bytes((to_ - from_) * bytes), most);
  }
  for (auto& [path, view] : wanted) fill_view(view, views_[path], from_, to_);
  views_ = std::move(wanted);
}

void AttentionCollector::add(const NamedSegment& segment) {
  make_room(segment);
  std::vector<double> mean;
  std::vector<std::int64_t> order;
  visit_rows(
      segment, true,
      [&](const std::string& path, const std::string& keys, std::int64_t at, std::int64_t pass,
          const TokenRows& rows) {
        const auto found = views_.find(path);
        const std::int64_t token = segment.begin + at;
        if (found == views_.end() || token < from_ || token >= to_) return;
        AttentionView& view = found->second;
        if (rows.heads != view.heads) return;
        mean.assign(static_cast<std::size_t>(rows.keys), 0);
        for (std::int64_t head = 0; head <= rows.heads; ++head) {
          const double* const p = head < rows.heads ? rows.p + head * rows.stride : mean.data();
          order.resize(static_cast<std::size_t>(rows.keys));
          std::iota(order.begin(), order.end(), 0);
          const std::int64_t kept = std::min(view.kept, rows.keys);
          std::partial_sort(
              order.begin(), order.begin() + kept, order.end(),
              [p](std::int64_t a, std::int64_t b) { return p[a] != p[b] ? p[a] > p[b] : a > b; });
          const std::size_t row = view.row(pass, head, token),
                            place = row * static_cast<std::size_t>(view.kept);
          double sum = 0, shown = 0;
          for (std::int64_t k = 0; k < rows.keys; ++k) {
            sum += p[k];
            if (head < rows.heads)
              mean[static_cast<std::size_t>(k)] += p[k] / static_cast<double>(rows.heads);
          }
          for (std::int64_t i = 0; i < kept; ++i) {
            const std::int64_t k = order[static_cast<std::size_t>(i)];
            const auto share = static_cast<std::uint8_t>(std::lround(std::clamp(p[k], 0.0, 1.0) * 255));
            if (share == 0) break;
            view.key[place + static_cast<std::size_t>(i)] =
                static_cast<std::int32_t>(keys.empty() ? at - (rows.first + k) : k);
            view.share[place + static_cast<std::size_t>(i)] = share;
            shown += p[k];
          }
          view.rest[row] = static_cast<std::uint8_t>(std::lround(std::clamp(sum - shown, 0.0, 1.0) * 255));
        }
      });
}

void AttentionCollector::take(Inspection& inspection) && {
  for (auto& [path, view] : views_) inspection.attention.push_back(std::move(view));
}

}  // namespace eddy::app
