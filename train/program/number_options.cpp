// Checks of options that are numbers.
#include "train/program/number_options.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>

namespace eddy {
namespace {

template <class Number>
bool read(const std::string& text, Number& value) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end;
}

}  // namespace

CLI::Validator seed_number() {
  return {[](std::string& text) {
            std::uint64_t value = 0;
            return read(text, value) ? std::string()
                                     : fmt::format("{:?} is no whole number from 0 to 2^64 - 1", text);
          },
          ""};
}

CLI::Validator number_between(double low, double high) {
  return {[low, high](std::string& text) {
            double value = 0;
            const bool good = read(text, value) && value >= low && value <= high;
            return good ? std::string() : fmt::format("{:?} is no number from {} to {}", text, low, high);
          },
          ""};
}

}  // namespace eddy
