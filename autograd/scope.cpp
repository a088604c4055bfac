// Interned module paths.
#include "autograd/scope.h"

#include <algorithm>
#include <mutex>

namespace eddy {
namespace {

std::mutex scopes_mutex;
Scope& root() {
  static Scope* const scope = new Scope;
  return *scope;
}
std::vector<const Scope*>& all_scopes() {
  static auto* const scopes = new std::vector<const Scope*>{&root()};
  return *scopes;
}
thread_local const Scope* current = nullptr;

}  // namespace

const Scope* Scope::child(std::string_view name) const {
  std::lock_guard lock(scopes_mutex);
  auto found = children_.find(name);
  if (found == children_.end()) {
    auto scope = std::make_unique<Scope>();
    scope->path = path.empty() ? std::string(name) : path + "." + std::string(name);
    found = children_.emplace(std::string(name), std::move(scope)).first;
    all_scopes().push_back(found->second.get());
  }
  return found->second.get();
}

const Scope* current_scope() {
  return current != nullptr ? current : &root();
}

ScopeGuard::ScopeGuard(std::string_view name) : Setting(current, current_scope()->child(name)) {}
ScopeGuard::ScopeGuard(const Scope& scope) : Setting(current, &scope) {}

std::vector<const Scope*> largest_scopes(std::size_t count) {
  std::lock_guard lock(scopes_mutex);
  std::vector<const Scope*> scopes = all_scopes();
  std::sort(scopes.begin(), scopes.end(),
            [](const Scope* a, const Scope* b) { return a->saved_bytes > b->saved_bytes; });
  if (scopes.size() > count) scopes.resize(count);
  return scopes;
}

}  // namespace eddy
