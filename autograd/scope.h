// Module paths such as "layers.0.attn", for error texts, statistics and the exported graph. A scope
// exists once and lives forever, so a node needs only a pointer.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace eddy {
namespace detail {

// The base of classes that switch something on while they are alive. Gives a variable another value, and
// back the old one when it is destroyed.
template <class T>
class Setting {
 public:
  Setting(T& variable, T value) : variable_(variable), before_(std::exchange(variable, value)) {}
  ~Setting() { variable_ = before_; }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  T& variable_;
  const T before_;
};

}  // namespace detail

// A module's place in the model while it computes.
struct Scope {
  std::string path;                      // "layers.0.attn"
  mutable std::int64_t saved_bytes = 0;  // saved for backward by the nodes of this scope

  // Returns the scope called `name` inside this one.
  const Scope* child(std::string_view name) const;

 private:
  mutable std::map<std::string, std::unique_ptr<Scope>, std::less<>> children_;
};

// Returns the scope that new nodes belong to on this thread.
const Scope* current_scope();

// Enters a child of the current scope for the guard's lifetime.
class ScopeGuard : detail::Setting<const Scope*> {
 public:
  // Enters the child of that name.
  explicit ScopeGuard(std::string_view name);
  // Enters a given scope, for a recomputation, which belongs to the module of its forward pass.
  explicit ScopeGuard(const Scope& scope);
};

// Returns the `count` scopes with the most saved bytes, largest first.
std::vector<const Scope*> largest_scopes(std::size_t count);

}  // namespace eddy
