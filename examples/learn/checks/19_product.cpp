// hint: Version 2 loops over r and o in steps of 4, with `double sums[4][4] = {}`.
//       Inside, the loop over k reads 4 numbers of a column of a and 4 of a row of b into variables first, and
//       multiplies each with each.
// hint: pack loops over panels, then k, then 4 columns, and appends: the order of the loops is the order in memory.
// hint: In version 3 the panel of column o begins at o n, and the numbers of k at o n + 4 k.
#include <learn.h>
#include EXERCISE

namespace eddy_learn {

// An array that counts its reads, those that are not behind the one before, and how many of its numbers were read.
class Counted {
 public:
  explicit Counted(std::vector<double> numbers) : numbers_(std::move(numbers)) {}
  double operator[](Size i) const {
    ++reads_;
    jumps_ += i != next_ ? 1 : 0;
    next_ = i + 1;
    return numbers_.at(i);
  }
  Size reads() const { return reads_; }
  Size jumps() const { return jumps_; }

 private:
  std::vector<double> numbers_;
  mutable Size reads_ = 0, jumps_ = 0, next_ = 0;
};

// A tile of 4 x 4 sums reads each number of a and of b n / 4 times: n^3 / 4 reads of each. Fewer are those of a copy,
// whose reads nobody counts, or of another tile.
void check() {
  for (const Size n : {Size{4}, Size{8}, Size{12}}) {
    const std::vector<double> a = numbers(n * n, 1), b = numbers(n * n, 2);
    std::vector<double> got(n * n, 99), panels;
    for (Size p = 0; p < n / 4; ++p)
      for (Size k = 0; k < n; ++k)
        for (Size j = 0; j < 4; ++j) panels.push_back(b[k * n + 4 * p + j]);
    const std::string inputs = n == 4 ? "a " + text_of(a, n) + ", b " + text_of(b, n) + ", c, " : "a, b, c, ";

    const Counted a2(a), b2(b);
    asks("product_tiled(" + inputs + "n " + text_of(n) + ")");
    product_tiled(a2, b2, got.data(), n);
    gives("c of version 2", got, n);
    gives("reads of a, version 2", a2.reads());
    gives("reads of b, version 2", b2.reads());

    asks("pack(b" + (n == 4 ? " " + text_of(b, n) : std::string()) + ", n " + text_of(n) + ")");
    gives("panels", pack(Counted(b), n), 4);

    const Counted a3(a), packed(panels);
    std::fill(got.begin(), got.end(), 99);
    asks("product_packed(a, panels of b, c, n " + text_of(n) + ")");
    product_packed(a3, packed, got.data(), n);
    gives("c of version 3", got, n);
    gives("reads of a, version 3", a3.reads());
    gives("reads of the panels, version 3", packed.reads());
    gives("the panels are read in order within a tile",
          packed.jumps() <= n * n / 16 ? std::string("yes") : "no, " + text_of(packed.jumps()) + " jumps");
  }
}

}  // namespace eddy_learn
