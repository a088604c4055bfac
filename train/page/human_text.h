// Text for people: numbers with units a person reads at a glance, and strings of unknown origin (samples of a
// byte-level model, error texts) made safe to show on a terminal or in a page.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace eddy {

// A count in at most four characters and a suffix: "0", "950", "12.3k", "1.2M", "3.4G"; "-" when it is not
// finite.
std::string human_count(double value);

// Bytes with binary units: "512 B", "1.2 GiB".
std::string human_bytes(std::int64_t bytes);

// A time in its two largest units: "0.4s", "12s", "3m 20s", "2h 05m", "3d 04h"; "-" when it is not finite or
// negative.
std::string human_duration(double seconds);

// A number with `digits` significant digits, without trailing zeros: "3.142", "3e-4", "nan".
std::string human_number(double value, int digits = 4);

// An integer with a thin separation of thousands for reading: "12 345 678".
std::string grouped(std::int64_t value);

// The text as valid UTF-8 without control characters other than newline and tab: what is invalid, and what
// could steer a terminal (escape, carriage return, C1 controls), becomes U+FFFD. A carriage return before a
// newline is dropped.
std::string printable(std::string_view text);

// printable(text) with the characters that mean something in HTML escaped; fit for element text and quoted
// attributes.
std::string html_escape(std::string_view text);

}  // namespace eddy
