// Every usual mistake of every exercise, planted in its answer: it is seen by its own sentence, and what was recorded
// of it holds on this machine.
#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "tests/support/files.h"
#include "tests/support/program.h"
#include "train/process/running_program.h"

namespace {

namespace fs = std::filesystem;
using namespace eddy;
using namespace eddy::test;

// The sentences of a file of wanted/, and how many answers it has.
std::pair<std::set<std::string>, std::size_t> recorded(const fs::path& file) {
  const auto wanted = nlohmann::json::parse(read_bytes(file));
  std::set<std::string> sentences;
  for (const auto& mistake : wanted.at("mistakes")) sentences.insert(mistake.at("sentence"));
  return {sentences, wanted.at("answers").size()};
}

}  // namespace

TEST_CASE("learn: what is recorded of the exercises is what their answers and mistakes give now") {
  if (!has_program()) return;
  const TempFolder folder;
  const fs::path source = fs::path(EDDY_SOURCE_DIR) / "examples/learn", copy = folder.path("exercises");
  fs::copy(source, copy, fs::copy_options::recursive);
  fs::remove_all(copy / "wanted");
  // It refuses a mistake that changes no answer, and two that no answer tells apart.
  const training::ProgramEnd ended =
      training::run_to_end({.words = {kProgram, "learn", "--exercises", copy.string(), "record"},
                            .output = training::kRead,
                            .errors = training::kRead});
  CHECK_MESSAGE(ended.good(), ended.output);
  for (const fs::directory_entry& entry : fs::directory_iterator(source / "wanted"))
    if (entry.path().extension() == ".json")
      CHECK_MESSAGE(recorded(entry.path()) == recorded(copy / "wanted" / entry.path().filename()),
                    entry.path().string());
}
