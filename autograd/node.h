// The nodes of the tape. Every tracked operation records a node: where the gradients of its inputs go
// (edges), what its backward needs (saved tensors) and the backward itself (`vjp`, a vector-Jacobian
// product). A node's sequence number is its creation order. The engine always runs the node with the
// highest number first. So when a node runs, every consumer of its outputs has run, and the gradients of its
// outputs are complete.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "autograd/scope.h"
#include "tensor/tensor.h"

namespace eddy {

class Node;

namespace detail {
class BackwardQueue;

// A part of a gradient that is computed later, because several parts together cost less. An example is a
// product over few rows: each one would read and write the whole gradient of a weight.
class DeferredGradient {
 public:
  virtual ~DeferredGradient() = default;
  // Computes dst = beta dst + the deferred parts. beta is 0 or 1; with 0 dst is uninitialised.
  virtual void add_to(const Tensor& dst, float beta) = 0;
};

// The gradient of one output of a node while it is being summed.
struct GradSlot {
  Shape shape;
  Dtype dtype = Dtype::f32;
  Device device;
  Tensor grad;           // undefined until the first contribution
  bool pinned = false;   // the storage has another owner (a parameter arena): always written in place
  bool written = false;  // for pinned slots: grad holds a sum, not stale numbers
  std::unique_ptr<DeferredGradient> deferred;  // added before the gradient is read
  Tensor column_sums;                          // of grad as it is (GradSink::set_column_sums), or undefined

  bool has_grad() const { return pinned ? written : grad.defined(); }
};

// Where the gradient of one input goes; node is null when that input needs none.
struct Edge {
  Ref<Node> node;
  int output = 0;
};

// A tensor saved for backward, and its buffer's version then. It keeps the bytes alive, but not the graph.
class SavedTensor {
 public:
  SavedTensor(const Tensor& tensor, const Scope* scope);
  SavedTensor(SavedTensor&& other) noexcept;
  SavedTensor& operator=(SavedTensor&&) = delete;
  ~SavedTensor();
  // Returns the tensor.
  // errors: VersionError when its buffer was written since; names op, module path and both versions.
  const Tensor& get(const Node& node) const;
  const Tensor& peek() const { return tensor_; }  // without the check

 private:
  Tensor tensor_;
  std::uint32_t version_ = 0;
  const Scope* scope_;
};
}  // namespace detail

// The destination of a vjp's gradients: the inputs of its node.
// errors: ValueError for an input that the node does not have; GraphError, but for `needs` and `accumulate`, for one
// that needs no gradient.
class GradSink {
 public:
  // Made by the engine, of the node whose vjp runs.
  GradSink(Node& node, detail::BackwardQueue& queue) : node_(node), queue_(queue) {}

  // Whether the gradient of input k is needed.
  bool needs(int k) const;
  // Calls write(dst, beta) with the input's gradient buffer: dst = beta * dst + contribution, beta 0 or 1.
  // With beta 0 the buffer is uninitialised. It suits matrix products: adding costs them nothing.
  template <class Write>
  void into(int k, Write&& write) {
    float beta = 0;
    const Tensor dst = open(k, &beta);
    write(dst, beta);
  }
  // Calls add(dst), which must add to dst, a slice of the gradient buffer: `length` entries of `axis` from
  // `start`. It touches only the slice; the whole buffer is zeroed once, before the first use.
  template <class Add>
  void slice(int k, int axis, std::int64_t start, std::int64_t length, Add&& add) {
    add(raw::narrow(open_zeroed(k), axis, start, length));
  }
  // Returns the whole gradient buffer, zeroed on first use, for scattered additions.
  Tensor open_zeroed(int k);
  // Adds a tensor to the gradient of input k, if that is needed. The first one is kept without a copy.
  // errors: ShapeError when the shape is not that of the input.
  void accumulate(int k, const Tensor& contribution);
  // Whether `accumulate` would keep a tensor of this dtype without a copy. Then a new tensor costs no more than
  // writing into the input's buffer.
  bool keeps(int k, Dtype dtype) const;
  // Queues the producer of input k without a contribution: shared storage already holds its gradient.
  void enqueue(int k);
  // Whether a gradient deferred for input k would be the first contribution to it, and its node takes it as it is
  // (Node::takes_deferred).
  bool is_taken_deferred(int k) const;
  // Returns the deferred gradient of input k, so that the caller can add work to it; the first call makes it.
  // All deferred work of an input has one type.
  template <class Deferred>
  Deferred& defer(int k) {
    std::unique_ptr<detail::DeferredGradient>& deferred = open_deferred(k);
    if (deferred == nullptr) deferred = std::make_unique<Deferred>();
    return static_cast<Deferred&>(*deferred);
  }
  // Computes the deferred gradient of input k now.
  void flush(int k);
  // Whether the node that made input k asks for the sums of its gradient's columns (Node::wants_column_sums).
  bool wants_column_sums(int k) const;
  // Sets the sums over blocks of rows of the gradient of input k, as it is now, by a vjp whose kernel wrote all of it
  // and summed on its way. They are dropped when something else is added to the gradient.
  // shapes: sums [blocks, columns], the gradient [..., columns].
  // dtypes: f32.
  void set_column_sums(int k, const Tensor& sums);
  // Adds what could not be added while the vjp ran; called after it.
  void finish();

