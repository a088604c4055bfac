// Intrusive reference counting: one pointer per handle, no separate control block.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace eddy {

// The base of objects that Ref counts.
class RefCounted {
 public:
  RefCounted() = default;
  RefCounted(const RefCounted&) = delete;
  RefCounted& operator=(const RefCounted&) = delete;
  virtual ~RefCounted() = default;

  // How many handles there are.
  std::int64_t ref_count() const { return references_.load(std::memory_order_acquire); }

 private:
  template <class T>
  friend class Ref;
  // Called when the last reference is gone. Classes that can form long chains override it to free them
  // without recursion.
  virtual void release() noexcept { delete this; }

  std::atomic<std::int64_t> references_{0};
};

// A handle, null or of an object; the object goes with its last handle.
template <class T>
class Ref {
 public:
  // Null, of an object, or of that of another handle.
  Ref() = default;
  Ref(std::nullptr_t) {}
  explicit Ref(T* object) : object_(object) { retain(); }
  Ref(const Ref& other) : object_(other.object_) { retain(); }
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  template <class U>
  Ref(const Ref<U>& other) : object_(other.get()) {
    retain();
  }
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() {
    if (object_ != nullptr && counter(object_).fetch_sub(1, std::memory_order_acq_rel) == 1) {
      static_cast<RefCounted*>(object_)->release();
    }
  }

  // The object.
  T* get() const { return object_; }
  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }
  friend bool operator==(const Ref& a, const Ref& b) { return a.object_ == b.object_; }
  friend bool operator==(const Ref& a, std::nullptr_t) { return a.object_ == nullptr; }

 private:
  static std::atomic<std::int64_t>& counter(T* object) {
    return static_cast<RefCounted*>(object)->references_;
  }
  void retain() {
    if (object_ != nullptr) counter(object_).fetch_add(1, std::memory_order_relaxed);
  }
  T* object_ = nullptr;
};

// Makes a T with these arguments, and its first handle.
template <class T, class... Args>
Ref<T> make_ref(Args&&... args) {
  return Ref<T>(new T(std::forward<Args>(args)...));
}

}  // namespace eddy
