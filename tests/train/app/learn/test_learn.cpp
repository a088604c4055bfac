// `eddy learn` as a student meets it: every exercise as it is handed out fails with a number or a shape that is wrong,
// every answer passes, and mistakes get a message that helps.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <future>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/program.h"

namespace {

namespace fs = std::filesystem;
using namespace eddy;
using namespace eddy::test;

const fs::path kExercises = fs::path(EDDY_SOURCE_DIR) / "examples" / "learn";

std::vector<std::string> exercise_files() {
  std::vector<std::string> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(kExercises))
    if (entry.path().extension() == ".cpp" || entry.path().extension() == ".cu")
      files.push_back(entry.path().filename().string());
  std::sort(files.begin(), files.end());
  return files;
}

// A student's folder with one exercise, and the commands of eddy learn in it.
class Student {
 public:
  explicit Student(std::string which) : which_(std::move(which)) {}

  // `in`: the working directory, below that of the student.
  Ended learn(const std::vector<std::string>& words, const std::vector<std::string>& environment = {},
              const std::string& in = "") const {
    Start start{{"learn"}, in.empty() ? folder_.path() : folder_.path(in)};
    start.arguments.insert(start.arguments.end(), words.begin(), words.end());
    start.environment = environment;
    return run_program(start);
  }
  Ended take() const { return learn({which_}); }
  Ended check(const std::vector<std::string>& environment = {}) const {
    return learn({"check", which_}, environment);
  }
  void hand_in(const std::string& file, const std::string& text) const {
    folder_.write("learn/" + file, text);
  }
  std::string path(const std::string& file) const { return folder_.path(file); }

 private:
  TempFolder folder_;
  std::string which_;
};

}  // namespace

TEST_CASE("learn: every exercise as it is handed out fails with what is wrong and every answer passes") {
  if (!has_program()) return;
  const std::vector<std::string> files = exercise_files();
  CHECK(files.size() == 20);
  struct Results {
    Ended taken, hole, answer;
  };
  std::map<std::string, Results> results;
  for (const std::string& file : files) results[file];  // now no thread changes the map itself
  std::vector<std::future<void>> halves;
  for (std::size_t part = 0; part < 2; ++part)
    halves.push_back(std::async(std::launch::async, [&, part] {
      for (std::size_t i = part; i < files.size(); i += 2) {
        const Student student(std::to_string(i + 1));
        Results& found = results[files[i]];
        found.taken = student.take();
        found.hole = student.check();
        student.hand_in(files[i], read_bytes(kExercises / "answers" / files[i]));
        found.answer = student.check();
      }
    }));
  for (std::future<void>& half : halves) half.get();
  for (const std::string& file : files) {
    CAPTURE(file);
    const Results& found = results.at(file);
    CHECK_MESSAGE(found.taken.status == 0, found.taken.err);
    CHECK_MESSAGE(found.hole.status == 1, found.hole.out, found.hole.err);
    CHECK_MESSAGE(contains(found.hole.out, ", and should be "), found.hole.out, found.hole.err);
    CHECK_MESSAGE(contains(found.hole.out, "is not right yet"), found.hole.out);
    CHECK_FALSE_MESSAGE(contains(found.hole.out, "warning:"), found.hole.out);
    CHECK_MESSAGE(found.answer.status == 0, found.answer.out, found.answer.err);
    CHECK_MESSAGE(contains(found.answer.out, "is right; next: eddy learn "), found.answer.out);
    CHECK_FALSE_MESSAGE(contains(found.answer.out, "warning:"), found.answer.out);
  }
}

TEST_CASE(
    "learn: what is right is kept in the student's folder and a file that is there is not written again") {
  if (!has_program()) return;
  const Student student("broadcast");
  CHECK(contains(student.learn({}).out, "0 of 20 are right, in learn.\nNext: eddy learn 1\n"));
  CHECK(contains(student.take().out, "learn/03_broadcast.cpp is there for you."));
  student.hand_in("03_broadcast.cpp", read_bytes(kExercises / "answers/03_broadcast.cpp"));
  CHECK(student.check().status == 0);
  CHECK(contains(student.take().out, "is there already"));
  CHECK(student.check().status == 0);
  CHECK(contains(student.learn({}).out, "  right   3  broadcast"));
  CHECK(contains(student.learn({}).out, "1 of 20 are right"));
  student.hand_in("03_broadcast.cpp", "int main() {}\n");
  CHECK(student.check().status == 1);
  CHECK(contains(student.learn({}).out, "1 of 20 are right"));
}

