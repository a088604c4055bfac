// A binary counter of partial sums, whose upper levels ranks add together.
#include "train/step/reducer.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "autograd/tape.h"
#include "ops/optimizer/optimizer.h"

namespace eddy::training {
namespace {

// Overwrites the values of parameters that a rank does not hold with those of the ranks that hold them.
void gather_values(ParamStore& params, Ranks& ranks, const ArenaBuckets& buckets) {
  std::vector<std::unique_ptr<TreeCollective>> parts;
  for (const Bucket& bucket : buckets.all())
    parts.push_back(std::make_unique<TreeCollective>(ranks, params.values(), bucket.tree, std::vector<bool>{},
                                                     static_cast<int>(parts.size()) + 1,
                                                     TreeCollective::Work::all_gather));
  for (const std::unique_ptr<TreeCollective>& part : parts) part->finish();
  wrote_in_place(params.values(), "gather_values");
}

// The norm of each parameter's gradient. With shard each rank computes those of its own parameters and gets the others.
Tensor gradient_norms(const ParamStore& params, Ranks* ranks, const ArenaBuckets* buckets) {
  const std::vector<Parameter>& all = params.parameters();
  const Tensor& gradients = params.gradients();
  const auto count = std::ssize(all);
  const Tensor norms = Tensor::zeros({count}, Dtype::f64, gradients.device());
  const bool shard = ranks != nullptr && buckets->shard();
  for (std::size_t i = 0; i < all.size(); ++i)
    if (!shard || buckets->owner(i) == ranks->rank())
      raw::copy_into(
          raw::narrow(norms, 0, static_cast<std::int64_t>(i), 1),
          raw::reshape(l2_norm(raw::narrow(gradients, 0, all[i].offset, all[i].shape.elements())), {1}));
  if (!shard) return norms;
  const Tensor local = raw::to_device(norms, kCpu);
  const std::vector<std::byte> bytes =
      all_gather(*ranks, std::as_bytes(std::span(local.data<double>(), all.size())));
  std::vector<double> numbers(all.size());
  for (std::size_t i = 0; i < all.size(); ++i)
    std::memcpy(
        &numbers[i],
        bytes.data() + (static_cast<std::size_t>(buckets->owner(i)) * all.size() + i) * sizeof(double),
        sizeof(double));
  return raw::to_device(Tensor::from(numbers, {count}), gradients.device());
}

}  // namespace

GradientReducer::GradientReducer(ParamStore& params, std::int64_t micro_batches,
                                 std::vector<std::int64_t> scored, Ranks* ranks, const ArenaBuckets* buckets)
    : params_(params),
      micro_batches_(micro_batches),
      scored_(std::move(scored)),
      ranks_(ranks),
      buckets_(buckets),
      is_plain_(micro_batches == 1 && ranks == nullptr),
      local_(ranks != nullptr ? micro_batches / ranks->size() : micro_batches),
      first_(ranks != nullptr ? local_ * ranks->rank() : 0) {}

bool GradientReducer::has_gradient(std::int64_t number) const {
  return scored_[static_cast<std::size_t>(batch_ * micro_batches_ + number)] > 0;
}

void GradientReducer::put_aside() {
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
void GradientReducer::add_top() {
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

void GradientReducer::begin() {
  if (is_plain_) return;
  if (begun_) put_aside();
  begun_ = true;
  params_.zero_gradients();
  if (ranks_ != nullptr && ended_ + 1 == local_) watch_gradients();
}

void GradientReducer::watch_gradients() {
  present_.assign(static_cast<std::size_t>(ranks_->size()), false);
  for (std::int64_t number = 0; number < micro_batches_; ++number)
    if (has_gradient(number)) present_[static_cast<std::size_t>(number / local_)] = true;
  const std::vector<Bucket>& all = buckets_->all();
  unsent_ = all.size();
  missing_.clear();
  bucket_of_.clear();
  for (std::size_t i = 0; i < all.size(); ++i) {
    missing_.push_back(all[i].last - all[i].first);
    bucket_of_.insert(bucket_of_.end(), missing_.back(), i);
  }
  if (const Tensor& arena = params_.gradients();
      arena.device() != kCpu && ranks_->size() > 1 && !space_.defined()) {
    std::int64_t most = 0;
    for (const Bucket& bucket : all) most = std::max(most, bucket.tree.part(1, ranks_->rank()).size());
    space_ = Tensor::empty({most}, arena.dtype(), arena.device());
  }
  std::vector<Tensor> values;
  for (const Parameter& parameter : params_.parameters()) values.push_back(parameter.value);
  watch_.emplace(
      values, [this](std::size_t parameter) { note_final(parameter); }, [this] { advance(); });
}

void GradientReducer::note_final(std::size_t i) {
  const Parameter& parameter = params_.parameters()[i];
  if (!grad(parameter.value).defined()) raw::fill(parameter.part_of(params_.gradients()), 0);
  --missing_[bucket_of_[i]];
  // Those from the end of the arena, where the last modules are, are complete first. GPUs need one order on all ranks.
  while (unsent_ > 0 && missing_[unsent_ - 1] == 0) send(--unsent_, true);
}

// Adds the micro-batches that are open below the last one, as add_top does for the whole arena.
void GradientReducer::send(std::size_t bucket, bool in_arena) {
  const BinaryTree& tree = buckets_->all()[bucket].tree;
  const BinaryTree::Part whole = tree.whole();
  const auto part = [&](const Tensor& arena) { return raw::narrow(arena, 0, whole.begin, whole.size()); };
  const Tensor local = part(params_.gradients());
  auto open = stack_.rbegin();
  for (std::int64_t number = ended_; number % 2 == 1; number /= 2, ++open) {
    if (!open->defined()) continue;
    if (in_arena)
      raw::add_into(local, part(*open));
    else
      raw::copy_into(local, part(*open));
    in_arena = true;
  }
  // Numbers of buckets are tags: what goes on first is not the same on all ranks. 0 is that of other messages.
  sums_.push_back(std::make_unique<TreeCollective>(
      *ranks_, params_.gradients(), tree, present_, static_cast<int>(bucket) + 1,
      buckets_->shard() ? TreeCollective::Work::reduce_scatter : TreeCollective::Work::all_reduce, space_));
}

void GradientReducer::advance() {
  constexpr double kBetween = 50e-6;  // seconds: asking MPI costs some of them
  if (space_.defined() || sums_.empty() || seconds_between(advanced_) < kBetween) return;
  for (const std::unique_ptr<TreeCollective>& sum : sums_) static_cast<void>(sum->advance());
  advanced_ = Clock::now();
}

void GradientReducer::end() {
  if (is_plain_) return;
  const std::vector<Parameter>& parameters = params_.parameters();
  const bool present = has_gradient(first_ + ended_);
  reached_.resize(parameters.size());
  if (present)
    for (std::size_t i = 0; i < parameters.size(); ++i)
      reached_[i] = reached_[i] || grad(parameters[i].value).defined();
  in_arena_ = present;
  if (!watch_) {
    if (present) params_.zero_missing_gradients();
    for (std::int64_t number = ended_++; number % 2 == 1; number /= 2) add_top();
  } else {
    watch_.reset();
    if (!present)
      while (unsent_ > 0) send(--unsent_, false);
    for (std::int64_t number = ended_++; number % 2 == 1; number /= 2) {
      if (stack_.back().defined()) spare_.push_back(stack_.back());
      stack_.pop_back();
    }
  }
  if (ended_ == local_) end_batch();
}

void GradientReducer::end_batch() {
  if (ranks_ != nullptr) {
    for (const std::unique_ptr<TreeCollective>& sum : sums_) sum->finish();
    sums_.clear();
    in_arena_ = std::find(present_.begin(), present_.end(), true) != present_.end();
  }
  if (batch_ > 0) add_top();  // the bottom of the stack is the sum of the batches before
  ++batch_;
  ended_ = 0;
}

void GradientReducer::finish() {
  if (is_plain_) return;
  if (ranks_ != nullptr) {
    std::vector<std::byte> local(reached_.size());
    std::transform(reached_.begin(), reached_.end(), local.begin(),
                   [](bool reached) { return std::byte{reached}; });
    const std::vector<std::byte> all = all_gather(*ranks_, local);
    for (std::size_t i = 0; i < all.size(); ++i)
      if (all[i] != std::byte{0}) reached_[i % reached_.size()] = true;
  }
  params_.mark_gradients(reached_);
}

Tensor GradientReducer::update(Optimizer& optimizer, const Tensor& scalars, const Tensor& before) {
  if (is_plain_) return optimizer.apply(scalars, before);
  norms_ = gradient_norms(params_, ranks_, buckets_);
  const Tensor norm = l2_norm(norms_, before);
  optimizer.apply_with_norm(scalars, norm);
  if (ranks_ != nullptr && buckets_->shard()) gather_values(params_, *ranks_, *buckets_);
  params_.renew_bf16_copy();
  return norm;
}

}  // namespace eddy::training