 private:
  const detail::Edge& edge(int k) const;
  const detail::Edge& needed_edge(int k) const;
  detail::GradSlot& target(int k) const;
  Tensor open(int k, float* beta);
  bool shares_open_buffer(int k) const;
  std::unique_ptr<detail::DeferredGradient>& open_deferred(int k);
  Node& node_;
  detail::BackwardQueue& queue_;
  // An op may take one tensor as several inputs. After the vjp has opened the gradient buffer of one of them,
  // the others get buffers of their own, which are added in the end, unless it is seen to have let go of the
  // first.
  std::vector<int> opened_;  // inputs
  std::vector<std::pair<int, Tensor>> late_;
};

// What a vjp can read and write.
class VjpContext {
 public:
  // Made by the engine, of the node whose vjp runs.
  VjpContext(Node& node, detail::BackwardQueue& queue) : sink(node, queue), node_(node) {}
  // Returns the gradient of an output; undefined if it has none, which happens only with several outputs.
  const Tensor& dy(int output = 0) const;
  // The same, but zeros if the output has none.
  Tensor dy_or_zeros(int output) const;
  // Returns the deferred gradient of an output, for a node that takes it (Node::takes_deferred), and dy(output) is
  // undefined; or null, if there is none of this type alone: then dy(output) has all.
  template <class Deferred>
  std::unique_ptr<Deferred> take_deferred(int output = 0) {
    const bool is_of_type = dynamic_cast<Deferred*>(deferred(output)) != nullptr;
    return std::unique_ptr<Deferred>(static_cast<Deferred*>(release_deferred(output, is_of_type).release()));
  }
  // Returns what set_column_sums set for dy(output), or an undefined tensor.
  const Tensor& column_sums(int output = 0) const;
  // Returns tensor i of those that were saved.
  // errors: ValueError when there is none; VersionError when it was written since.
  const Tensor& saved(int i) const;
  GradSink sink;

 private:
  detail::DeferredGradient* deferred(int output) const;
  // Gives the deferred gradient of an output away if it is `wanted` and nothing else has contributed; else computes it.
  std::unique_ptr<detail::DeferredGradient> release_deferred(int output, bool wanted);

  Node& node_;
};

// An operation on the tape. The helpers of ops make nodes (record in autograd/tape.h).
class Node : public RefCounted {
 public:
  // Leaves and other helpers of the engine are not counted in graph_stats.
  Node(const char* op, int outputs, bool counted = true);
  ~Node() override;

  // Gives the gradients of the inputs to context.sink.
  virtual void vjp(VjpContext& context) = 0;
  // Whether its gradient is kept: that of a parameter, or of an input given to require_grad.
  virtual bool is_leaf() const { return false; }
  // Whether its vjp calls take_deferred for each output: gradients deferred for it are not computed before it runs.
  virtual bool takes_deferred() const { return false; }
  // Whether it spares a pass over its gradient where it gets the sums of the columns (VjpContext::column_sums).
  virtual bool wants_column_sums() const { return false; }
  // A node with shared gradient storage overrides this.
  virtual detail::GradSlot& slot(int output) { return slots_[static_cast<std::size_t>(output)]; }

  // While it is made: its next input, and the next tensor that its backward needs.
  void add_edge(const Tensor& input);
  void save(const Tensor& tensor);
  // The saved tensor i, unless it was overwritten (detail::SavedTensor::get).
  const Tensor& saved(int i) const { return saved_[static_cast<std::size_t>(i)].get(*this); }
  // How many outputs it has, where gradients go, and what it saves.
  int outputs() const { return static_cast<int>(slots_.size()); }
  const std::vector<detail::Edge>& edges() const { return edges_; }
  const std::vector<detail::SavedTensor>& saved_tensors() const { return saved_; }
  // Drops edges and saved tensors after the backward pass. A second backward then finds `freed`.
  void free_graph();
  // Drops the output gradients summed so far, after a backward pass that failed.
  void drop_gradients();

  const char* const op;          // the name of the operation
  const std::uint64_t sequence;  // its place in the order of creation
  const Scope* const scope;      // the module that it ran in
  int depth;                     // of the longest path from a leaf (0) to here
  bool queued = false;           // waits for its turn in the backward that runs
  bool freed = false;            // by free_graph

 protected:
  // Frees long chains without recursion, by a worklist on this thread that takes no memory of its own.
  void release() noexcept override;

 private:
  friend class GradSink;
  const bool counted_;
  std::vector<detail::Edge> edges_;
  std::vector<detail::SavedTensor> saved_;
  std::vector<detail::GradSlot> slots_;
  Node* next_released_ = nullptr;  // in the worklist of release
};

// "matmul in layers.0.attn", for error texts.
std::string describe(const Node& node);

namespace detail {
// A leaf: a parameter or an input the user wants the gradient of. Its slot is the gradient.
class LeafNode final : public Node {
 public:
  LeafNode() : Node("leaf", 1, false) {}
  void vjp(VjpContext&) override {}
  bool is_leaf() const override { return true; }
};

// What a tracked tensor carries: output `output` of `node`.
class Variable final : public AutogradData {
 public:
  Variable(Ref<Node> producer, int producer_output) : node(std::move(producer)), output(producer_output) {}
  Ref<Node> node;
  int output;
};

inline Variable* variable_of(const Tensor& tensor) {
  return static_cast<Variable*>(tensor.autograd());
}
}  // namespace detail

}  // namespace eddy