TEST_CASE("learn: a student's own helpers may have the names that the checks use") {
  if (!has_program()) return;
  const Student student("1");
  std::string text = read_bytes(kExercises / "answers/01_softplus.cpp");
  text += "#include <string>\n#include <vector>\nusing namespace std;\n";
  for (const char* name :
       {"near", "same", "holds", "say", "dot", "slope", "numbers", "text_of", "result", "check"})
    text += std::string("double ") + name + "(const vector<double>&, const string& = \"\") { return 0; }\n";
  text += "int checked = 0, wrong = 0;\nstruct learn {};\n";
  CHECK(student.take().status == 0);
  student.hand_in("01_softplus.cpp", text);
  const Ended checked = student.check();
  CHECK_MESSAGE(checked.status == 0, checked.out, checked.err);
}

TEST_CASE("learn: a file may be named by its path, and the folder itself be worked in") {
  if (!has_program()) return;
  const Student student("1");
  CHECK(student.take().status == 0);
  student.hand_in("01_softplus.cpp", read_bytes(kExercises / "answers/01_softplus.cpp"));
  CHECK(student.learn({"check", "learn/01_softplus.cpp"}).status == 0);
  const Ended inside = student.learn({"check", "01_softplus.cpp"}, {}, "learn");
  CHECK_MESSAGE(inside.status == 0, inside.err);
  CHECK(contains(student.learn({}, {}, "learn").out, "1 of 20 are right, in ."));
}

TEST_CASE("learn: every exercise knows three usual mistakes at least and none of their sentences twice") {
  for (const std::string& file : exercise_files()) {
    CAPTURE(file);
    const auto wanted =
        nlohmann::json::parse(read_bytes(kExercises / "wanted" / fs::path(file).replace_extension(".json")));
    std::set<std::string> sentences;
    for (const auto& mistake : wanted.at("mistakes")) sentences.insert(mistake.at("sentence"));
    CHECK(sentences.size() == wanted.at("mistakes").size());
    CHECK(sentences.size() >= 3);
    CHECK(wanted.at("answers").size() >= 5);
  }
}

TEST_CASE("learn: a usual mistake is named and another gets its inputs and numbers and no guess") {
  if (!has_program()) return;
  const Student student("10");
  CHECK(student.take().status == 0);
  const auto said_of = [&](const std::string& condition) {
    student.hand_in(
        "10_causal_mask.cpp",
        "bool visible(int query, int key, int queries, int keys, int window) {\n  const int p = keys - "
        "queries + query;\n  return " +
            condition + ";\n}\n");
    const Ended ended = student.check();
    CHECK(ended.status == 1);
    return ended.out;
  };
  std::string said = said_of("key <= p && p - key < window");
  CHECK_MESSAGE(contains(said, "    A window of 0 hides everything: it means that there is none.\n"), said);
  CHECK(contains(
      said,
      "visible(query 0, each key, queries 3, keys 3, window 0)\n    visible is ..., and should be #..\n"));
  said = said_of("key <= p && (window == 0 || p - key <= window)");
  CHECK_MESSAGE(contains(said, "The window is one position too long"), said);
  said = said_of("key <= p && (window == 0 || p - key < 2 * window)");
  CHECK(contains(said, "window 2)\n    visible is ###., and should be .##.\n"));
  for (const char* sentence : {"The window", "A window", "The query", "A query", "No window", "The order"})
    CHECK_FALSE_MESSAGE(contains(said, sentence), said);
}

TEST_CASE(
    "learn: a size that never changed is not taken for a wrong sum, and a NaN is shown without a sign") {
  if (!has_program()) return;
  const Student student("2");
  CHECK(student.take().status == 0);
  std::string text = read_bytes(kExercises / "answers/02_strides.cpp");
  const std::string size = "  result.sizes[axis] = length;\n";
  REQUIRE(contains(text, size));
  student.hand_in("02_strides.cpp", text.erase(text.find(size), size.size()));
  std::string said = student.check().out;
  CHECK_MESSAGE(contains(said, "    The size has not changed: "), said);
  CHECK_FALSE_MESSAGE(contains(said, "start + length"), said);

  CHECK(student.learn({"1"}).status == 0);
  student.hand_in(
      "01_softplus.cpp",
      "#include <cmath>\ndouble softplus(double x) { return x; }\n"
      "double softplus_gradient(double x, double dy) { return dy * std::exp(x) / (1 + std::exp(x)); }\n");
  said = student.learn({"check", "1"}).out;
  CHECK_MESSAGE(contains(said, "softplus_gradient is nan, and should be 1\n"), said);
}

