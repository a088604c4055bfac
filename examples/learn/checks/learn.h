// What the checks of the exercises share. A check includes the student's file, whose name the compiler is given, asks
// it questions, and hands on what it answers:
//
//   #include <learn.h>
//   #include EXERCISE
//
//   namespace eddy_learn {
//
//   void check() {
//     asks("softplus(2)");
//     gives("softplus", softplus(2));
//   }
//
//   }  // namespace eddy_learn
//
// This program does not know what is right. Its answers go to the program that started it, by standard input, which
// is no input here: that one has the answers wanted, and those that usual mistakes give (checks/README.md). So
// nothing that a student's file prints, includes or ends makes it right.
//
// All that a check declares is in this namespace, so that a student may use the same names.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace eddy_learn {

template <class Number>
std::string text_of(Number x) {
  if constexpr (std::is_integral_v<Number>) return std::to_string(x);
  char text[40];
  std::snprintf(text, sizeof text, "%.10g", static_cast<double>(x));
  return text;
}
inline std::string text_of(const std::string& text) {
  return text;
}
// "[1, 2, 3]"; with columns "[1, 2; 3, 4]", one row behind the other.
template <class Number>
std::string text_of(const std::vector<Number>& numbers, std::size_t columns = 0) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size(); ++i)
    text += (i == 0 ? "" : columns > 0 && i % columns == 0 ? "; " : ", ") + text_of(numbers[i]);
  return "[" + text + "]";
}

// One line to the program that judges.
inline void send(const std::string& line) {
  static const int to = [] {
    const int results = ::dup(STDIN_FILENO), nothing = ::open("/dev/null", O_RDONLY);
    ::dup2(nothing, STDIN_FILENO);
    return results;
  }();
  for (std::size_t sent = 0; sent <= line.size();) {
    const std::string rest = line.substr(sent) + "\n";
    const ssize_t now = ::write(to, rest.data(), rest.size());
    if (now <= 0) return;
    sent += static_cast<std::size_t>(now);
  }
}

// Says what the answers below belong to, before the student's code is called: a call with its inputs, small whole
// numbers where possible, since the student reads them.
inline void asks(const std::string& question) {
  send("asks\t" + question);
}

template <class Value>
std::string exact(const Value& x) {
  if constexpr (std::is_same_v<Value, bool>)
    return x ? "yes" : "no";
  else if constexpr (std::is_integral_v<Value>)
    return std::to_string(x);
  else if constexpr (std::is_floating_point_v<Value>) {
    char text[40];
    std::snprintf(text, sizeof text, "%.17g", static_cast<double>(x));
    return text;
  } else
    return x;
}
// Hands on an answer: a number, a word, or a vector of them, in rows of `columns`. `part` says which output it is. A
// number is right within `tolerance`, relative where it exceeds 1.
template <class Value>
void gives(const std::string& part, const std::vector<Value>& values, std::size_t columns = 0,
           double tolerance = 1e-9) {
  std::string line = "gives\t" + part + "\t" + std::to_string(columns) + "\t" + exact(tolerance);
  for (const Value& value : values) line += "\t" + exact<Value>(value);
  send(line);
}
template <class Value>
requires std::is_arithmetic_v<Value> || std::is_convertible_v<Value, std::string>
void gives(const std::string& part, const Value& value, double tolerance = 1e-9) {
  if constexpr (std::is_arithmetic_v<Value>)
    gives(part, std::vector<Value>{value}, 1, tolerance);
  else
    gives(part, std::vector<std::string>{value}, 1, tolerance);
}

// What `call` returns, or "refused" where it throws std::invalid_argument.
template <class Call>
std::string or_refused(Call&& call) {
  try {
    return text_of(call());
  } catch (const std::invalid_argument&) {
    return "refused";
  }
}

// Whole numbers between -3 and 3 that look random and are the same every time.
inline std::vector<double> numbers(std::size_t count, std::uint64_t seed) {
  std::vector<double> result;
  for (std::uint64_t state = seed * 7919 + 17; result.size() < count;) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    result.push_back(static_cast<double>((state >> 33) % 7) - 3);
  }
  return result;
}

// Asks all questions: each check defines this.
void check();

}  // namespace eddy_learn

int main() {
  eddy_learn::send("begins");
  eddy_learn::check();
  eddy_learn::send("ends");
}
