// Memory for small objects that come and go by the hundred in a step, such as tensor handles: each thread keeps
// that of the last ones for the next ones of the same type. malloc keeps only a few blocks of a size at hand and
// takes longer: a step of the model in examples/08_plain_loops.cpp takes 3 of 32 us less.
#pragma once

#include <cstddef>
#include <new>

namespace eddy::detail {

// A Base whose memory is reused. Create it by new; Base has a virtual destructor.
template <class Base>
class Recycled final : public Base {
 public:
  using Base::Base;

  static void* operator new(std::size_t bytes) {
    return kept.count > 0 ? kept.blocks[--kept.count] : ::operator new(bytes);
  }
#if defined(__GNUC__) && __GNUC__ >= 16
  // Inlined where a constructor throws, g++ 16.2 loses the exception: it finds the thread's `kept` before it saves it.
  [[gnu::noinline]]
#endif
  static void
  operator delete(void* block) {
    thread_local const Release at_thread_end;
    static_cast<void>(at_thread_end);
    if (kept.count < kept.most)
      kept.blocks[kept.count++] = block;
    else
      ::operator delete(block);
  }

 private:
  static constexpr int kMost = 256;
#if defined(__SANITIZE_ADDRESS__)
  static constexpr int kKept = 0;  // so that the sanitizer sees a use after the end
#else
  static constexpr int kKept = kMost;
#endif

  // Without a destructor, so that objects which static variables own can still be freed after the thread's end.
  struct Blocks {
    int count = 0, most = kKept;
    void* blocks[kMost] = {};
  };
  struct Release {
    ~Release() {
      while (kept.count > 0) ::operator delete(kept.blocks[--kept.count]);
      kept.most = 0;
    }
  };
  static inline constinit thread_local Blocks kept{};
};

}  // namespace eddy::detail