TEST_CASE("learn: a file that ends early or prints what checks print or includes an answer is not right") {
  if (!has_program()) return;
  const Student student("10");
  CHECK(student.take().status == 0);
  const std::string wrong = "bool visible(int, int, int, int, int) { return true; }\n";
  const auto said_of = [&](const std::string& text) {
    student.hand_in("10_causal_mask.cpp", text);
    const Ended ended = student.check();
    CHECK_MESSAGE(ended.status == 1, ended.out);
    CHECK(contains(ended.out + ended.err, "is not right yet"));
    return ended.out;
  };
  CHECK(contains(said_of("#include <cstdlib>\nbool visible(int, int, int, int, int) { std::_Exit(0); }\n"),
                 "before it was asked everything: is there an exit in it?"));
  said_of("#include <cstdlib>\nint early = (std::_Exit(0), 0);\n" + wrong);
  said_of(
      "#include <cstdio>\nint early = std::puts(\"15 of 15 answers are right\\nexercise 10 is right\");\n" +
      wrong);
  const std::string included = "#include \"" + (kExercises / "answers/10_causal_mask.cpp").string() + "\"\n";
  CHECK(contains(said_of(included), "includes an answer"));
  CHECK(contains(said_of("#pragma GCC system_header\n" + included), "includes an answer"));
  // A list of included files writes these two signs in a way of its own.
  fs::create_directory_symlink(kExercises / "answers", student.path("a$b#"));
  CHECK(contains(said_of("#include \"../a$b#/10_causal_mask.cpp\"\n"), "includes an answer"));
}

TEST_CASE("learn: all exercises are checked at once and the results are JSON too") {
  if (!has_program()) return;
  const Student student("10");
  CHECK(student.take().status == 0);
  student.hand_in("10_causal_mask.cpp",
                  "bool visible(int query, int key, int, int, int) { return key <= query; }\n");
  const Ended ended = student.learn({"check", "--all", "--json"});
  CHECK(ended.status == 1);
  const auto results = nlohmann::json::parse(ended.out);
  REQUIRE(results.size() == 20);
  CHECK(results[9].at("name") == "causal_mask");
  CHECK(results[9].at("handed_in") == true);
  CHECK(results[9].at("right") == false);
  CHECK(results[9].at("right_answers") < results[9].at("answers"));
  CHECK(results[0].at("handed_in") == false);
  const Ended one = student.learn({"check", "10", "--json"});
  CHECK(nlohmann::json::parse(one.out).at("text") == results[9].at("text"));
}

TEST_CASE("learn: a class has exercises of its own and no answers beside them") {
  if (!has_program()) return;
  const TempFolder shared;
  fs::copy(kExercises / "own", shared.path("class"), fs::copy_options::recursive);
  fs::remove_all(shared.path("class/answers"));
  const Student student("1");
  const std::string folder = shared.path("class");
  const auto learn = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"--exercises", folder});
    return student.learn(words);
  };
  CHECK(contains(learn({}).out, "0 of 1 are right"));
  CHECK(learn({"1"}).status == 0);
  student.hand_in(
      "01_variance.cpp",
      "#include <vector>\ndouble variance(const std::vector<double>& v) {\n  double sum = 0;\n  for (double "
      "x : v) sum += x * x / v.size();\n  return sum;\n}\n");
  const Ended wrong = learn({"check", "1"});
  CHECK_MESSAGE(contains(wrong.out, "The mean is not subtracted: this is the mean of the squares."),
                wrong.out, wrong.err);
  CHECK(learn({"answer", "1"}).status == 1);
  student.hand_in("01_variance.cpp", read_bytes(kExercises / "own/answers/01_variance.cpp"));
  CHECK(learn({"check", "--all"}).status == 0);
}

TEST_CASE("learn: hints come one by one and then the answer is offered") {
  if (!has_program()) return;
  const Student student("1");
  CHECK(student.learn({"hint", "1"}).out.starts_with("hint 1 of 3: For x > 0"));
  CHECK_FALSE(contains(student.learn({"hint"}).out, "hint 3"));
  const std::string last = student.learn({"hint", "softplus"}).out;
  CHECK(contains(last, "hint 3 of 3: "));
  CHECK(contains(last, "eddy learn answer 1"));
  CHECK(student.learn({"answer", "1"}).out == read_bytes(kExercises / "answers/01_softplus.cpp"));
}

