// Enums whose values have names. The names are written once, for the key, flags and error texts:
//
//   enum class Recompute { none, layer, block };
//   template <> struct ValueNames<Recompute> { static constexpr const char* all[] = {"none", "layer", "block"}; };
//
//   value_name(Recompute::layer)        "layer"
//   value_named<Recompute>("layer")     Recompute::layer; nothing for another text
//   value_is("layer", Recompute::layer) true: how code asks for the value of a key, which a config holds as a text
#pragma once

#include <cstddef>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace eddy {

// The names of an enum's values.
template <class Enum>
struct ValueNames;  // `all`: the names in the order of the values, which begin at 0

// The name of a value.
template <class Enum>
const char* value_name(Enum value) {
  return ValueNames<Enum>::all[static_cast<std::size_t>(value)];
}

// The value of a name, if there is one.
template <class Enum>
std::optional<Enum> value_named(std::string_view name) {
  std::size_t at = 0;
  for (const char* one : ValueNames<Enum>::all) {
    if (name == one) return static_cast<Enum>(at);
    ++at;
  }
  return std::nullopt;
}

// Whether a text is the name of this value.
template <class Enum>
bool value_is(std::string_view name, Enum value) {
  return name == value_name(value);
}

// All names, in the order of the values.
template <class Enum>
std::vector<std::string> value_names() {
  return {std::begin(ValueNames<Enum>::all), std::end(ValueNames<Enum>::all)};
}

// "none, layer or block".
template <class Enum>
std::string value_choice() {
  const std::vector<std::string> names = value_names<Enum>();
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i)
    text += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + names[i];
  return text;
}

}  // namespace eddy
