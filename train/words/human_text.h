// Text for people: numbers with readable units, and strings of unknown origin (samples of a byte-level model,
// error texts) made safe to show on a terminal or in a page.
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <streambuf>
#include <string>
#include <string_view>
#include <vector>

namespace eddy::training {

// Returns a count in at most four characters and a suffix: "0", "950", "12.3k", "1.2M", "3.4G"; "-" when it
// is not finite.
std::string human_count(double value);

// Returns the whole number that a text of a person's is, with a unit or without: "250", "10k", "2m", "1.5G", "7b" for
// thousands, millions and billions. Nothing for any other text,
// and for one that is no whole number or more than 64 bits.
std::optional<std::int64_t> count_from(std::string_view text);

// Returns bytes in binary units, such as "512 B", "1.2 GiB".
std::string human_bytes(std::int64_t bytes);

// Returns the size of a text: "512 bytes", from a million bytes on "30.8 MB".
std::string decimal_bytes(std::int64_t bytes);

// Returns a time in its two largest units, such as "0.4s", "12s", "3m 20s", "2h 05m", "3d 04h"; "-" when it
// is not finite or negative.
std::string human_duration(double seconds);

// Returns a number with `digits` significant digits and no trailing zeros: "3.142", "3e-4", "nan".
std::string human_number(double value, int digits = 4);

// Returns an integer with its thousands separated: "12 345 678".
std::string grouped(std::int64_t value);

// Returns the noun of a count: "run" for 1, else "runs", or `many` where that is not the noun with an s.
template <class Count>
std::string plural(Count count, const std::string& one, const std::string& many = "") {
  return count == 1 ? one : many.empty() ? one + "s" : many;
}

// Returns "bits_per_byte" as "bits per byte".
std::string with_spaces(std::string name);

// Returns "a, b, c and 5 more": the first dozen names, and how many more there are.
std::string listed(const std::vector<std::string>& names);

// Returns the text as valid UTF-8 without control characters other than newline and tab. Invalid bytes and
// characters that could control a terminal (escape, C1 controls) become U+FFFD. A carriage return becomes a
// newline; before a newline it is dropped.
std::string printable(std::string_view text);

// Hands on what a stream gets, a piece at a time, through printable(). A piece holds whole characters.
class PrintableBuffer final : public std::streambuf {
 public:
  explicit PrintableBuffer(std::ostream& to) : to_(to) {}

 private:
  std::streamsize xsputn(const char* text, std::streamsize bytes) override;
  int_type overflow(int_type character) override;
  int sync() override;

  std::ostream& to_;
};

// Returns a word as a shell reads it: in quotes where it needs them.
std::string shell_quoted(const std::string& word);

// Returns printable(text) with the special characters of HTML escaped, fit for element text and quoted
// attributes.
std::string html_escape(std::string_view text);

}  // namespace eddy::training