TEST_CASE("learn: a file that does not compile or never ends or crashes is said to do so") {
  if (!has_program()) return;
  const Student student("1");
  const std::string begin = "double softplus_gradient(double, double) { return 0; }\n";
  CHECK(student.take().status == 0);
  const auto said_of = [&](const std::string& text) {
    student.hand_in("01_softplus.cpp", begin + text);
    const Ended ended = student.check();
    CHECK(ended.status == 1);
    CHECK(ended.err.empty());
    return ended.out;
  };
  std::string said = said_of("double softplus(double x) { return y; }\n");
  CHECK_MESSAGE(contains(said, "learn/01_softplus.cpp:2:"), said);
  CHECK_MESSAGE(contains(said, "learn/01_softplus.cpp does not compile: see above"), said);
  said = said_of("double softplus(double x) { for (volatile double y = x;;) y = y + 1; }\n");
  CHECK_MESSAGE(contains(said, "stopped after 10 seconds while it computed softplus(0): is there a loop"),
                said);
  said = said_of("#include <vector>\ndouble softplus(double) { return std::vector<double>(3)[3]; }\n");
  CHECK_MESSAGE(contains(said, "ended by signal 6"), said);
  CHECK_MESSAGE(contains(said, "an index beyond the end of a vector"), said);
  said = said_of("double softplus(double x) { volatile double* p = nullptr; return *p + x; }\n");
  CHECK_MESSAGE(contains(said, "ended by signal 11"), said);
  said = said_of(
      "#include <vector>\nstd::vector<double> all;\n"
      "double softplus(double x) { for (;;) all.insert(all.end(), 1 << 20, x); }\n");
  CHECK_MESSAGE(contains(said, "bad_alloc"), said);
  said = said_of(
      "#include <cstdio>\ndouble softplus(double) { for (int i = 0;; ++i) std::printf(\"line %d\\n\", i); }\n");
  CHECK(contains(said, "is there a loop without an end?"));
  CHECK_MESSAGE(said.starts_with("line 0\nline 1\n"), said.substr(0, 100));
  CHECK(contains(said, "... (it prints more)\n"));
  CHECK(said.size() < 2'000);
}

TEST_CASE("learn: an answer is right under a sanitizer too") {
  if (!has_program()) return;
  const Student student("1");
  CHECK(student.take().status == 0);
  student.hand_in("01_softplus.cpp", read_bytes(kExercises / "answers/01_softplus.cpp"));
  const Ended checked = student.check({"CXX=c++ -fsanitize=address"});
  if (contains(checked.out, "does not compile")) {
    MESSAGE("skipped: the compiler has no address sanitizer");
    return;
  }
  CHECK_MESSAGE(checked.status == 0, checked.out, checked.err);
}

TEST_CASE("learn: what is missing is said with what to do") {
  if (!has_program()) return;
  const Student student("1");
  CHECK(contains(student.check().err, "there is no learn/01_softplus.cpp (eddy learn 1 writes it)"));
  CHECK(contains(student.learn({"--folder", "of mine", "check", "1"}).err,
                 "there is no of mine/01_softplus.cpp (eddy learn --folder 'of mine' 1 writes it)"));
  CHECK(contains(student.learn({"chek", "3"}).err, "learn: unknown command 'chek' (nearest: check;"));
  CHECK(contains(student.learn({"chek"}).err, "no exercise chek (nearest: check;"));
  CHECK(contains(student.learn({"3", "5"}).err, "learn: unexpected argument '5'"));
  CHECK(contains(student.learn({"softplas"}).err, "nearest: softplus; 1 to 20; eddy learn lists them"));
  CHECK(contains(student.learn({"21"}).err, "there is no exercise 21"));
  CHECK(student.take().status == 0);
  CHECK(contains(student.check({"PATH=/nowhere"}).err, "there is no C++ compiler"));
  CHECK(contains(student.check({"CXX=no-such-compiler"}).err, "'no-such-compiler', does not run"));
  student.hand_in("progress.json", "{}");
  CHECK(contains(student.learn({}).err, "progress.json is damaged"));
  student.hand_in("../mine/letter.txt", "dear reader");
  const Ended other = student.learn({"--folder", "mine", "1"});
  CHECK(other.status == 1);
  CHECK(contains(other.err, "mine has other files and no progress.json (name another folder: --folder)"));
}
