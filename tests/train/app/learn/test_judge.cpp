// The verdict on answers that came back from a program, without a compiler.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "examples/learn/checker/judge.h"
#include "tensor/base/error.h"

namespace {

using namespace eddy;
using namespace eddy::app;

Wanted wanted_of_two_parts() {
  Wanted wanted;
  wanted.all = read_answers("asks\tf(1)\ngives\ta\t1\t1e-9\t2\ngives\tb\t0\t1e-9\t1\t2\nends\n").all;
  wanted.mistakes = {{"a is turned.", {{"a", {{"-2"}}}}},
                     {"Both are 0.", {{"a", {{"0"}}}, {"b", {{"0", "0"}}}}}};
  return wanted;
}
Verdict judged(const std::string& a, const std::string& b, const std::string& end = "ends\n") {
  return judge(read_answers("asks\tf(1)\ngives\ta\t1\t1e-9\t" + a + "\ngives\tb\t0\t1e-9\t" + b + "\n" + end),
               wanted_of_two_parts());
}

}  // namespace

TEST_CASE("judge: all answers near and a check that came to its end are right") {
  CHECK(judged("2.0000000001", "1\t2").right);
  CHECK_FALSE(judged("2", "1\t2", "").right);
  CHECK_FALSE(judge(read_answers("ends\n"), wanted_of_two_parts()).right);
}

TEST_CASE("judge: a mistake is seen where every part that it changes shows it") {
  CHECK(judged("-2", "1\t2").mistakes == std::vector<std::string>{"a is turned."});
  CHECK(judged("-2", "5\t5").mistakes == std::vector<std::string>{"a is turned."});
  CHECK(judged("0", "0\t0").mistakes == std::vector<std::string>{"Both are 0."});
  CHECK(judged("0", "1\t2").mistakes.empty());
  CHECK(judged("0", "1\t2").text == "  f(1)\n    a is 0, and should be 2\n1 of 2 answers are right\n");
}

TEST_CASE("judge: no number and too few of them are wrong answers, and another question is an error") {
  CHECK(judged("nan", "1").right_answers == 0);
  std::string said;
  try {
    static_cast<void>(judge(read_answers("asks\tg(1)\ngives\ta\t1\t0\t2\n"), wanted_of_two_parts()));
  } catch (const FormatError& error) {
    said = error.what();
  }
  CHECK_MESSAGE(said.find("was a default of the exercise changed in your file?") != std::string::npos, said);
}
