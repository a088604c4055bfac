// A SAX handler that builds the document itself, so that it sees every key before the value is stored.
#include "tensor/files/strict_json.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "tensor/base/format.h"
#include "tensor/files/json_text.h"

namespace eddy {
namespace {

using nlohmann::json;

class Builder final : public nlohmann::json_sax<json> {
 public:
  explicit Builder(const JsonLimits& limits) : limits_(limits) {}

  bool null() override { return place(nullptr) != nullptr; }
  bool boolean(bool value) override { return place(value) != nullptr; }
  bool number_integer(number_integer_t value) override { return place(value) != nullptr; }
  bool number_unsigned(number_unsigned_t value) override { return place(value) != nullptr; }
  bool number_float(number_float_t value, const string_t&) override { return place(value) != nullptr; }
  bool string(string_t& value) override { return place(std::move(value)) != nullptr; }
  bool binary(binary_t&) override { return refuse("binary value"); }
  bool start_object(std::size_t) override { return open(json::object()); }
  bool start_array(std::size_t) override { return open(json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    if (open_.back()->contains(name)) return refuse(fmt::format("duplicate key {}", quote_text(name)));
    key_ = std::move(name);
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    result_.position = static_cast<std::int64_t>(position);
    result_.problem = plain_message(error.what());
    return false;
  }

  JsonResult take() { return std::move(result_); }

 private:
  bool refuse(std::string problem) {
    result_.problem = std::move(problem);
    result_.position = -1;
    return false;
  }
  json* place(json value) {
    if (++values_ > limits_.values) {
      refuse(fmt::format("more than {} values", limits_.values));
      return nullptr;
    }
    if (open_.empty()) {
      result_.value = std::move(value);
      return &result_.value;
    }
    json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    return &(parent[key_] = std::move(value));
  }
  // Pointers to the open containers stay good: a parent takes no further value before its last child is
  // closed.
  bool open(json empty) {
    if (static_cast<int>(open_.size()) >= limits_.depth)
      return refuse(fmt::format("nested deeper than {} levels", limits_.depth));
    json* placed = place(std::move(empty));
    if (placed != nullptr) open_.push_back(placed);
    return placed != nullptr;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  JsonLimits limits_;
  JsonResult result_;
  std::vector<json*> open_;
  std::string key_;
  std::int64_t values_ = 0;
};

}  // namespace

JsonResult parse_strict_json(std::string_view text, const JsonLimits& limits) {
  JsonResult early;
  if (const auto nul = text.find('\0'); nul != std::string_view::npos) {
    early.problem = "NUL byte";
    early.position = static_cast<std::int64_t>(nul);
    return early;
  }
  if (text.starts_with("\xEF\xBB\xBF")) {
    early.problem = "byte order mark before the text";
    return early;
  }
  Builder builder(limits);
  json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

std::string plain_message(std::string text) {
  if (const auto end = text.find("] "); text.starts_with("[json.exception.") && end != std::string::npos)
    text.erase(0, end + 2);
  if (const auto end = text.find(": "); text.starts_with("parse error at") && end != std::string::npos)
    text.erase(0, end + 2);
  constexpr std::size_t kLongest = 200;
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  // The message repeats what was read last, which need not be UTF-8.
  for (char& c : text)
    if (static_cast<unsigned char>(c) >= 0x7f || static_cast<unsigned char>(c) < 0x20) c = '?';
  return text;
}

json json_of_text(std::string_view text, const std::string& name, const JsonLimits& limits) {
  JsonResult result = parse_strict_json(text, limits);
  if (result.ok()) return std::move(result.value);
  fail<FormatError>("{} is not JSON: {}{}", name, result.problem,
                    result.position < 0 ? "" : fmt::format(" (at byte {})", result.position));
}

std::optional<std::string> json_string(std::string_view text) {
  try {
    return json(text).dump();
  } catch (const json::type_error&) {
    return std::nullopt;
  }
}

std::string quote_text(std::string_view text) {
  constexpr std::size_t kLongest = 100;
  const bool cut = text.size() > kLongest;
  const std::string shown = std::string(text.substr(0, kLongest)) + (cut ? "..." : "");
  return json(shown).dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace eddy
