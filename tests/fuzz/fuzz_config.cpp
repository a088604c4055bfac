// Mutated config files: whatever the text, reading a run's config ends in a config or in an eddy::Error.
// Fixed seed, so a failure repeats; run with the sanitizers on.
#include <doctest/doctest.h>

#include <array>
#include <string>
#include <utility>

#include "tests/fuzz/mutations.h"
#include "train/config/config_file.h"
#include "train/config/run_config.h"

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

namespace {

const std::string kToml =
    "# a run\n[model]\nfamily = \"recurrent_transformer\"\nmodel = 'regular'\nlayers = 0x6\ndim = 1_536\n"
    "dropout = 1e-1\npositions = true\nrecurrent_layers = [1, 2]\n\n[data]\npath = "
    "\"\"\"a\\u00e9\nb\"\"\"\nsplit = 0.9\n"
    "[train]\nsteps = 100\nlearning_rate = 5e-4\nschedule = \"cosine\"\n";
const std::string kJson =
    R"({"family":"recurrent_transformer","model":"unit_forget","vocab":17,"n_out":17,"dim":16,"heads":2,"tied":true,)"
    R"("norm_eps":1e-05,"mlp_dim":64,"memory_layers":[0]})";

std::string mutate_config(std::string text, Random& random) {
  static const std::array<std::string, 30> kPieces = {"[",
                                                      "]",
                                                      "{",
                                                      "}",
                                                      "=",
                                                      ".",
                                                      ",",
                                                      "\"",
                                                      "'",
                                                      "\"\"\"",
                                                      "\n",
                                                      "\r\n",
                                                      "[[model]]",
                                                      "[train]",
                                                      "a.b.c.d = 1\n",
                                                      "{a = {a = {a = 1}}}",
                                                      "[[[[[[[[[[[[[[[[[[[[",
                                                      "nan",
                                                      "-inf",
                                                      "1979-05-27T07:32:00Z",
                                                      "0o777",
                                                      "1e400",
                                                      "99999999999999999999",
                                                      "\\uD800",
                                                      "\xff",
                                                      "\xEF\xBB\xBF",
                                                      std::string(1, '\0'),
                                                      "#",
                                                      "null",
                                                      "\"model\":"};
  return mutate_text(std::move(text), random, kPieces);
}

// Whether the text is a good config; any error but eddy's own fails the test.
bool text_survives(const std::string& text, bool toml) {
  return test::survives([&] {
    const ConfigSource source =
        toml ? config_from_toml(text, "fuzz.toml") : config_from_json(text, "fuzz.json");
    if (toml) {
      RunConfig config;
      keys_of(config).read(source);
    } else {
      (void)model_config_from_json(source.value, source.name);
    }
  });
}

void fuzz(const std::string& seed, bool toml) {
  REQUIRE(text_survives(seed, toml));
  Random random(20240918);
  int accepted = 0;
  constexpr int kMutants = 4000;
  for (int i = 0; i < kMutants; ++i) accepted += text_survives(mutate_config(seed, random), toml) ? 1 : 0;
  // Both answers must occur, or the mutations test nothing.
  CHECK(accepted > 10);
  CHECK(accepted < kMutants * 9 / 10);
}

}  // namespace

TEST_CASE("no mutation of a TOML config does more than raise an eddy error") {
  fuzz(kToml, true);
}
TEST_CASE("no mutation of a JSON config does more than raise an eddy error") {
  fuzz(kJson, false);
}
