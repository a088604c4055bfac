// The names that `using namespace eddy` brings into a program: those that it is meant to use. A name of the
// library's inner parts stands in eddy::detail, where a program's own type of that name does not meet it.
#include <doctest/doctest.h>

#include "models/eddy/eddy.h"

using namespace eddy;

namespace {

enum class Kind { line, square };
enum class Kernel { round };
struct Place {
  int row = 0, column = 0;
};
struct Edge {
  Place from, to;
};
struct Tile {
  Place at;
  Kind kind = Kind::square;
};
struct Rows {
  Tensor values;
};
struct Picture {
  Rows rows;
  Tile tile;
};
struct Variable {
  double value = 0;
};
struct LstmCell {
  Tensor h, c;
};

}  // namespace

TEST_CASE("a program may name its own types Rows, Tile, Place, Kind, Picture and LstmCell") {
  const Picture picture{Rows{tensor({{1.f, 2.f}})}, Tile{Place{1, 2}}};
  CHECK(picture.rows.values.dim(1) == 2);
  CHECK(picture.tile.kind == Kind::square);
  const Edge edge{picture.tile.at, Place{}};
  CHECK(edge.from.column == 2);
  CHECK(Variable{0.5}.value == 0.5);
  CHECK(Kernel::round == Kernel{});

  // The op's result has the library's type, whatever a program calls its own.
  const auto next = lstm_cell(zeros({1, 8}), zeros({1, 2}));
  const LstmCell own{next.h, next.c};
  CHECK(own.h.shape() == own.c.shape());
}
