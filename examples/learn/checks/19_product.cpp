// hint: Version 2 loops over r and o in steps of 4, with `double sums[4][4] = {}`. Inside, the loop over k reads 4 numbers
//       of a column of a and 4 of a row of b into variables first, and multiplies each with each.
// hint: pack loops over panels, then k, then 4 columns, and appends: the order of the loops is the order in memory.
// hint: In version 3 the panel of column o begins at o n, and the numbers of k at o n + 4 k.
#include <learn.h>
#include EXERCISE

namespace eddy_learn {

// An array that counts its reads, and those that are not behind the one before.
class Counted {
 public:
  explicit Counted(std::vector<double> numbers) : numbers_(std::move(numbers)) {}
  double operator[](Size i) const {
    ++reads;
    jumps += i != next_ ? 1 : 0;
    next_ = i + 1;
    return numbers_.at(i);
  }
  mutable Size reads = 0, jumps = 0;

 private:
  std::vector<double> numbers_;
  mutable Size next_ = 0;
};

std::string at_most(Size n) {
  return "at most " + text_of(n);
}

int check() {
  for (const Size n : {Size{4}, Size{12}, Size{20}}) {
    const std::string size = " at n " + text_of(n);
    const std::vector<double> a = numbers(n * n, 1), b = numbers(n * n, 2);
    std::vector<double> want(n * n), got(n * n, 1e9), panels;
    product_plain(a, b, want.data(), n);
    for (Size p = 0; p < n / 4; ++p)
      for (Size k = 0; k < n; ++k)
        for (Size j = 0; j < 4; ++j) panels.push_back(b[k * n + 4 * p + j]);

    const Counted a2(a), b2(b);
    product_tiled(a2, b2, got.data(), n);
    near("version 2, c" + size, got, want, n);
    const Size most = n * n * n / 2, reads = a2.reads + b2.reads;
    holds(reads <= most, "the reads of version 2" + size, text_of(reads), at_most(most));

    near("the panels of b" + size, pack(Counted(b), n), panels, 4);

    const Counted a3(a), packed(panels);
    std::fill(got.begin(), got.end(), 1e9);
    product_packed(a3, packed, got.data(), n);
    near("version 3, c" + size, got, want, n);
    const Size reads3 = a3.reads + packed.reads, tiles = n * n / 16;
    holds(reads3 <= most, "the reads of version 3" + size, text_of(reads3), at_most(most));
    holds(packed.jumps <= tiles, "the jumps in the panels of version 3" + size, text_of(packed.jumps),
          at_most(tiles));
  }
  return result();
}

}  // namespace eddy_learn
