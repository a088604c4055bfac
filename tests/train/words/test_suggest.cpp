// The name that someone meant who wrote another one.
#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "train/words/suggest.h"

using namespace eddy;
using namespace eddy::training;

TEST_CASE("suggest_name finds the name that was meant") {
  const std::vector<std::string> names{"--help",
                                       "--threads",
                                       "--model.steps",
                                       "--model.layers",
                                       "--data.path",
                                       "--train.steps",
                                       "--train.learning_rate",
                                       "--train.batch",
                                       "--model.dim",
                                       "--train.warmup",
                                       "--top-k",
                                       "--run",
                                       "--model.model",
                                       "--train.precision"};
  for (const auto& [word, name] : {std::pair{"--steps", "--train.steps"},
                                   {"--model.step", "--model.steps"},
                                   {"--train.step", "--train.steps"},
                                   {"--lr", "--train.learning_rate"},
                                   {"--train.lr", "--train.learning_rate"},
                                   {"--learning-rate", "--train.learning_rate"},
                                   {"--LEARNING_RATE", "--train.learning_rate"},
                                   {"--batch-size", "--train.batch"},
                                   {"--n_layer", "--model.layers"},
                                   {"--layer", "--model.layers"},
                                   {"--epochs", "--train.steps"},
                                   {"--top_k", "--top-k"},
                                   {"--warmpu", "--train.warmup"},
                                   {"--dtype", "--train.precision"},
                                   {"--output_dir", "--run"},
                                   {"--rate", "--train.learning_rate"},
                                   {"--stpes", "--train.steps"},
                                   {"--frobnicate", ""},
                                   {"--session", ""},
                                   {"--ru", ""},
                                   {"--zz", ""}})
    CHECK_MESSAGE(suggest_name(word, names) == name, std::string(word));
  // A quarter of the letters may differ, and neighbours that changed places are one difference.
  CHECK(suggest_name("--session", {"--version", "--load"}) == "--load");
  CHECK(suggest_name("--session", {"--version"}) == "");
  CHECK(suggest_name("--tempreature", {"--top-k", "--temperature"}) == "--temperature");
  CHECK(edit_distance("abcd", "acbd") == 1);
  CHECK(edit_distance("ca", "abc") == 3);
  CHECK(edit_distance("", "abc") == 3);
  CHECK(suggest_name("steps", {"model.steps", "train.steps"}, "model") == "model.steps");
  CHECK(suggest_name("x", {}) == "");
}

TEST_CASE("nearest_match counts edits") {
  CHECK(nearest_match("layer", {"heads", "layers", "dim"}) == "layers");
  CHECK(nearest_match("haeds", {"heads", "layers", "dim"}) == "heads");
  CHECK(nearest_match("HEADS", {"dim", "heads"}) == "heads");
  CHECK(nearest_match("x", {}) == "");
  CHECK(nearest_match(std::string(1'000'000, 'd'), {"heads", "dim"}) != "");
}
