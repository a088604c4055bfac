// A binary counter of partial sums.
#include "train/step/gradient_tree.h"

#include <algorithm>
#include <cstddef>
#include <span>

#include "autograd/tape.h"

namespace eddy {

void GradientTree::put_aside() {
  if (!in_arena_) {
    stack_.emplace_back();
    return;
  }
  const Tensor& arena = params_.gradients();
  if (spare_.empty()) spare_.push_back(Tensor::empty(arena.shape(), arena.dtype(), arena.device()));
  stack_.push_back(spare_.back());
  spare_.pop_back();
  raw::copy_into(stack_.back(), arena);
  in_arena_ = false;
}

// a + b and b + a have the same bits, so it does not matter which of the two the arena holds.
void GradientTree::merge() {
  const Tensor before = stack_.back();
  stack_.pop_back();
  if (!before.defined()) return;
  if (in_arena_)
    raw::add_into(params_.gradients(), before);
  else
    raw::copy_into(params_.gradients(), before);
  in_arena_ = true;
  spare_.push_back(before);
}

void GradientTree::begin_leaf() {
  if (begun_) put_aside();
  begun_ = true;
  params_.zero_gradients();
}

void GradientTree::end_leaf(bool present) {
  const std::vector<Parameter>& parameters = params_.parameters();
  reached_.resize(parameters.size());
  if (present) {
    for (std::size_t i = 0; i < parameters.size(); ++i)
      reached_[i] = reached_[i] || grad(parameters[i].value).defined();
    params_.zero_missing_gradients();
  }
  in_arena_ = present;
  for (std::int64_t number = leaves_++; number % 2 == 1; number /= 2) merge();
}

void GradientTree::end_batch(const std::vector<bool>& present) {
  if (ranks_ != nullptr) {
    add_all(*ranks_, params_.gradients(), present);
    in_arena_ = std::find(present.begin(), present.end(), true) != present.end();
  }
  if (has_batch_) merge();
  has_batch_ = true;
  leaves_ = 0;
}

void GradientTree::finish() {
  if (ranks_ != nullptr) {
    std::vector<std::byte> own(reached_.size());
    std::transform(reached_.begin(), reached_.end(), own.begin(),
                   [](bool reached) { return std::byte{reached}; });
    const std::vector<std::byte> all = gather_all(*ranks_, own);
    for (std::size_t i = 0; i < all.size(); ++i)
      if (all[i] != std::byte{0}) reached_[i % reached_.size()] = true;
  }
  params_.mark_gradients(reached_);
}

}  // namespace eddy
