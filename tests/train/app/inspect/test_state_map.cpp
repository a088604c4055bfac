// The map of a state shows the numbers that make the difference, in as many columns as there is room for.
#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "train/app/inspect/state_map.h"

namespace {

using namespace eddy::app;

// Sixteen tokens of a state of three numbers: the first never differs from the reading without the state, the second
// does where the state saves something, the third differs elsewhere. A fourth never changes.
StateChooser planted() {
  StateChooser chooser;
  for (std::int64_t call = 0; call < 4; ++call) {
    std::vector<double> saved(4, 0.0);
    saved[2] = 3;
    saved[1] = -1;
    saved[3] = std::numeric_limits<double>::quiet_NaN();
    for (std::int64_t i = 0; i < 4; ++i) {
      const std::int64_t token = 4 * call + i;
      const double side = call % 2 == 0 ? 1 : -1, other = token % 2 == 0 ? 5 : -5;
      const std::vector<double> with{other, side, other, 7},
          without{other, i == 2 ? -side : side, i == 2 ? other : -other, 7};
      chooser.visit("state", token, token + 1, with);
      chooser.visit_cleared("state", token, without);
    }
    chooser.end_call(4 * call, saved);
  }
  return chooser;
}

}  // namespace

TEST_CASE("state map: a number is shown for what it differs by where the state saves something") {
  const StateMap map = planted().choose(8);
  CHECK(map.by_gain);
  REQUIRE(map.rows.size() == 1);  // the others differ nowhere that counts
  CHECK(map.rows[0].name() == "state[1]");
  CHECK(map.rows[0].score == doctest::Approx(2));  // from 1 to -1, of spread 1
  REQUIRE(map.parts.size() == 1);
  CHECK(map.parts[0].numbers == 4);
  CHECK(map.parts[0].shown == 1);
}

TEST_CASE("state map: where nothing was read without the state, those are shown that vary most") {
  StateChooser chooser;
  for (std::int64_t token = 0; token < 10; ++token) {
    const double x = token % 2 == 0 ? 1 : -1;
    chooser.visit("a", token, token + 1, std::vector<double>{x, 3 * x, 0});
    chooser.visit("b", token, token + 1, std::vector<double>{2 * x});
  }
  chooser.end_call(0, {});
  const StateMap map = chooser.choose(2);
  CHECK_FALSE(map.by_gain);
  REQUIRE(map.rows.size() == 2);
  CHECK(map.rows[0].name() == "a[1]");
  CHECK(map.rows[1].name() == "b[0]");
  CHECK(chooser.choose(0).rows.empty());
}

TEST_CASE("state map: a long text has no more columns than there is room for, each a mean of its tokens") {
  StateMap chosen;
  chosen.rows = {{"s", 1, 1.0}, {"s", 0, 0.5}};
  StateShader shader(chosen, 1000, 200);
  for (std::int64_t token = 0; token < 990; token += 2)  // the last tokens have no state
    shader.visit("s", token, token + 2, std::vector<double>{7, static_cast<double>(token)});
  const StateMap map = std::move(shader).take();
  CHECK(map.columns == 100);
  REQUIRE(map.rows[0].shade.size() == 100);
  CHECK(map.rows[0].shade[0] == 0);
  CHECK(map.rows[0].shade[98] == 254);
  CHECK(map.rows[0].shade[99] == 255);  // none
  CHECK(map.rows[0].low == doctest::Approx(4));
  CHECK(map.rows[1].shade[5] == 127);  // all alike
  CHECK(map.rows[1].low == 7);
}
