// The flags of a new run: which keys its user gave.
#include <doctest/doctest.h>

#include <CLI/CLI.hpp>
#include <string>

#include "tests/support/files.h"
#include "train/app/program/commands.h"

using namespace eddy;
using namespace eddy::test;

TEST_CASE("new run options: a key is given by a flag or by the file, and not by its default") {
  const TempFolder folder;
  const std::string file = folder.write("a.toml", "[train]\nprecision = \"f32\"\n[model]\ndim = 16\n");
  const auto gives_precision = [](const std::string& words) {
    app::NewRunOptions options;
    CLI::App command;
    options.add_to(command);
    command.parse(words);
    return options.gives("train", "precision");
  };
  CHECK_FALSE(gives_precision("--train.device cuda"));
  CHECK(gives_precision("--train.device cuda --train.precision f32"));
  CHECK(gives_precision(file));
  CHECK_FALSE(gives_precision(folder.write("b.toml", "[train]\nsteps = 3\n")));
}
