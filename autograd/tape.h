// The user's side of autograd, and `record`, which ops use to leave a node.
#pragma once

#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

#include "autograd/node.h"
#include "autograd/profile.h"

namespace eddy {

// Makes x a leaf: backward will sum its gradient into grad(x). Returns x.
// errors: DtypeError unless floating; GraphError when x is the result of a tracked operation.
const Tensor& require_grad(const Tensor& x);
// Whether gradients flow through x.
inline bool requires_grad(const Tensor& x) {
  return x.autograd() != nullptr;
}
// The gradient summed so far into a leaf; undefined when none arrived.
// errors: GraphError when x is no leaf.
Tensor grad(const Tensor& x);
// Forgets a leaf's gradient; storage set by set_grad_storage stays and is overwritten next time.
void zero_grad(const Tensor& x);
// Lets a leaf's gradient be summed in the given tensor (same shape, f32 or the leaf's dtype), e.g. a
// parameter arena.
void set_grad_storage(const Tensor& x, const Tensor& storage);

// Runs the tape backwards from y with cotangent dy (ones for a tensor of one element). Sums into the leaves
// and frees the graph behind.
// errors: GraphError when y is untracked or its graph was freed; ShapeError when dy does not fit.
void backward(const Tensor& y, const Tensor& dy = {});
// The same from several outputs at once; cotangents may be undefined for tensors of one element.
void backward(const std::vector<Tensor>& ys, const std::vector<Tensor>& dys);

// The same bytes without a graph. Gradients stop here: the consumers of the result are no consumers of x.
Tensor detach(const Tensor& x);

// While alive on this thread, operations leave no nodes.
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool previous_;
};
// Turns recording on inside a NoGrad region (checkpoint's recomputation).
class EnableGrad {
 public:
  EnableGrad();
  ~EnableGrad();
  EnableGrad(const EnableGrad&) = delete;
  EnableGrad& operator=(const EnableGrad&) = delete;

 private:
  bool previous_;
};
bool grad_enabled();

// While alive on this thread, every forward result and every gradient is checked: a NaN or infinity is a
// NonFiniteError that names the op and the module path. Slow.
class AnomalyMode {
 public:
  AnomalyMode();
  ~AnomalyMode();
  AnomalyMode(const AnomalyMode&) = delete;
  AnomalyMode& operator=(const AnomalyMode&) = delete;

 private:
  bool previous_;
};
bool anomaly_mode();

// Whether every element is finite. Integers are.
bool all_finite(const Tensor& x);

struct GraphStats {
  std::int64_t nodes = 0;        // alive now, leaves excluded
  std::int64_t saved_bytes = 0;  // of buffers kept for the backward pass, each counted once
  std::int64_t max_depth = 0;    // the longest path recorded since the last reset
  std::int64_t recorded = 0;     // nodes recorded so far
};
GraphStats graph_stats();
void reset_graph_depth();

// Declares an in-place write to x by `writer`, after it.
// errors: GraphError when x is the result of a tracked operation.
void wrote_in_place(const Tensor& x, const char* writer);

namespace detail {

void check_finite_result(const char* op, const Tensor& y);
void attach(Ref<Node> node, const Tensor& y, int output);

// What record does besides making the node, compiled once for all ops. Observers and anomaly mode see every
// operation; `records` tells whether it leaves a node.
bool records(const char* op, std::span<const Tensor> inputs, std::span<const Tensor> ys);
void connect(const Ref<Node>& node, std::span<const Tensor> inputs, std::span<const Tensor> ys,
             std::span<const Tensor> saved);

template <class Vjp>
class LambdaNode final : public Node {
 public:
  LambdaNode(const char* name, int count, Vjp function) : Node(name, count), vjp_(std::move(function)) {}
  void vjp(VjpContext& context) override { vjp_(context); }

 private:
  Vjp vjp_;
};

}  // namespace detail

// Leaves a node for `y = op(inputs)` when one of the inputs is tracked and recording is on. `saved` may hold
// inputs and y itself. The vjp sees saved tensors by their place in the list, and gives gradients by the
// inputs' places. Returns y.
template <class Vjp>
Tensor record(const char* op, std::initializer_list<Tensor> inputs, const Tensor& y,
              std::initializer_list<Tensor> saved, Vjp vjp) {
  if (detail::records(op, inputs, {&y, 1}))
    detail::connect(make_ref<detail::LambdaNode<Vjp>>(op, 1, std::move(vjp)), inputs, {&y, 1}, saved);
  return y;
}

// The same for several outputs and lists made at run time.
template <class Vjp>
void record_many(const char* op, const std::vector<Tensor>& inputs, const std::vector<Tensor>& ys,
                 const std::vector<Tensor>& saved, Vjp vjp) {
  if (detail::records(op, inputs, ys))
    detail::connect(make_ref<detail::LambdaNode<Vjp>>(op, static_cast<int>(ys.size()), std::move(vjp)),
                    inputs, ys, saved);
}

}  // namespace eddy
