// Profiling hooks of the tape. Each thread can have one observer. It is called after the forward of every
// operation and after the backward of every node, and can read a clock there; autograd itself reads none.
// Without an observer a hook costs one test of a thread-local pointer.
#include "autograd/scope.h"
#pragma once

namespace eddy {

class Node;
struct Scope;

// Who is told of each operation and of each node that ran.
class TapeObserver {
 public:
  virtual ~TapeObserver() = default;
  // An operation computed its results on this thread, inside the module `scope`, whether or not it was
  // recorded. `op` lives forever. Raw copies and allocations since the last call belong to this operation.
  virtual void forward_done(const char* op, const Scope* scope) = 0;
  // A node's backward ran and its saved tensors were freed. The node of a checkpoint comes after all nodes
  // that it recomputed.
  virtual void backward_done(const Node& node) = 0;
};

namespace detail {
extern constinit thread_local TapeObserver* tape_observer;
void observe_forward(const char* op);
}  // namespace detail

// While alive, makes `observer` the observer of this thread.
// aliasing: the observer must outlive the guard.
class ObserveTape : detail::Setting<TapeObserver*> {
 public:
  // Begins to tell it.
  explicit ObserveTape(TapeObserver& observer) : Setting(detail::tape_observer, &observer) {}
};

}  // namespace eddy
