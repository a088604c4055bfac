// Nodes, saved tensors and the gradient sink.
#include "autograd/node.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "autograd/engine.h"
#include "autograd/leaf_watch.h"
#include "autograd/tape.h"
#include "tensor/base/format.h"
#include "tensor/memory/allocator.h"
#include "tensor/transfer.h"

namespace eddy {
namespace {

std::atomic<std::uint64_t> next_sequence{1};
std::atomic<std::int64_t> live_nodes{0}, saved_bytes_now{0}, deepest{0}, recorded_nodes{0};

// For the out-of-memory text: which modules have saved the most for backward.
void report_scopes(char* text, std::size_t capacity) {
  std::string lines = fmt::format("; saved for backward: {} bytes", saved_bytes_now.load());
  for (const Scope* scope : largest_scopes(3))
    if (scope->saved_bytes > 0)
      lines += fmt::format(", {} bytes in '{}'", scope->saved_bytes,
                           scope->path.empty() ? "(no module)" : scope->path);
  lines.copy(text, capacity - 1);
  text[std::min(lines.size(), capacity - 1)] = '\0';
}
[[maybe_unused]] const bool report_installed = (detail::set_memory_report(report_scopes), true);

}  // namespace

detail::SavedTensor::SavedTensor(const Tensor& tensor, const Scope* scope) : scope_(scope) {
  if (!tensor.defined()) return;
  tensor_ = raw::alias(tensor);
  Buffer& buffer = *tensor_.buffer();
  version_ = buffer.version();
  if (buffer.saves++ == 0) {
    saved_bytes_now.fetch_add(buffer.bytes(), std::memory_order_relaxed);
    scope_->saved_bytes += buffer.bytes();
    buffer.saved_bytes_counter = &scope_->saved_bytes;
  }
}

detail::SavedTensor::SavedTensor(SavedTensor&& other) noexcept
    : tensor_(std::exchange(other.tensor_, Tensor())), version_(other.version_), scope_(other.scope_) {}

detail::SavedTensor::~SavedTensor() {
  if (!tensor_.defined()) return;
  Buffer& buffer = *tensor_.buffer();
  if (--buffer.saves == 0) {
    saved_bytes_now.fetch_sub(buffer.bytes(), std::memory_order_relaxed);
    *buffer.saved_bytes_counter -= buffer.bytes();
  }
}

const Tensor& detail::SavedTensor::get(const Node& node) const {
  if (tensor_.defined() && tensor_.buffer()->version() != version_)
    fail<VersionError>(
        "{}: a tensor {} saved for the backward pass was overwritten by {}: version {} was saved, it is now "
        "{} (call backward before the write, or detach state that is carried over it)",
        describe(node), to_string(tensor_.shape()), tensor_.buffer()->last_writer(), version_,
        tensor_.buffer()->version());
  return tensor_;
}

Node::Node(const char* name, int outputs, bool counted)
    : op(name),
      sequence(next_sequence.fetch_add(1, std::memory_order_relaxed)),
      scope(current_scope()),
      depth(counted ? 1 : 0),
      counted_(counted),
      slots_(static_cast<std::size_t>(outputs)) {
  if (!counted_) return;
  live_nodes.fetch_add(1, std::memory_order_relaxed);
  recorded_nodes.fetch_add(1, std::memory_order_relaxed);
}

Node::~Node() {
  if (counted_) live_nodes.fetch_sub(1, std::memory_order_relaxed);
}

void Node::add_edge(const Tensor& input) {
  const detail::Variable* variable = input.defined() ? detail::variable_of(input) : nullptr;
  if (variable == nullptr) {
    edges_.emplace_back();
    return;
  }
  edges_.push_back({variable->node, variable->output});
  if (LeafWatch* const watch = LeafWatch::of_thread()) watch->note_reader(*variable->node, sequence);
  depth = std::max(depth, variable->node->depth + 1);
  if (counted_ && depth > deepest.load(std::memory_order_relaxed))
    deepest.store(depth, std::memory_order_relaxed);
}

void Node::save(const Tensor& tensor) {
  saved_.emplace_back(tensor, scope);
}

void Node::free_graph() {
  freed = true;
  edges_.clear();
  saved_.clear();
  for (detail::GradSlot& own : slots_) own.grad = own.column_sums = Tensor();
}

void Node::drop_gradients() {
  for (int output = 0; output < outputs(); ++output) slot(output).grad = slot(output).column_sums = Tensor();
}

void Node::release() noexcept {
  // A pointer, because a thread's objects are destroyed before static tensors, which may still own nodes.
  thread_local Node** pending = nullptr;
  if (pending != nullptr) {
    next_released_ = std::exchange(*pending, this);
    return;
  }
  Node* worklist = nullptr;
  pending = &worklist;
  delete this;
  while (worklist != nullptr) delete std::exchange(worklist, worklist->next_released_);
  pending = nullptr;
}

std::string describe(const Node& node) {
  return node.scope->path.empty() ? std::string(node.op) : fmt::format("{} in {}", node.op, node.scope->path);
}

const detail::Edge& GradSink::edge(int k) const {
  if (k < 0 || k >= std::ssize(node_.edges_))
    fail<ValueError>("{}: a gradient for input {} of {} (counted from 0, as record has them)",
                     describe(node_), k, node_.edges_.size());
  return node_.edges_[static_cast<std::size_t>(k)];
}

const detail::Edge& GradSink::needed_edge(int k) const {
  const detail::Edge& needed = edge(k);
  if (needed.node == nullptr)
    fail<GraphError>("{}: input {} needs no gradient (ask sink.needs({}) before; accumulate asks itself)",
                     describe(node_), k, k);
  return needed;
}

detail::GradSlot& GradSink::target(int k) const {
  const detail::Edge& to = needed_edge(k);
  return to.node->slot(to.output);
}

bool GradSink::needs(int k) const {
  return edge(k).node != nullptr;
}

Tensor detail::open_slot(GradSlot& slot, float* beta) {
  *beta = slot.has_grad() ? 1.0f : 0.0f;
  slot.column_sums = Tensor();  // whoever opens it writes
  if (slot.pinned) {
    slot.written = true;
  } else if (!slot.grad.defined()) {
    slot.grad = Tensor::empty(slot.shape, slot.dtype, slot.device);
  } else if (!slot.grad.exclusive() || !slot.grad.contiguous()) {
    slot.grad = raw::copy(slot.grad);
  }
  return slot.grad;
}

void detail::flush(GradSlot& slot) {
  if (slot.deferred == nullptr) return;
  const std::unique_ptr<DeferredGradient> deferred = std::move(slot.deferred);
  float beta = 0;
  const Tensor dst = open_slot(slot, &beta);
  deferred->add_to(dst, beta);
}

bool GradSink::shares_open_buffer(int k) const {
  if (opened_.empty()) return false;
  const detail::GradSlot& slot = target(k);
  if (!slot.has_grad() || (!slot.pinned && slot.grad.exclusive())) return false;
  return std::any_of(opened_.begin(), opened_.end(),
                     [&](int other) { return other != k && &target(other) == &slot; });
}

Tensor GradSink::open(int k, float* beta) {
  enqueue(k);
  if (shares_open_buffer(k)) {
    const detail::GradSlot& slot = target(k);
    *beta = 0;
    return late_.emplace_back(k, Tensor::empty(slot.shape, slot.dtype, slot.device)).second;
  }
  if (std::find(opened_.begin(), opened_.end(), k) == opened_.end()) opened_.push_back(k);
  return detail::open_slot(target(k), beta);
}

void GradSink::finish() {
  for (const auto& [k, contribution] : std::exchange(late_, {})) {
    opened_.clear();  // the vjp holds no buffer any more
    accumulate(k, contribution);
  }
}

std::unique_ptr<detail::DeferredGradient>& GradSink::open_deferred(int k) {
  enqueue(k);
  if (target(k).deferred == nullptr) queue_.defer(edge(k), node_);
  return target(k).deferred;
}

bool GradSink::is_taken_deferred(int k) const {
  if (!needs(k) || !edge(k).node->takes_deferred()) return false;
  const detail::GradSlot& slot = target(k);
  return !slot.has_grad() && slot.deferred == nullptr;
}

void GradSink::flush(int k) {
  detail::flush(target(k));
}

bool GradSink::wants_column_sums(int k) const {
  return needs(k) && edge(k).node->wants_column_sums();
}

void GradSink::set_column_sums(int k, const Tensor& sums) {
  target(k).column_sums = sums;
}

Tensor GradSink::open_zeroed(int k) {
  float beta = 0;
  Tensor dst = open(k, &beta);
  if (beta == 0) raw::fill(dst, 0);
  return dst;
}

void GradSink::accumulate(int k, const Tensor& contribution) {
  if (!needs(k)) return;
  detail::GradSlot& slot = target(k);
  if (contribution.shape() != slot.shape)
    fail<ShapeError>("{}: the gradient of input {} has shape {} and the input has {}", describe(node_), k,
                     to_string(contribution.shape()), to_string(slot.shape));
  if (shares_open_buffer(k)) {
    late_.emplace_back(k, contribution);
    return;
  }
  slot.column_sums = Tensor();
  if (!slot.has_grad() && !slot.pinned) {
    // A tracked tensor (a user's cotangent) must not tie its graph to a leaf that the graph leads to.
    slot.grad = contribution.dtype() != slot.dtype   ? raw::cast(contribution, slot.dtype)
                : contribution.autograd() == nullptr ? contribution
                                                     : raw::alias(contribution);
    enqueue(k);
    return;
  }
  // A shared tensor or a view is not written to: the sum goes to a new tensor.
  if (!slot.pinned && slot.grad.defined() && contribution.dtype() == slot.dtype &&
      !(slot.grad.exclusive() && slot.grad.contiguous())) {
    slot.grad = raw::add(slot.grad, contribution);
    enqueue(k);
    return;
  }
  float beta = 0;
  const Tensor dst = open(k, &beta);
  const bool typed = contribution.dtype() == slot.dtype;
  if (beta != 0)
    raw::add_into(dst, typed ? contribution : raw::cast(contribution, slot.dtype));
  else if (typed)
    raw::copy_into(dst, contribution);
  else
    raw::cast_into(dst, contribution);
}

bool GradSink::keeps(int k, Dtype dtype) const {
  const detail::GradSlot& slot = target(k);
  return !slot.has_grad() && !slot.pinned && dtype == slot.dtype;
}

void GradSink::enqueue(int k) {
  const Ref<Node>& node = needed_edge(k).node;
  if (const LeafWatch* const watch = LeafWatch::of_thread(); watch != nullptr && node->is_leaf())
    watch->check_open(node_, *node);
  queue_.push(node);
}

const Tensor& VjpContext::dy(int output) const {
  return node_.slot(output).grad;
}

Tensor VjpContext::dy_or_zeros(int output) const {
  const detail::GradSlot& slot = node_.slot(output);
  return slot.grad.defined() ? slot.grad : Tensor::zeros(slot.shape, slot.dtype, slot.device);
}

detail::DeferredGradient* VjpContext::deferred(int output) const {
  return node_.slot(output).deferred.get();
}

std::unique_ptr<detail::DeferredGradient> VjpContext::release_deferred(int output, bool wanted) {
  detail::GradSlot& slot = node_.slot(output);
  if (wanted && !slot.has_grad()) return std::move(slot.deferred);
  detail::flush(slot);
  return nullptr;
}

const Tensor& VjpContext::column_sums(int output) const {
  return node_.slot(output).column_sums;
}

const Tensor& VjpContext::saved(int i) const {
  const std::int64_t count = std::ssize(node_.saved_tensors());
  if (i < 0 || i >= count)
    fail<ValueError>("{}: saved tensor {} of {} (counted from 0, as record has them)", describe(node_), i,
                     count);
  return node_.saved(i);
}

GraphStats graph_stats() {
  return {live_nodes.load(), saved_bytes_now.load(), deepest.load(), recorded_nodes.load()};
}

void reset_graph_depth() {
  deepest.store(0);
}

}  // namespace eddy
