// Who wants to see the tape at work: one observer per thread is told of every operation that finished its
// forward and of every node that finished its backward. A profiler reads its clock there; autograd itself has
// none. Without an observer the hooks cost one look at a thread-local pointer.
#pragma once

namespace eddy {

class Node;
struct Scope;

class TapeObserver {
 public:
  virtual ~TapeObserver() = default;
  // An operation computed its results on this thread, inside the module `scope`; also without recording. `op`
  // lives forever. Helpers that are no operations of their own (raw copies, allocation) come before the next
  // call.
  virtual void forward_done(const char* op, const Scope* scope) = 0;
  // A node's backward ran and its saved tensors went. A checkpoint's node comes after all that it recomputed.
  virtual void backward_done(const Node& node) = 0;
};

namespace detail {
extern constinit thread_local TapeObserver* tape_observer;
void observe_forward(const char* op);
}  // namespace detail

// While alive on this thread, `observer` is the one that is told.
// aliasing: the observer must outlive the guard.
class ObserveTape {
 public:
  explicit ObserveTape(TapeObserver& observer) : previous_(detail::tape_observer) {
    detail::tape_observer = &observer;
  }
  ~ObserveTape() { detail::tape_observer = previous_; }
  ObserveTape(const ObserveTape&) = delete;
  ObserveTape& operator=(const ObserveTape&) = delete;

 private:
  TapeObserver* previous_;
};

}  // namespace eddy
