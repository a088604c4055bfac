// The ordered map of recurrent state.
#include "autograd/state.h"

#include <algorithm>

#include "tensor/base/format.h"

namespace eddy {
namespace {

constexpr std::size_t kFew = 64;

}  // namespace

std::size_t State::place_of(std::string_view name) const {
  if (entries_.size() > kFew) {
    const auto found = places_.find(name);
    return found == places_.end() ? entries_.size() : found->second;
  }
  const auto found =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.first == name; });
  return static_cast<std::size_t>(found - entries_.begin());
}

void State::note_places() {
  if (entries_.size() <= kFew) return places_.clear();
  for (std::size_t place = places_.size(); place < entries_.size(); ++place)
    places_.emplace(entries_[place].first, place);
}

State State::from_map(const std::map<std::string, Tensor>& entries) {
  State state;
  for (const auto& [name, tensor] : entries) state.set(name, tensor);
  return state;
}

void State::set(std::string_view name, const Tensor& tensor) {
  if (name.empty()) fail<ValueError>("state: the name is empty (every tensor has a name)");
  if (!tensor.defined())
    fail<ValueError>("state: '{}' is set to an undefined tensor (erase it instead)", name);
  if (const std::size_t place = place_of(name); place < entries_.size()) {
    entries_[place].second = tensor;
    return;
  }
  entries_.emplace_back(name, tensor);
  try {
    note_places();
  } catch (...) {  // std::bad_alloc: without its place the entry would not be found
    entries_.pop_back();
    throw;
  }
}

const Tensor* State::find(std::string_view name) const {
  const std::size_t place = place_of(name);
  return place < entries_.size() ? &entries_[place].second : nullptr;
}

const Tensor& State::get(std::string_view name) const {
  if (const Tensor* found = find(name)) return *found;
  std::string names;
  for (const Entry& entry : entries_) names += (names.empty() ? "" : ", ") + entry.first;
  fail<ValueError>("state: there is no '{}' (it has: {})", name, names.empty() ? "nothing" : names);
}

void State::set_counts(std::string_view name, const std::vector<std::int64_t>& counts) {
  set(name, Tensor::from(counts, {static_cast<std::int64_t>(counts.size())}));
}

std::vector<std::int64_t> State::counts(std::string_view name) const {
  return raw::contiguous(raw::cast(get(name), Dtype::i64)).to_vector<std::int64_t>();
}

bool State::erase(std::string_view name) {
  const std::size_t place = place_of(name);
  if (place == entries_.size()) return false;
  if (const auto noted = places_.find(name); noted != places_.end()) places_.erase(noted);
  for (auto& [other, after] : places_) after -= after > place ? 1 : 0;
  entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(place));
  note_places();
  return true;
}

State State::detach() const {
  State plain;
  plain.entries_.reserve(entries_.size());
  plain.places_ = places_;
  for (const auto& [name, tensor] : entries_) {
    const bool small_view = tensor.bytes() < tensor.buffer()->bytes() / 2;
    plain.entries_.emplace_back(name, small_view ? raw::copy(tensor) : raw::alias(tensor));
  }
  return plain;
}

std::int64_t State::bytes() const {
  std::int64_t total = 0;
  for (const Entry& entry : entries_) total += entry.second.bytes();
  return total;
}

}  // namespace eddy
