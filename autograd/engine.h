// The queue of nodes whose outputs have received a gradient, highest sequence number first.
#pragma once

#include <algorithm>
#include <vector>

#include "autograd/node.h"

namespace eddy {

class BackwardQueue {
 public:
  // Adds a node once; leaves have nothing to run.
  void push(const Ref<Node>& node) {
    if (node->queued || node->is_leaf()) return;
    node->queued = true;
    heap_.push_back(node);
    std::push_heap(heap_.begin(), heap_.end(), later);
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
    for (const Ref<Node>& node : heap_) {
      node->queued = false;
      node->drop_gradients();
    }
  }

 private:
  static bool later(const Ref<Node>& a, const Ref<Node>& b) { return a->sequence < b->sequence; }
  std::vector<Ref<Node>> heap_;
};

}  // namespace eddy
