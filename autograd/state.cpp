// The ordered map of recurrent state.
#include "autograd/state.h"

#include <algorithm>

#include "tensor/base/format.h"

namespace eddy {
namespace {

template <class Entries>
auto position(Entries& entries, std::string_view name) {
  return std::find_if(entries.begin(), entries.end(),
                      [&](const State::Entry& entry) { return entry.first == name; });
}

}  // namespace

State State::from_map(const std::map<std::string, Tensor>& entries) {
  State state;
  for (const auto& [name, tensor] : entries) state.set(name, tensor);
  return state;
}

void State::set(std::string_view name, const Tensor& tensor) {
  if (name.empty()) fail<ValueError>("state: the name is empty (every tensor has a name)");
  if (!tensor.defined())
    fail<ValueError>("state: '{}' is set to an undefined tensor (erase it instead)", name);
  const auto found = position(entries_, name);
  if (found != entries_.end())
    found->second = tensor;
  else
    entries_.emplace_back(name, tensor);
}

const Tensor* State::find(std::string_view name) const {
  const auto found = position(entries_, name);
  return found != entries_.end() ? &found->second : nullptr;
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
  const auto found = position(entries_, name);
  if (found == entries_.end()) return false;
  entries_.erase(found);
  return true;
}

State State::detach() const {
  State plain;
  plain.entries_.reserve(entries_.size());
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
