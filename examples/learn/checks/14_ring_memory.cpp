// hint: `written_` is the position of the next number: it goes to slot written_ % slots_.size().
// hint: The oldest position that is still there is written_ - size(). Go from there to written_.
#include <learn.h>
#include EXERCISE

namespace eddy_learn {

void expect(const Ring& ring, const std::string& when, const std::vector<double>& want) {
  same("the positions written " + when, ring.size(), want.size());
  same("the numbers from the oldest " + when, ring.in_order(), want);
}

int check() {
  Ring ring(4);
  expect(ring, "before the first write", {});
  ring.write({10, 11, 12});
  expect(ring, "after 3 positions", {10, 11, 12});
  ring.write({13, 14, 15});
  expect(ring, "after 6 positions", {12, 13, 14, 15});
  same("the slots after 6 positions", ring.slots(), {14, 15, 12, 13}, "position p is in slot p mod 4");
  same("the count of positions", ring.positions(), std::size_t{6});
  ring.write({});
  expect(ring, "after writing nothing", {12, 13, 14, 15});
  ring.write({20, 21, 22, 23, 24, 25, 26});
  expect(ring, "after 7 at once", {23, 24, 25, 26});
  same("the slots then", ring.slots(), {26, 23, 24, 25}, "position p is in slot p mod 4");
  Ring one(1);
  one.write({1, 2, 3});
  expect(one, "in a ring of 1", {3});
  return result();
}

}  // namespace eddy_learn
