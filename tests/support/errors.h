// The text of an error, and whether a text contains another.
#pragma once

#include <string>

namespace eddy::test {

// The text of the error of type E that `action` throws; "" when it throws none. An error of another type
// passes on and fails the test.
template <class E, class Action>
std::string error_of(Action&& action) {
  try {
    action();
  } catch (const E& error) {
    return error.what();
  }
  return "";
}

// Whether `text` contains `part`.
inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace eddy::test
