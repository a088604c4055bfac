// Readers of leaves, and the end of their gradients.
#include "autograd/leaf_watch.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "autograd/engine.h"
#include "tensor/base/format.h"

namespace eddy {
namespace {

thread_local LeafWatch* watch_of_thread = nullptr;

}  // namespace

LeafWatch* LeafWatch::of_thread() {
  return watch_of_thread;
}

LeafWatch::LeafWatch(const std::vector<Tensor>& leaves, std::function<void(std::size_t)> is_final,
                     std::function<void()> between)
    : is_final_(std::move(is_final)), between_(std::move(between)) {
  if (watch_of_thread != nullptr) fail<GraphError>("LeafWatch: another one is alive on this thread");
  for (const Tensor& leaf : leaves) {
    const detail::Variable* const variable = leaf.defined() ? detail::variable_of(leaf) : nullptr;
    if (variable == nullptr || !variable->node->is_leaf())
      fail<GraphError>("LeafWatch: tensor {} is not a leaf", leaves_.size());
    index_.emplace(variable->node.get(), leaves_.size());
    leaves_.push_back({variable->node});
  }
  watch_of_thread = this;
}

LeafWatch::~LeafWatch() {
  watch_of_thread = nullptr;
}

void LeafWatch::note_reader(const Node& read, std::uint64_t number) {
  if (!read.is_leaf()) return;
  if (const auto found = index_.find(&read); found != index_.end()) lower(found->second, number);
}

void LeafWatch::note_reader(const Node& read) {
  if (!read.is_leaf()) return;
  if (const auto found = index_.find(&read); found != index_.end()) unnumbered_.push_back(found->second);
}

void LeafWatch::number_readers(std::uint64_t number) {
  for (const std::size_t leaf : unnumbered_) lower(leaf, number);
  unnumbered_.clear();
}

void LeafWatch::lower(std::size_t leaf, std::uint64_t number) {
  std::uint64_t& first = leaves_[leaf].first_reader;
  first = first == 0 ? number : std::min(first, number);
}

bool LeafWatch::begin_pass() {
  if (in_pass_) return false;
  in_pass_ = true;
  order_.resize(leaves_.size());
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  // Unsigned: 0 - 1 is the highest number.
  std::stable_sort(order_.begin(), order_.end(), [this](std::size_t a, std::size_t b) {
    return leaves_[a].first_reader - 1 > leaves_[b].first_reader - 1;
  });
  next_ = 0;
  return true;
}

void LeafWatch::pass(std::uint64_t number) {
  for (; next_ < order_.size(); ++next_) {
    Leaf& leaf = leaves_[order_[next_]];
    if (leaf.first_reader - 1 < number) break;  // it is at most `number`, and may not have run
    flush(leaf.node->slot(0));
    leaf.is_final = true;
    is_final_(order_[next_]);
  }
  between_();
}

void LeafWatch::end_pass() {
  pass(0);
  in_pass_ = false;
}

void LeafWatch::check_open(const Node& writer, const Node& leaf) const {
  const auto found = index_.find(&leaf);
  if (found != index_.end() && leaves_[found->second].is_final)
    fail<GraphError>("backward: {} adds to the gradient of a watched leaf that was final", describe(writer));
}

}  // namespace eddy
