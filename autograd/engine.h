// The queue of the backward pass: nodes whose outputs have received a gradient, highest sequence number
// first, and the slots with deferred gradients.
#pragma once

#include <algorithm>
#include <vector>

#include "autograd/node.h"

namespace eddy::detail {

// Returns the gradient tensor of a slot; the caller computes dst = beta dst + contribution.
Tensor open_slot(GradSlot& slot, float* beta);
// Computes the slot's deferred gradient, if there is one.
void flush(GradSlot& slot);

class BackwardQueue {
 public:
  BackwardQueue() = default;
  // The queue of a graph that a node recomputes in its backward pass. Nodes from before `first`, leaves too, belong to
  // the graph around it: they and their deferred gradients go to `outer`, which runs them in its order.
  BackwardQueue(BackwardQueue& outer, std::uint64_t first) : outer_(&outer), first_(first) {}

  // Adds a node unless it is queued already. Leaves are not added: they have nothing to run.
  void push(const Ref<Node>& node) {
    if (is_outer(*node)) return outer_->push(node);
    if (node->queued || node->is_leaf()) return;
    node->queued = true;
    heap_.push_back(node);
    std::push_heap(heap_.begin(), heap_.end(), later);
  }
  // Remembers that `node` was the first to defer a gradient of the slot at `edge`. Deferred gradients of a
  // node are computed before that node runs, those of a leaf at the end.
  void defer(const Edge& edge, Node& node) {
    if (is_outer(*edge.node)) return outer_->defer(edge, node);
    deferred_.push_back({edge, Ref<Node>(&node)});
  }
  // Computes all remaining deferred gradients, and calls flushed(node) for each.
  template <class Flushed>
  void flush_all(Flushed&& flushed) {
    for (const Deferral& deferral : deferred_) {
      GradSlot& slot = deferral.edge.node->slot(deferral.edge.output);
      if (slot.deferred == nullptr) continue;
      flush(slot);
      flushed(*deferral.node);
    }
    deferred_.clear();
  }
  bool empty() const { return heap_.empty(); }
  Ref<Node> pop() {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    Ref<Node> node = std::move(heap_.back());
    heap_.pop_back();
    node->queued = false;
    return node;
  }
  // Nodes remain in the queue only after an error. Their gradients are dropped, so that they do not enter a
  // later backward pass.
  ~BackwardQueue() {
    for (const Deferral& deferral : deferred_)
      deferral.edge.node->slot(deferral.edge.output).deferred = nullptr;
    for (const Ref<Node>& node : heap_) {
      node->queued = false;
      node->drop_gradients();
    }
  }

 private:
  struct Deferral {
    Edge edge;
    Ref<Node> node;
  };
  bool is_outer(const Node& node) const { return outer_ != nullptr && node.sequence < first_; }
  static bool later(const Ref<Node>& a, const Ref<Node>& b) { return a->sequence < b->sequence; }
  std::vector<Ref<Node>> heap_;
  std::vector<Deferral> deferred_;
  BackwardQueue* outer_ = nullptr;
  std::uint64_t first_ = 0;
};

// The backward pass of `queue`: gives the outputs `ys` their cotangents, and runs all nodes that it then holds.
// errors: as backward in tape.h.
void run_backward(BackwardQueue& queue, const std::vector<Tensor>& ys, const std::vector<Tensor>& dys);
// The queue of the node that runs on this thread; only inside a vjp.
BackwardQueue& running_queue();

}  // namespace eddy::detail
