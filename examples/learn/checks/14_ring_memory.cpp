// hint: `written_` is the position of the next number: it goes to slot written_ % slots_.size().
// hint: The oldest position that is still there is written_ - size(). Go from there to written_.
#include <learn.h>
#include EXERCISE

namespace eddy_learn {

void check() {
  const auto state = [](const Ring& ring, const std::string& when) {
    asks(when);
    gives("positions", ring.positions());
    gives("size", ring.size());
    gives("in_order", ring.in_order());
    gives("slots", ring.slots());
  };
  Ring ring(4);
  state(ring, "Ring ring(4)");
  ring.write({10, 11, 12});
  state(ring, "then ring.write({10, 11, 12})");
  ring.write({13});
  state(ring, "then ring.write({13})");
  ring.write({14, 15});
  state(ring, "then ring.write({14, 15})");
  ring.write({});
  state(ring, "then ring.write({})");
  ring.write({20, 21, 22, 23, 24, 25, 26});
  state(ring, "then ring.write({20, 21, 22, 23, 24, 25, 26})");
  Ring one(1);
  one.write({1, 2, 3});
  state(one, "Ring one(1), then one.write({1, 2, 3})");
}

}  // namespace eddy_learn
