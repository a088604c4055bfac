// A strict JSON parser for untrusted files. The parser underneath (nlohmann_json) keeps the last of two equal
// keys, stops silently at a NUL byte and does not bound nesting or the number of values. This one reports all
// of these as errors. Only .cpp files include this header, so users of tensor/ need no JSON header.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace eddy {

struct JsonLimits {
  int depth = 32;                   // of arrays and objects inside each other
  std::int64_t values = 4'000'000;  // bounds the memory that a small hostile file can request
};

struct JsonResult {
  nlohmann::json value;
  std::string problem;        // empty when the text is good JSON
  std::int64_t position = 0;  // of the problem, in bytes from the start; -1 where it is not known

  bool ok() const { return problem.empty(); }
};

// Returns the JSON value of a whole text, or the problem with it. Problems are anything but one JSON value
// with white space around it, invalid UTF-8, NUL bytes, byte order marks, equal keys in one object, and
// numbers out of the range of a double.
JsonResult parse_strict_json(std::string_view text, const JsonLimits& limits = {});

// The JSON value of a whole text, which errors call `name`.
// errors: FormatError with the problem.
nlohmann::json json_of_text(std::string_view text, const std::string& name, const JsonLimits& limits = {});

}  // namespace eddy
