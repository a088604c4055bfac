// Leaves, the backward loop and the modes of this thread.
#include "autograd/tape.h"

#include <algorithm>

#include "autograd/engine.h"
#include "autograd/leaf_watch.h"
#include "tensor/base/format.h"
#include "tensor/threads/thread_pool.h"

namespace eddy {
namespace {

thread_local bool recording = true;
thread_local bool checking = false;
thread_local detail::BackwardQueue* running = nullptr;

Node& leaf_of(const char* what, const Tensor& x) {
  if (!x.defined()) fail<GraphError>("{}: the tensor is undefined", what);
  detail::Variable* variable = detail::variable_of(x);
  if (variable == nullptr || !variable->node->is_leaf())
    fail<GraphError>("{}: {} is not a leaf (gradients are kept for tensors marked by require_grad only)",
                     what, to_string(x.shape()));
  return *variable->node;
}

void check_gradients(const Node& node) {
  for (std::size_t k = 0; k < node.edges().size(); ++k) {
    const detail::Edge& edge = node.edges()[k];
    if (edge.node == nullptr) continue;
    const detail::GradSlot& slot = edge.node->slot(edge.output);
    if (slot.has_grad() && !all_finite(slot.grad))
      fail<NonFiniteError>("backward: {} gave a gradient with a NaN or infinity for its input {}",
                           describe(node), k);
  }
}

// The root of the backward pass: the consumer of the given outputs, from which they receive their cotangents.
class BackwardRoot final : public Node {
 public:
  BackwardRoot() : Node("backward", 0, false) {}
  void vjp(VjpContext&) override {}
};

void run_node(Node& node, detail::BackwardQueue& queue) {
  if (node.freed)
    fail<GraphError>(
        "backward: the graph behind {} was freed by an earlier backward (run the forward again, or detach "
        "what is carried over)",
        describe(node));
  if (!node.takes_deferred())
    for (int output = 0; output < node.outputs(); ++output) flush(node.slot(output));
  VjpContext context(node, queue);
  node.vjp(context);
  context.sink.finish();
  if (checking) check_gradients(node);
  node.free_graph();
  if (detail::tape_observer != nullptr) detail::tape_observer->backward_done(node);
}

}  // namespace

const Tensor& require_grad(const Tensor& x) {
  if (!x.defined()) fail<GraphError>("require_grad: the tensor is undefined");
  if (!is_floating(x.dtype()))
    fail<DtypeError>("require_grad: {} has no gradient (floating types only)", dtype_name(x.dtype()));
  if (const detail::Variable* variable = detail::variable_of(x)) {
    if (!variable->node->is_leaf())
      fail<GraphError>("require_grad: the tensor is the result of {} (detach it first)",
                       describe(*variable->node));
    return x;
  }
  auto node = make_ref<detail::LeafNode>();
  detail::attach(node, x, 0);
  return x;
}

Tensor grad(const Tensor& x) {
  const detail::GradSlot& slot = leaf_of("grad", x).slot(0);
  return slot.has_grad() ? slot.grad : Tensor();
}

void zero_grad(const Tensor& x) {
  detail::GradSlot& slot = leaf_of("zero_grad", x).slot(0);
  slot.written = false;
  if (!slot.pinned) slot.grad = Tensor();
}

void set_grad_storage(const Tensor& x, const Tensor& storage) {
  detail::GradSlot& slot = leaf_of("set_grad_storage", x).slot(0);
  if (storage.shape() != x.shape())
    fail<ShapeError>("set_grad_storage: storage {} for a leaf {}", to_string(storage.shape()),
                     to_string(x.shape()));
  slot.grad = storage;
  slot.dtype = storage.dtype();
  slot.pinned = true;
  slot.written = false;
}

void backward(const Tensor& y, const Tensor& dy) {
  backward(std::vector<Tensor>{y}, std::vector<Tensor>{dy});
}

void backward(const std::vector<Tensor>& ys, const std::vector<Tensor>& dys) {
  detail::BackwardQueue queue;
  detail::run_backward(queue, ys, dys);
}

detail::BackwardQueue& detail::running_queue() {
  return *running;
}

void detail::run_backward(BackwardQueue& queue, const std::vector<Tensor>& ys,
                          const std::vector<Tensor>& dys) {
  if (ys.size() != dys.size())
    fail<ValueError>("backward: {} outputs and {} cotangents (one for each)", ys.size(), dys.size());
  for (std::size_t i = 0; i < ys.size(); ++i) {
    const Tensor& y = ys[i];
    const Variable* variable = y.defined() ? variable_of(y) : nullptr;
    if (variable == nullptr)
      fail<GraphError>(
          "backward: the tensor depends on nothing that requires a gradient (mark a leaf by require_grad, "
          "and compute outside of NoGrad)");
    if (variable->node->freed)
      fail<GraphError>(
          "backward: the graph behind {} was freed by an earlier backward (run the forward again; gradients "
          "of gradients are not kept)",
          describe(*variable->node));
    if (dys[i].defined() ? dys[i].shape() != y.shape() : y.elements() != 1)
      fail<ShapeError>(
          "backward: the output has shape {} and the cotangent {} (take its sum or mean, or give a "
          "cotangent of its shape)",
          to_string(y.shape()), dys[i].defined() ? to_string(dys[i].shape()) : "is missing");
    if (dys[i].defined() && dys[i].device() != y.device())
      fail<DeviceError>("backward: the output is on {} and the cotangent on {} (use to_device)",
                        to_string(y.device()), to_string(dys[i].device()));
  }
  const NoGrad no_recording;
  const Setting<BackwardQueue*> this_one(running, &queue);
  for (std::size_t i = 0; i < ys.size(); ++i) {
    const Tensor& y = ys[i];
    BackwardRoot root;
    root.add_edge(y);
    GradSink(root, queue)
        .accumulate(0, dys[i].defined() ? dys[i] : Tensor::full(y.shape(), 1.0, y.dtype(), y.device()));
  }
  LeafWatch* const of_thread = LeafWatch::of_thread();
  LeafWatch* const watch = of_thread != nullptr && of_thread->begin_pass() ? of_thread : nullptr;
  while (!queue.empty()) {
    const Ref<Node> node = queue.pop();
    try {
      if (watch != nullptr) watch->pass(node->sequence);
      run_node(*node, queue);
    } catch (...) {
      node->drop_gradients();
      throw;
    }
  }
  queue.flush_all([](const Node& node) {
    if (detail::tape_observer != nullptr) detail::tape_observer->backward_done(node);
  });
  if (watch != nullptr) watch->end_pass();
}

Tensor detach(const Tensor& x) {
  return raw::alias(x);
}

NoGrad::NoGrad() : Setting(recording, false) {}
EnableGrad::EnableGrad() : Setting(recording, true) {}
bool grad_enabled() {
  return recording;
}

AnomalyMode::AnomalyMode() : Setting(checking, true) {}
bool anomaly_mode() {
  return checking;
}

namespace {

// x * 0 is 0 for finite x and NaN otherwise: one sum decides, in vector code.
template <class T>
bool finite_values(const T* values, std::int64_t n) {
  T lanes[16] = {};
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16)
    for (int lane = 0; lane < 16; ++lane) lanes[lane] += values[i + lane] * T(0);
  for (; i < n; ++i) lanes[0] += values[i] * T(0);
  T sum = 0;
  for (const T lane : lanes) sum += lane;
  return sum == T(0);
}

}  // namespace

