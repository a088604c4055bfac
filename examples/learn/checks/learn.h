// What the checks of the exercises share: they compare numbers and shapes, and say what differs. A check includes the
// student's file, whose name the compiler is given:
//
//   #include <learn.h>
//   #include EXERCISE
//
//   namespace eddy_learn {
//
//   int check() {
//     near("softplus(0)", softplus(0), 0.6931471805599453);
//     return result();
//   }
//
//   }  // namespace eddy_learn
//
// All that a check declares is in this namespace, so that a student may use the same names.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <type_traits>
#include <vector>

namespace eddy_learn {

inline int checked = 0, wrong = 0;
constexpr int kShown = 6;  // faults that are printed

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
template <class Number>
std::string text_of(const std::vector<Number>& numbers) {
  std::string text;
  for (const Number& x : numbers) text += (text.empty() ? "" : ", ") + text_of(x);
  return "[" + text + "]";
}

// Counts a check, and prints what is wrong where `right` is false. Returns `right`.
inline bool say(bool right, const std::string& what, const std::string& got, const std::string& want,
                const std::string& note = "") {
  ++checked;
  if (!right && ++wrong <= kShown)
    std::printf("  %s: %s, and should be %s%s\n", what.c_str(), got.c_str(), want.c_str(),
                note.empty() ? "" : (" (" + note + ")").c_str());
  std::fflush(stdout);  // an end by a signal loses nothing
  return right;
}

// Equal: whole numbers, texts, shapes.
template <class Value>
bool same(const std::string& what, const Value& got, const Value& want, const std::string& note = "") {
  return say(got == want, what, text_of(got), text_of(want), note);
}

// Whether a number differs from the wanted one by at most `tolerance`, relative to that where it exceeds 1. A NaN is far
// from every number, and what is not infinite from an infinity.
inline bool is_near(double got, double want, double tolerance) {
  return got == want ||
         (std::isfinite(want) && std::abs(got - want) <= tolerance * std::max(1.0, std::abs(want)));
}
inline bool near(const std::string& what, double got, double want, double tolerance = 1e-9,
                 const std::string& note = "") {
  return say(is_near(got, want, tolerance), what, text_of(got), text_of(want), note);
}

// As many numbers as wanted, each near. Prints the first that is not: "dx, element [1, 2]" where the numbers have columns.
inline bool near(const std::string& what, const std::vector<double>& got, const std::vector<double>& want,
                 std::size_t columns = 0, double tolerance = 1e-9, const std::string& note = "") {
  if (got.size() != want.size()) return same("the size of " + what, got.size(), want.size(), note);
  for (std::size_t i = 0; i < got.size(); ++i)
    if (!is_near(got[i], want[i], tolerance)) {
      const std::string at = columns == 0 ? text_of(i) : text_of(i / columns) + ", " + text_of(i % columns);
      return say(false, what + ", element [" + at + "]", text_of(got[i]), text_of(want[i]), note);
    }
  return say(true, what, "", "");
}

// A condition that no single number shows: `got` and `want` say in words what is and what should be.
inline bool holds(bool right, const std::string& what, const std::string& got, const std::string& want) {
  return say(right, what, got, want);
}

// Numbers between -1 and 1 that look random and are the same every time.
inline std::vector<double> numbers(std::size_t count, std::uint64_t seed) {
  std::vector<double> result;
  for (std::uint64_t state = seed * 7919 + 17; result.size() < count;) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    result.push_back(static_cast<double>(state >> 33) / static_cast<double>(1u << 30) - 1);
  }
  return result;
}

// The slope of a function of x[i], from both sides of it: what a gradient must equal.
template <class Function>
double slope(Function&& f, std::vector<double> x, std::size_t i, double h = 1e-5) {
  const double kept = x[i];
  x[i] = kept + h;
  const double above = f(x);
  x[i] = kept - h;
  return (above - f(x)) / (2 * h);
}
template <class Function>
std::vector<double> slopes(Function&& f, const std::vector<double>& x) {
  std::vector<double> result;
  for (std::size_t i = 0; i < x.size(); ++i) result.push_back(slope(f, x, i));
  return result;
}
inline double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) sum += a[i] * b[i];
  return sum;
}

// The exit status of a check.
inline int result() {
  if (wrong > kShown) std::printf("  and %d more\n", wrong - kShown);
  std::printf("%d of %d checks are right\n", checked - wrong, checked);
  return wrong == 0 ? 0 : 1;
}

// Checks the exercise, and returns its result(): each check defines this.
int check();

}  // namespace eddy_learn

int main() {
  return eddy_learn::check();
}
