// The number of threads inside a test.
#pragma once

#include "tensor/threads/thread_pool.h"

namespace eddy::test {

// While alive, work runs on `count` threads. Afterwards on as many as before.
class Threads {
 public:
  explicit Threads(int count) : before_(thread_count()) { set_thread_count(count); }
  ~Threads() { set_thread_count(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

// While alive, work stays on the calling thread: threads of models as small as those of the tests only wait
// for each other. Results are the same bits.
class OneThread : Threads {
 public:
  OneThread() : Threads(1) {}
};

}  // namespace eddy::test
