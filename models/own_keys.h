// Keys that a program adds to those of this build, of its own families of models or tasks: a struct of each type, kept
// as a value beside the structs that the build knows.
#pragma once

#include <any>
#include <map>
#include <typeindex>

namespace eddy {

class OwnKeys {
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

  friend bool operator==(const OwnKeys& a, const OwnKeys& b) { return a.is_within(b) && b.is_within(a); }

 private:
  struct Part {
    std::any value;
    bool (*same)(const OwnKeys&, const OwnKeys&) = nullptr;
  };
  template <class Keys>
  static bool same(const OwnKeys& a, const OwnKeys& b) {
    return a.get<Keys>() == b.get<Keys>();
  }
  bool is_within(const OwnKeys& other) const {
    for (const auto& [type, part] : parts_)
      if (!part.same(*this, other)) return false;
    return true;
  }

  std::map<std::type_index, Part> parts_;
};

}  // namespace eddy
