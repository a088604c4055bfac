// Numbers with units, and strings made safe to show. Control characters: ECMA-48 (C0 and C1 sets).
#include "train/words/human_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <system_error>
#include <utility>

#include "train/words/utf8.h"

namespace eddy::training {
namespace {

// Returns "1.2", "12.3" or "123": at most three digits. The limit is where rounding would give a fourth:
// 99.96 is "100".
std::string three_digits(double value) {
  return std::abs(value) < 99.95 ? fmt::format("{:.1f}", value) : fmt::format("{:.0f}", value);
}

std::string without_trailing_zeros(std::string text) {
  if (text.find('.') == std::string::npos) return text;
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text;
}

// Returns a value in the first of the units, each `base` times the one before, in which it rounds to less
// than `base`, or in the last.
std::pair<double, const char*> in_units(double value, double base, std::initializer_list<const char*> units) {
  const char* unit = "";
  for (const char* next : units) {
    if (std::abs(value) < base - 0.5) break;
    value /= base;
    unit = next;
  }
  return {value, unit};
}

constexpr char32_t kReplacement = 0xfffd;

}  // namespace

std::string human_count(double value) {
  if (!std::isfinite(value)) return "-";
  const double size = std::abs(value);
  if (size < 999.5) {
    const bool whole = value == std::floor(value);
    return whole ? fmt::format("{:.0f}", value + 0.0) : three_digits(value);
  }
  const auto [scaled, suffix] = in_units(value, 1000, {"k", "M", "G", "T"});
  if (std::abs(scaled) >= 99999.5) return fmt::format("{:.2e}", value);
  return three_digits(scaled) + suffix;
}

std::optional<std::int64_t> count_from(std::string_view text) {
  constexpr std::pair<char, std::size_t> kUnits[] = {{'k', 3}, {'m', 6}, {'g', 9}, {'b', 9}};
  std::size_t zeros = 0;  // behind the digits
  for (const auto& [unit, of_unit] : kUnits)
    if (zeros == 0 && !text.empty() && std::tolower(static_cast<unsigned char>(text.back())) == unit) {
      zeros = of_unit;
      text.remove_suffix(1);
    }
  const std::size_t point = std::min(text.find('.'), text.size());
  std::string digits(text.substr(0, point));
  if (digits.empty() || std::isdigit(static_cast<unsigned char>(digits.back())) == 0) return std::nullopt;
  if (point < text.size()) {
    const std::string_view fraction = text.substr(point + 1);
    if (fraction.empty() || fraction.size() > zeros) return std::nullopt;
    digits += fraction;
    zeros -= fraction.size();
  }
  digits.append(zeros, '0');
  std::int64_t value = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

std::string human_bytes(std::int64_t bytes) {
  if (std::abs(static_cast<double>(bytes)) < 1024) return fmt::format("{} B", bytes);
  const auto [scaled, unit] = in_units(static_cast<double>(bytes), 1024, {"KiB", "MiB", "GiB", "TiB"});
  return fmt::format("{} {}", three_digits(scaled), unit);
}

std::string decimal_bytes(std::int64_t bytes) {
  const double mega = static_cast<double>(bytes) / 1e6;
  if (std::abs(mega) < 1) return fmt::format("{} {}", bytes, plural(bytes, "byte"));
  const auto [scaled, unit] = in_units(mega, 1000, {"GB", "TB"});
  return fmt::format("{} {}", three_digits(scaled), *unit == '\0' ? "MB" : unit);
}

std::string human_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e12) return "-";
  if (seconds < 9.95 && seconds != std::floor(seconds)) return fmt::format("{:.1f}s", seconds);
  const auto total = static_cast<std::int64_t>(std::llround(seconds));
  const std::int64_t minutes = total / 60;
  const std::int64_t hours = minutes / 60;
  if (total < 60) return fmt::format("{}s", total);
  if (hours == 0) return fmt::format("{}m {:02}s", minutes, total % 60);
  if (hours < 24) return fmt::format("{}h {:02}m", hours, minutes % 60);
  return fmt::format("{}d {:02}h", hours / 24, hours % 24);
}

std::string human_number(double value, int digits) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  if (value == 0) return "0";
  const double size = std::abs(value);
  if (size >= 1e-3 && size < 1e7) {
    const int decimals = std::max(0, digits - 1 - static_cast<int>(std::floor(std::log10(size))));
    return without_trailing_zeros(fmt::format("{:.{}f}", value, decimals));
  }
  const std::string text = fmt::format("{:.{}e}", value, std::max(0, digits - 1));
  const std::size_t e = text.find('e');
  return fmt::format("{}e{}", without_trailing_zeros(text.substr(0, e)), std::stoi(text.substr(e + 1)));
}

std::string grouped(std::int64_t value) {
  const std::string digits = std::to_string(value);
  std::string text;
  const std::size_t first = value < 0 ? 1 : 0;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > first && (digits.size() - i) % 3 == 0) text += ' ';
    text += digits[i];
  }
  return text;
}

std::string with_spaces(std::string name) {
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

std::string listed(const std::vector<std::string>& names) {
  constexpr std::size_t kMostNames = 12;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kMostNames); ++i) text += (i > 0 ? ", " : "") + names[i];
  if (names.size() > kMostNames) text += fmt::format(" and {} more", names.size() - kMostNames);
  return text;
}

std::string printable(std::string_view text) {
  std::string safe;
  safe.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Char c = utf8_at(text, i);
    const std::size_t bytes = c.bytes == 0 ? 1 : static_cast<std::size_t>(c.bytes);
    const bool control = (c.code_point < 0x20 && c.code_point != '\n' && c.code_point != '\t') ||
                         (c.code_point >= 0x7f && c.code_point < 0xa0);
    if (c.code_point == '\r') {  // alone a line end, before '\n' a part of one
      if (i + 1 == text.size() || text[i + 1] != '\n') safe += '\n';
    } else if (c.bytes == 0 || control) {
      append_utf8(safe, kReplacement);
    } else {
      safe.append(text.substr(i, bytes));
    }
    i += bytes;
  }
  return safe;
}

std::streamsize PrintableBuffer::xsputn(const char* text, std::streamsize bytes) {
  to_ << printable({text, static_cast<std::size_t>(bytes)});
  return to_ ? bytes : 0;
}

PrintableBuffer::int_type PrintableBuffer::overflow(int_type character) {
  const char one = traits_type::to_char_type(character);
  if (!traits_type::eq_int_type(character, traits_type::eof())) to_ << printable({&one, 1});
  return to_ ? traits_type::not_eof(character) : traits_type::eof();
}

int PrintableBuffer::sync() {
  return to_.flush() ? 0 : -1;
}

std::string shell_quoted(const std::string& word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,:/@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

std::string html_escape(std::string_view text) {
  std::string escaped;
  escaped.reserve(text.size());
  constexpr std::string_view kSpecial = "&<>\"'";
  constexpr const char* kEntities[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
  for (const char c : printable(text)) {
    if (const std::size_t special = kSpecial.find(c); special != std::string_view::npos)
      escaped += kEntities[special];
    else
      escaped += c;
  }
  return escaped;
}

}  // namespace eddy::training
