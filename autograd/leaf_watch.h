// Knowing during a backward pass when the gradient of a leaf is final, so that it can be sent away while others are
// still computed.
//
//   forward     each node that reads a watched leaf is numbered; the lowest number is that of the leaf's first reader.
//               What checkpoint() computes reads under the number of its node.
//   backward    nodes run from the highest number down: below its first reader, nothing adds to a leaf any more
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "autograd/node.h"
#include "tensor/tensor.h"

namespace eddy {

// Watches one forward and one backward pass of this thread, from its construction on.
class LeafWatch {
 public:
  // In the backward pass `is_final(i)` is called once for each of `leaves`, when its gradient is: for those without a
  // reader at its beginning. `between` is called before each node runs.
  // errors: GraphError when a tensor is not a leaf, or when another watch is alive.
  LeafWatch(const std::vector<Tensor>& leaves, std::function<void(std::size_t)> is_final,
            std::function<void()> between);
  ~LeafWatch();
  LeafWatch(const LeafWatch&) = delete;
  LeafWatch& operator=(const LeafWatch&) = delete;

  // For the engine. The watch of this thread, or null.
  static LeafWatch* of_thread();
  // A node of this number reads a node.
  void note_reader(const Node& read, std::uint64_t number);
  // So does one that has no number yet: that of the next call of number_readers.
  void note_reader(const Node& read);
  void number_readers(std::uint64_t number);
  // Returns whether the pass that begins is to be followed: passes inside of it, of checkpoint(), are not.
  bool begin_pass();
  // All nodes above this number have run.
  void pass(std::uint64_t number);
  void end_pass();
  // errors: GraphError when the gradient of `leaf` is final.
  void check_open(const Node& writer, const Node& leaf) const;

 private:
  struct Leaf {
    Ref<Node> node;
    std::uint64_t first_reader = 0;  // 0: none
    bool is_final = false;
  };
  void lower(std::size_t leaf, std::uint64_t number);  // its first reader

  std::vector<Leaf> leaves_;
  std::vector<std::size_t> unnumbered_;  // leaves whose reader has no number yet
  std::unordered_map<const Node*, std::size_t> index_;
  std::vector<std::size_t> order_;  // of the leaves, by falling first reader, those without one first
  std::size_t next_ = 0;            // in `order_`
  bool in_pass_ = false;
  std::function<void(std::size_t)> is_final_;
  std::function<void()> between_;
};

}  // namespace eddy
