// What users of autograd call, and `record`, which ops call to add a node to the tape.
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
// Returns the gradient that backward passes have added to a leaf; undefined if there is none.
// errors: GraphError when x is not a leaf.
Tensor grad(const Tensor& x);
// Clears the gradient of a leaf. Storage set by set_grad_storage stays; the next gradient overwrites it.
void zero_grad(const Tensor& x);
// Makes the given tensor (same shape, f32 or the leaf's dtype) the storage of a leaf's gradient, e.g. a part
// of a parameter arena.
void set_grad_storage(const Tensor& x, const Tensor& storage);

// Runs the tape backwards from y with cotangent dy (1 by default, for a tensor of one element). Adds to the
// gradients of the leaves and frees the graph.
// errors: GraphError when y is untracked or its graph was freed; ShapeError when dy does not fit.
void backward(const Tensor& y, const Tensor& dy = {});
// The same from several outputs at once; cotangents may be undefined for tensors of one element.
void backward(const std::vector<Tensor>& ys, const std::vector<Tensor>& dys);

// Returns a tensor with the same bytes and no graph: no gradient flows through it.
Tensor detach(const Tensor& x);

// While alive, operations on this thread record no nodes.
class NoGrad : detail::Setting<bool> {
 public:
  NoGrad();
};
// Turns recording on inside a NoGrad region (checkpoint's recomputation).
class EnableGrad : detail::Setting<bool> {
 public:
  EnableGrad();
};
// Whether operations on this thread record nodes.
bool grad_enabled();

// While alive, every forward result and every gradient on this thread is checked: a NaN or infinity throws a
// NonFiniteError that names the op and the module path. Slow.
class AnomalyMode : detail::Setting<bool> {
 public:
  AnomalyMode();
};
// Whether an AnomalyMode is alive on this thread.
bool anomaly_mode();

// Whether every element is finite; true for integers.
bool all_finite(const Tensor& x);

// The size of all graphs together.
struct GraphStats {
  std::int64_t nodes = 0;        // alive now, leaves excluded
  std::int64_t saved_bytes = 0;  // of buffers saved for backward, each counted once
  std::int64_t max_depth = 0;    // the longest path recorded since the last reset
  std::int64_t recorded = 0;     // nodes recorded so far
};
// Returns the size of all graphs of the process.
GraphStats graph_stats();
// Begins a new measurement of max_depth.
void reset_graph_depth();

// Declares an in-place write to x by `writer`; call it after the write. Bumps the buffer's version.
// errors: GraphError when x is the result of a tracked operation.
void wrote_in_place(const Tensor& x, const char* writer);

namespace detail {

void check_finite_result(const char* op, const Tensor& y);
void attach(Ref<Node> node, const Tensor& y, int output);

// The parts of `record` that are compiled once for all ops. should_record also serves observers and anomaly
// mode, which see every operation, whether or not it is recorded.
bool should_record(const char* op, std::span<const Tensor> inputs, std::span<const Tensor> ys);
void connect(const Ref<Node>& node, std::span<const Tensor> inputs, std::span<const Tensor> ys,
             std::span<const Tensor> saved);

template <class Vjp>
class LambdaNode final : public Node {
 public:
  LambdaNode(const char* name, int count, Vjp function) : Node(name, count), vjp_(std::move(function)) {}
  void vjp(VjpContext& context) override { vjp_(context); }
  bool takes_deferred() const override {
    if constexpr (requires { Vjp::kTakesDeferred; })
      return Vjp::kTakesDeferred;
    else
      return false;
  }
  bool wants_column_sums() const override {
    if constexpr (requires { vjp_.wants_column_sums(); })
      return vjp_.wants_column_sums();
    else
      return false;
  }

 private:
  Vjp vjp_;
};

}  // namespace detail

// Returns y = op(inputs), with a node on the tape when one of the inputs is tracked and recording is on.
// `saved` may hold inputs and y itself. The vjp refers to saved tensors and to inputs by their index in these
// lists. One with a kTakesDeferred that is true calls take_deferred before it reads dy. One with a function
// wants_column_sums that returns true is given the sums of dy's columns where another node has them.
template <class Vjp>
Tensor record(const char* op, std::initializer_list<Tensor> inputs, const Tensor& y,
              std::initializer_list<Tensor> saved, Vjp vjp) {
  if (detail::should_record(op, inputs, {&y, 1}))
    detail::connect(make_ref<detail::LambdaNode<Vjp>>(op, 1, std::move(vjp)), inputs, {&y, 1}, saved);
  return y;
}

// The same for several outputs and lists made at run time.
template <class Vjp>
void record_many(const char* op, const std::vector<Tensor>& inputs, const std::vector<Tensor>& ys,
                 const std::vector<Tensor>& saved, Vjp vjp) {
  if (detail::should_record(op, inputs, ys))
    detail::connect(make_ref<detail::LambdaNode<Vjp>>(op, static_cast<int>(ys.size()), std::move(vjp)),
                    inputs, ys, saved);
}

}  // namespace eddy
