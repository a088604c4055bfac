// The queue of nodes whose outputs have received a gradient, highest sequence number first, and what they put
// off.
#pragma once

#include <algorithm>
#include <vector>

#include "autograd/node.h"

namespace eddy {

// The gradient of a slot, to add to: dst = beta dst + contribution.
Tensor open_slot(GradSlot& slot, float* beta);
// Computes what was put off for the slot, if anything was.
void settle(GradSlot& slot);

class BackwardQueue {
 public:
  // Adds a node once; leaves have nothing to run.
  void push(const Ref<Node>& node) {
    if (node->queued || node->is_leaf()) return;
    node->queued = true;
    heap_.push_back(node);
    std::push_heap(heap_.begin(), heap_.end(), later);
  }
  // Remembers that `by` was the first to put something off for the slot at `edge`. What belongs to a node is
  // settled before that node runs, what belongs to a leaf at the end.
  void put_off(const Edge& edge, Node& by) { deferred_.push_back({edge, Ref<Node>(&by)}); }
  template <class Settled>  // settled(by)
  void settle_all(Settled&& settled) {
    for (const Deferral& deferral : deferred_) {
      GradSlot& slot = deferral.edge.node->slot(deferral.edge.output);
      if (slot.deferred == nullptr) continue;
      settle(slot);
      settled(*deferral.by);
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
  // Nodes are left only after an error. What they received is dropped, so that it does not enter a later
  // backward pass.
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
    Ref<Node> by;
  };
  static bool later(const Ref<Node>& a, const Ref<Node>& b) { return a->sequence < b->sequence; }
  std::vector<Ref<Node>> heap_;
  std::vector<Deferral> deferred_;
};

}  // namespace eddy
