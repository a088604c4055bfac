// The observer of each thread.
#include "autograd/profile.h"

namespace eddy::detail {

constinit thread_local TapeObserver* tape_observer = nullptr;

void observe_forward(const char* op) {
  tape_observer->forward_done(op, current_scope());
}

}  // namespace eddy::detail
