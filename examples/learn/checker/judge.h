// What a student's program answered, beside what is wanted: the verdict, and which usual mistakes are seen.
//
// A check asks questions, and every answer belongs to a part (an output). A mistake is recognised where, in all parts
// that it changes, all answers are those that a program with this mistake gave (record.h). An answer of no known kind
// gets its numbers alone.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace eddy::app {

struct Answer {
  std::string asked, part;
  std::size_t columns = 0;  // of a matrix; 0: a vector
  double tolerance = 0;
  std::vector<std::string> values;  // numbers, or words
};

// What came back from a program.
struct Answers {
  std::vector<Answer> all;
  std::string asked_last;
  bool complete = false;  // the check ran to its end
};
Answers read_answers(std::string_view lines);

using PartValues = std::vector<std::vector<std::string>>;  // of the answers of a part, in order

// What a program with a usual mistake answers in the parts where that is not right.
struct Mistake {
  std::string sentence;
  std::map<std::string, PartValues> parts;
};
struct Wanted {
  std::vector<Answer> all;
  std::vector<Mistake> mistakes;
};
// A file of wanted/.
// errors: IoError; FormatError for a file that is none.
Wanted read_wanted(const std::filesystem::path& path);
std::string wanted_text(const Wanted& wanted);

PartValues values_of(const std::vector<Answer>& answers, const std::string& part);
// Whether two are the same within the tolerance: numbers near each other, NaN beside NaN, words equal.
bool are_near(const std::vector<std::string>& a, const std::vector<std::string>& b, double tolerance);

// Whether these answers, by part, are those of a mistake.
bool shows(const std::map<std::string, PartValues>& parts, const Mistake& mistake, const Wanted& wanted);

struct Verdict {
  bool right = false;
  std::size_t answers = 0, right_answers = 0;  // wanted, and of them right
  std::vector<std::string> mistakes;           // sentences
  std::string text;                            // the first wrong answer of each part, in lines
};
// errors: FormatError where the check asks what no one wanted: the file is older than the check.
Verdict judge(const Answers& given, const Wanted& wanted);

}  // namespace eddy::app
