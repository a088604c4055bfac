// How the page's functions fail. Any number may be a result, NaN too: whether a call failed,
// page_error() says after it.
#pragma once

#include <exception>
#include <string>

namespace eddy::browser {

// The text of the failure of the last call; empty where it did not fail.
inline std::string& last_error() {
  static std::string text;
  return text;
}

// What `body` returns. Where it throws: 0, or null, and the text of the error in last_error().
template <class Body>
auto guarded(Body&& body) -> decltype(body()) {
  last_error().clear();
  try {
    return body();
  } catch (const std::exception& caught) {
    last_error() = caught.what();
  } catch (...) {
  }
  if (last_error().empty()) last_error() = "page: an exception without a text";
  return {};
}

}  // namespace eddy::browser
