// The checkpoint node. In its backward the inputs become leaves of the recomputed graph. These leaves have no
// gradient of their own: they forward to the gradient slots of the outer producers. So every contribution is
// added to the same sum in the same order as without the checkpoint, and the bits agree.
#include "autograd/checkpoint.h"

#include <unordered_set>
#include <utility>

#include "autograd/named_values.h"
#include "tensor/base/format.h"

namespace eddy {
namespace {

using Function = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;

class InputLeaf final : public Node {
 public:
  explicit InputLeaf(const Edge& outer) : Node("checkpoint input", 1, false), outer_(outer) {}
  void vjp(VjpContext&) override {}
  bool is_leaf() const override { return true; }
  GradSlot& slot(int) override { return outer_.node->slot(outer_.output); }

 private:
  Edge outer_;
};

// Walks the recomputed graph and refuses edges that leave it, except to leaves: a node from before `first`
// belongs to the graph around the checkpoint, and it is too early to run it.
void refuse_captured_results(const Node& checkpoint, const std::vector<Tensor>& ys, std::uint64_t first) {
  std::vector<const Node*> pending;
  std::unordered_set<const Node*> seen;
  const auto visit = [&](const Node& node, const Shape& shape) {
    if (node.is_leaf()) return;
    if (node.sequence < first)
      fail<GraphError>(
          "{}: the function uses the result {} of {}, which is not among the inputs (pass it as an input, or "
          "detach it)",
          describe(checkpoint), to_string(shape), describe(node));
    if (seen.insert(&node).second) pending.push_back(&node);
  };
  for (const Tensor& y : ys) visit(*variable_of(y)->node, y.shape());
  while (!pending.empty()) {
    const Node* node = pending.back();
    pending.pop_back();
    for (const Edge& edge : node->edges())
      if (edge.node != nullptr) visit(*edge.node, edge.node->slot(edge.output).shape);
  }
}

class CheckpointNode final : public Node {
 public:
  CheckpointNode(Function fn, std::vector<Shape> shapes)
      : Node("checkpoint", static_cast<int>(shapes.size())), fn_(std::move(fn)), shapes_(std::move(shapes)) {}

  void vjp(VjpContext& context) override {
    const std::uint64_t first = make_ref<LeafNode>()->sequence;
    const std::vector<Tensor> ys = recompute(context);
    std::vector<Tensor> roots, cotangents;
    for (int i = 0; i < outputs(); ++i) {
      const Tensor& y = ys[static_cast<std::size_t>(i)];
      if (!context.dy(i).defined() || !requires_grad(y)) continue;
      roots.push_back(y);
      cotangents.push_back(context.dy(i));
    }
    refuse_captured_results(*this, roots, first);
    try {
      backward(roots, cotangents);
    } catch (...) {
      reach_inputs(context);  // so that the engine drops their partial gradients
      throw;
    }
    reach_inputs(context);
    fn_ = nullptr;
  }

 private:
  std::vector<Tensor> recompute(const VjpContext& context) const {
    std::vector<Tensor> inputs;
    for (std::size_t k = 0; k < edges().size(); ++k) {
      const Tensor& x = context.saved(static_cast<int>(k));
      inputs.push_back(x.defined() ? raw::alias(x) : Tensor());
      if (edges()[k].node != nullptr)
        inputs[k].set_autograd(Ref<AutogradData>(new Variable(make_ref<InputLeaf>(edges()[k]), 0)));
    }
    const ScopeGuard module(*scope);
    const EnableGrad recording;
    const detail::Setting<detail::ValueCapture*> not_again(detail::value_capture, nullptr);
    std::vector<Tensor> ys = fn_(inputs);
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

  void reach_inputs(VjpContext& context) const {
    for (std::size_t k = 0; k < edges().size(); ++k) {
      const Edge& edge = edges()[k];
      if (edge.node != nullptr && edge.node->slot(edge.output).has_grad())
        context.sink.reach(static_cast<int>(k));
    }
  }

  Function fn_;
  const std::vector<Shape> shapes_;  // of the results
};

}  // namespace

std::vector<Tensor> checkpoint(Function fn, const std::vector<Tensor>& inputs) {
  if (!grad_enabled()) return fn(inputs);
  std::vector<std::uint32_t> versions;
  for (const Tensor& x : inputs) versions.push_back(x.defined() ? x.buffer()->version() : 0);

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
  for (Tensor& y : ys) {
    if (!y.defined()) fail<ValueError>("checkpoint: result {} of the function is undefined", shapes.size());
    // An alias, because fn may return an input or a parameter, which has autograd data of its own.
    y = raw::alias(y);
    shapes.push_back(y.shape());
  }
  auto node = make_ref<CheckpointNode>(std::move(fn), std::move(shapes));
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
