// Two trained runs for tests of the program, its command lines as words, and how it refuses.
#pragma once

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/processes.h"
#include "tests/support/program.h"
#include "tests/support/tiny_run.h"

namespace eddy::test::program {

using namespace training;

using Words = std::vector<std::string>;

inline Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// A few steps of a tiny model.
inline Words tiny_train(const std::string& text, int steps = 4) {
  return words_of("train " + kTinyModel +
                  "--train.threads 1 --train.eval_every 0 --train.eval_batches 2 --train.log_every 1 "
                  "--train.checkpoint_every 0") +
         Words{"--data", text, "--train.steps", std::to_string(steps)};
}

// One trained run of each model, made once; tests that change a run take a copy.
struct Trained {
  TempFolder folder;
  std::string text = folder.write("text.txt", generate_stories(3, 4000));
  std::string unit = folder.path("unit"), regular = folder.path("regular");
  Ended unit_end, regular_end;

  Trained() {
    unit_end = run_program({tiny_train(text) + Words{"--run", unit}, folder.path()});
    regular_end = run_program(
        {tiny_train(text) + Words{"--run", regular, "--model.model", "regular", "--model.positions", "true"},
         folder.path()});
    REQUIRE_MESSAGE(unit_end.status == 0, unit_end.err);
    REQUIRE_MESSAGE(regular_end.status == 0, regular_end.err);
  }
  std::string copy_to(const TempFolder& other) const {
    std::filesystem::copy(unit, other.path("unit"), std::filesystem::copy_options::recursive);
    return other.path("unit");
  }
};
inline const Trained& trained() {
  static const Trained once;
  return once;
}

inline Ended run(const TempFolder& folder, const Words& arguments) {
  return run_program({arguments, folder.path()});
}

// An error a person can use: the status, and as the last line on standard error what is wrong.
inline void check_refused(const Ended& ended, int status, const std::string& what) {
  CAPTURE(ended.out);
  CAPTURE(ended.err);
  CHECK(ended.status == status);
  const std::size_t line = ended.err.rfind("error: ");
  REQUIRE(line != std::string::npos);
  CHECK((line == 0 || ended.err[line - 1] == '\n'));
  CHECK(ended.err.find('\n', line) == ended.err.size() - 1);
  CHECK_MESSAGE(contains(ended.err.substr(line), what), what);
}

}  // namespace eddy::test::program
