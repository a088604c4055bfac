// What tests say about errors: the text that one carries, and whether a text has a part.
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

// Whether `part` stands somewhere in `text`.
inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace eddy::test
