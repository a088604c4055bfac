// Keys beside those of a described struct: those of a task, and of the models and tasks that a program registers. A
// struct of each type, kept as a value.
#pragma once

#include <any>
#include <map>
#include <typeindex>

namespace eddy {

// Structs of keys, one of each type.
class ExtensionKeys {
 public:
  // The struct of a type; that of its initial values where nobody has changed it. Keys is copied and compared.
  // aliasing: the reference is valid until this object is assigned to or ends.
  template <class Keys>
  Keys& get() {
    Part& part = parts_[typeid(Keys)];
    if (!part.value.has_value()) part = {Keys{}, same<Keys>};
    return *std::any_cast<Keys>(&part.value);
  }
  template <class Keys>
  const Keys& get() const {
    static const Keys initial{};
    const auto found = parts_.find(typeid(Keys));
    return found == parts_.end() ? initial : *std::any_cast<Keys>(&found->second.value);
  }

  friend bool operator==(const ExtensionKeys& a, const ExtensionKeys& b) {
    return a.is_within(b) && b.is_within(a);
  }

 private:
  struct Part {
    std::any value;
    bool (*same)(const ExtensionKeys&, const ExtensionKeys&) = nullptr;
  };
  template <class Keys>
  static bool same(const ExtensionKeys& a, const ExtensionKeys& b) {
    return a.get<Keys>() == b.get<Keys>();
  }
  bool is_within(const ExtensionKeys& other) const {
    for (const auto& [type, part] : parts_)
      if (!part.same(*this, other)) return false;
    return true;
  }

  std::map<std::type_index, Part> parts_;
};

}  // namespace eddy
