// Exercise 14: the last positions in a ring
//
// A layer with a window keeps the keys of the last `capacity` positions and forgets the rest. Nothing is moved: the
// number of position p is written to slot p mod capacity, over that of position p - capacity. In Eddy: ops/memory/.
//
//   capacity 4, after the positions 0 to 5        slots   4 5 2 3        from the oldest   2 3 4 5
#include <cstddef>
#include <vector>

class Ring {
 public:
  explicit Ring(std::size_t capacity) : slots_(capacity) {}

  // Takes the numbers of the next positions, which may be more than there is room for.
  void write(const std::vector<double>& numbers) {
    // your code
  }

  // How many positions were written in all.
  std::size_t positions() const { return written_; }
  // How many are still there.
  std::size_t size() const {
    return 0;  // your code
  }
  // What is still there, from the oldest to the newest.
  std::vector<double> in_order() const {
    return slots_;  // your code
  }

  const std::vector<double>& slots() const { return slots_; }

 private:
  std::vector<double> slots_;
  std::size_t written_ = 0;
};
