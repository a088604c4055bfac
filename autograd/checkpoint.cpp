// The checkpoint node. In its backward the function runs again, and what it records is run at once, as if it stood in
// the place of the node: edges that lead out of it go straight to the gradients of the graph around it. So every
// contribution is added to the same sum in the same order as without the checkpoint, and the bits agree.
#include "autograd/checkpoint.h"

#include <unordered_set>
#include <utility>

#include "autograd/engine.h"
#include "autograd/leaf_watch.h"
#include "autograd/named_values.h"
#include "autograd/random_calls.h"
#include "tensor/base/format.h"

namespace eddy {
namespace {

using Function = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;

// Walks the recomputed graph and refuses edges to results between the checkpoint and `first`, the first number of the
// recomputed graph: their nodes ran already.
void refuse_later_results(const Node& checkpoint, const std::vector<Tensor>& ys, std::uint64_t first) {
  std::vector<const Node*> pending;
  std::unordered_set<const Node*> seen;
  const auto visit = [&](const Node& node, const Shape& shape) {
    if (node.is_leaf() || node.sequence < checkpoint.sequence) return;
    if (node.sequence < first)
      fail<GraphError>(
          "{}: the function uses the result {} of {}, which was computed after it first ran (capture values, not "
          "references to variables)",
          describe(checkpoint), to_string(shape), describe(node));
    if (seen.insert(&node).second) pending.push_back(&node);
  };
  for (const Tensor& y : ys) visit(*detail::variable_of(y)->node, y.shape());
  while (!pending.empty()) {
    const Node* node = pending.back();
    pending.pop_back();
    for (const detail::Edge& edge : node->edges())
      if (edge.node != nullptr) visit(*edge.node, edge.node->slot(edge.output).shape);
  }
}

class CheckpointNode final : public Node {
 public:
  CheckpointNode(Function fn, std::vector<Shape> shapes, const detail::RandomCalls& random_calls)
      : Node("checkpoint", static_cast<int>(shapes.size())),
        fn_(std::move(fn)),
        shapes_(std::move(shapes)),
        random_calls_(random_calls),
        captured_(captures_values()) {}

  void vjp(VjpContext& context) override {
    const std::uint64_t first = make_ref<detail::LeafNode>()->sequence;
    const std::vector<Tensor> ys = recompute(context);
    std::vector<Tensor> roots, cotangents;
    for (int i = 0; i < outputs(); ++i) {
      const Tensor& y = ys[static_cast<std::size_t>(i)];
      if (!context.dy(i).defined() || !requires_grad(y)) continue;
      roots.push_back(y);
      cotangents.push_back(context.dy(i));
    }
    refuse_later_results(*this, roots, first);
    detail::BackwardQueue queue(detail::running_queue(), first);
    detail::run_backward(queue, roots, cotangents);
    fn_ = nullptr;
  }

 private:
  std::vector<Tensor> recompute(const VjpContext& context) const {
    std::vector<Tensor> inputs;
    for (std::size_t k = 0; k < edges().size(); ++k) {
      const Tensor& x = context.saved(static_cast<int>(k));
      inputs.push_back(x.defined() ? raw::alias(x) : Tensor());
      if (edges()[k].node != nullptr)
        inputs[k].set_autograd(Ref<AutogradData>(new detail::Variable(edges()[k].node, edges()[k].output)));
    }
    const ScopeGuard module(*scope);
    const EnableGrad recording;
    const detail::Setting<detail::RandomCalls> same_masks(detail::random_calls, random_calls_);
    std::vector<Tensor> ys;
    const auto run = [&] { ys = fn_(inputs); };
    // Values are not captured again. But where they were, the function took the same form as now, in parts.
    const detail::Setting<detail::ValueCapture*> not_again(detail::value_capture, nullptr);
    if (captured_)
      capture_values({}, run);
    else
      run();
    if (ys.size() != static_cast<std::size_t>(outputs()))
      fail<GraphError>(
          "{}: the function gave {} results and {} when recomputed (it must compute the same twice)",
          describe(*this), outputs(), ys.size());
    for (std::size_t i = 0; i < ys.size(); ++i)
      if (!ys[i].defined() || ys[i].shape() != shapes_[i])
        fail<GraphError>(
            "{}: result {} was {} and is {} when recomputed (the function must compute the same twice)",
            describe(*this), i, to_string(shapes_[i]),
            ys[i].defined() ? to_string(ys[i].shape()) : "undefined");
    return ys;
  }

  Function fn_;
  const std::vector<Shape> shapes_;         // of the results
  const detail::RandomCalls random_calls_;  // when the function first ran
  const bool captured_;                     // values, at that time
};

}  // namespace

std::vector<Tensor> checkpoint(Function fn, const std::vector<Tensor>& inputs) {
  if (!grad_enabled()) return fn(inputs);
  std::vector<std::uint32_t> versions;
  for (const Tensor& x : inputs) versions.push_back(x.defined() ? x.buffer()->version() : 0);

  const detail::RandomCalls random_calls = detail::random_calls;
  std::vector<Tensor> ys;
  {
    const NoGrad no_recording;
    ys = fn(inputs);
  }
  for (std::size_t k = 0; k < inputs.size(); ++k)
    if (inputs[k].defined() && inputs[k].buffer()->version() != versions[k])
      fail<GraphError>(
          "checkpoint: the function overwrote its input {} ({}), so it cannot be computed again (copy it)", k,
          inputs[k].buffer()->last_writer());
  std::vector<Shape> shapes;
  LeafWatch* const watch = LeafWatch::of_thread();
  for (Tensor& y : ys) {
    if (!y.defined()) fail<ValueError>("checkpoint: result {} of the function is undefined", shapes.size());
    // A watched leaf that fn returns is read by the node as well.
    if (watch != nullptr && detail::variable_of(y) != nullptr)
      watch->note_reader(*detail::variable_of(y)->node);
    // An alias, because fn may return an input or a parameter, which has autograd data of its own.
    y = raw::alias(y);
    shapes.push_back(y.shape());
  }
  auto node = make_ref<CheckpointNode>(std::move(fn), std::move(shapes), random_calls);
  if (watch != nullptr) watch->number_readers(node->sequence);
  for (const Tensor& x : inputs) {
    node->add_edge(x);
    node->save(x);
  }
  for (std::size_t i = 0; i < ys.size(); ++i)
    if (is_floating(ys[i].dtype())) detail::attach(node, ys[i], static_cast<int>(i));
  return ys;
}

Tensor checkpoint(std::function<Tensor(const std::vector<Tensor>&)> fn, const std::vector<Tensor>& inputs) {
  return checkpoint(
      Function([one = std::move(fn)](const std::vector<Tensor>& xs) { return std::vector<Tensor>{one(xs)}; }),
      inputs)[0];
}

}  // namespace eddy