bool all_finite(const Tensor& x) {
  if (!is_floating(x.dtype()) || x.elements() == 0) return true;
  const Tensor packed = raw::contiguous(raw::to_device(x, kCpu));
  if (x.dtype() == Dtype::f32) return finite_values(packed.data<float>(), x.elements());
  if (x.dtype() == Dtype::f64) return finite_values(packed.data<double>(), x.elements());
  return finite_values(raw::cast(packed, Dtype::f32).data<float>(), x.elements());
}

void wrote_in_place(const Tensor& x, const char* writer) {
  const detail::Variable* variable = detail::variable_of(x);
  if (variable != nullptr && !variable->node->is_leaf())
    fail<GraphError>(
        "{}: an in-place write to the result of {} (only tensors outside the tape may be written)", writer,
        describe(*variable->node));
  x.buffer()->bump_version(writer);
}

namespace detail {

void check_finite_result(const char* op, const Tensor& y) {
  if (!all_finite(y)) {
    const std::string& path = current_scope()->path;
    fail<NonFiniteError>("{}{}{}: the result {} holds a NaN or infinity", op, path.empty() ? "" : " in ",
                         path, to_string(y.shape()));
  }
}

void attach(Ref<Node> node, const Tensor& y, int output) {
  GradSlot& slot = node->slot(output);
  slot.shape = y.shape();
  slot.dtype = y.dtype();
  slot.device = y.device();
  y.set_autograd(Ref<AutogradData>(new Variable(std::move(node), output)));
}

bool should_record(const char* op, std::span<const Tensor> inputs, std::span<const Tensor> ys) {
  if (tape_observer != nullptr) observe_forward(op);
  if (anomaly_mode())
    for (const Tensor& y : ys) check_finite_result(op, y);
  // What checkpoint() computes without recording is computed again when its node runs, which has no number yet.
  if (LeafWatch* const watch = LeafWatch::of_thread(); watch != nullptr && !grad_enabled())
    for (const Tensor& input : inputs)
      if (const Variable* const variable = variable_of(input)) watch->note_reader(*variable->node);
  return grad_enabled() && std::any_of(inputs.begin(), inputs.end(), requires_grad);
}

void connect(const Ref<Node>& node, std::span<const Tensor> inputs, std::span<const Tensor> ys,
             std::span<const Tensor> saved) {
  for (const Tensor& input : inputs) node->add_edge(input);
  for (const Tensor& tensor : saved) node->save(tensor);
  for (std::size_t i = 0; i < ys.size(); ++i) attach(node, ys[i], static_cast<int>(i));
}

}  // namespace detail
}  // namespace eddy
