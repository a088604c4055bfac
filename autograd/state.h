// The recurrent state of a model: named tensors, in the order they were set. A model takes its state as an
// argument and returns the new one; it holds no hidden state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor/tensor.h"

namespace eddy {

// Tensors by name.
class State {
 public:
  // A name and its tensor.
  using Entry = std::pair<std::string, Tensor>;

  State() = default;
  // Returns the state with the map's entries, in the order of their names.
  // errors: as for set.
  static State from_map(const std::map<std::string, Tensor>& entries);
  std::map<std::string, Tensor> to_map() const { return {entries_.begin(), entries_.end()}; }

  // Sets the tensor of a name; an existing name keeps its place in the order.
  // errors: ValueError when the name is empty or the tensor undefined.
  void set(std::string_view name, const Tensor& tensor);
  // Returns the tensor of that name.
  // errors: ValueError if there is none; the text lists the existing names.
  const Tensor& get(std::string_view name) const;
  // The same, or nullptr when there is none.
  const Tensor* find(std::string_view name) const;
  // Sets counters under a name: an i64 tensor on the host.
  void set_counts(std::string_view name, const std::vector<std::int64_t>& counts);
  // Return the counters of that name, and the only one.
  // errors: as get; ShapeError when there are several.
  std::vector<std::int64_t> counts(std::string_view name) const;
  std::int64_t count(std::string_view name) const { return get(name).item_int(); }
  // Removes the tensor of that name; returns whether there was one.
  bool erase(std::string_view name);

  // How many tensors there are, and all of them in order.
  std::size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  std::vector<Entry>::const_iterator begin() const { return entries_.begin(); }
  std::vector<Entry>::const_iterator end() const { return entries_.end(); }

  // Returns the state without its graph: values carry over, gradients do not.
  //
  //                                      detach
  //   values      h0 --> segment 1 --> h1 --|--> segment 2 --> h2
  //                          |              |        |
  //                        loss 1           |      loss 2
  //                          |              |        |
  //   gradients   segment 1 <-+             |  <-----+   h1 is a constant of segment 2
  //
  // Detach a state before you carry it past a backward. Otherwise the next backward reaches the graph that
  // the last one freed.
  //
  // aliasing: a view of less than half of its buffer is copied, so that a small view does not keep a large
  // buffer alive; the others share their buffer.
  State detach() const;

  // Returns the size of all tensors in bytes.
  std::int64_t bytes() const;

 private:
  // The place of a name; size() when there is none.
  std::size_t place_of(std::string_view name) const;
  void note_places();

  std::vector<Entry> entries_;
  // Of all entries, where they are many. Of few, a linear search is as fast.
  std::map<std::string, std::size_t, std::less<>> places_;
};

}  // namespace eddy
