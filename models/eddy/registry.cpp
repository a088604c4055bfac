// The registry: the models of this build, each by family and name, and those that a program adds.
#include "models/eddy/registry.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor/base/format.h"

namespace eddy {

// models/<family>/models.cpp defines it.
#define EDDY_DECLARE_MODELS(family)        \
  namespace family {                       \
  std::vector<ListedModel<Keys>> models(); \
  }
EDDY_FAMILIES(EDDY_DECLARE_MODELS)

namespace {

class Registry {
 public:
  Registry() {
#define EDDY_ADD_MODELS(family) add_all(#family, family::models());
    EDDY_FAMILIES(EDDY_ADD_MODELS)
  }

  void add(const FamilyEntry& family, const ModelEntry& model) {
    const auto known = std::find_if(families.begin(), families.end(), [&](const FamilyEntry& other) {
      return std::string_view(other.name) == family.name;
    });
    if (known != families.end() && known->keys != family.keys)
      fail<ConfigError>("register_model: the family {} of {} has other keys (name another family)",
                        family.name, model.model);
    if (known == families.end()) families.push_back(family);
    models.push_back(model);
  }

  std::vector<FamilyEntry> families;
  std::vector<ModelEntry> models;

 private:
  template <class Keys>
  void add_all(const char* family, const std::vector<ListedModel<Keys>>& all) {
    for (const ListedModel<Keys>& model : all)
      add(detail::family_entry<Keys>(family), detail::model_entry(family, model));
  }
};

Registry& registry() {
  static Registry all;
  return all;
}

}  // namespace

void check_new_name(const char* what, std::string_view name) {
  const bool plain = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
  if (!plain) fail<ConfigError>("{}: \"{}\" is no name (letters a-z, digits and _)", what, name);
}

namespace detail {

void add_model(const FamilyEntry& family, const ModelEntry& model) {
  Registry& all = registry();
  for (const char* name : {family.name, model.model}) check_new_name("register_model", name);
  for (const ModelEntry& other : all.models)
    if (std::string_view(other.model) == model.model)
      fail<ConfigError>("register_model: {} is the name of a model of the family {} (name it otherwise)",
                        model.model, other.family);
  // Descriptions of keys name either a family or a model.
  for (const ModelEntry& other : all.models) {
    if (std::string_view(other.family) == family.name) continue;
    for (const auto& [name, taken] : {std::pair{family.name, other.model}, {model.model, other.family}})
      if (std::string_view(name) == taken)
        fail<ConfigError>(
            "register_model: {} names a family and a model of another family (name it otherwise)", name);
  }
  const Registry before = all;
  all.add(family, model);
  try {
    ModelConfig config;
    KeyList keys;
    describe(keys, config);
  } catch (const ConfigError& error) {
    all = before;
    fail<ConfigError>("register_model: {}: {}", model.model, error.what());
  }
}

}  // namespace detail

std::span<const FamilyEntry> family_registry() {
  return registry().families;
}

std::span<const ModelEntry> model_registry() {
  return registry().models;
}

}  // namespace eddy
