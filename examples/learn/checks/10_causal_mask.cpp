// hint: Compute the query's position first. Both rules compare it with the key.
// hint: A window of 1 is the query's own position alone: position - key < window.
#include <learn.h>
#include EXERCISE

namespace eddy_learn {

void check(int queries, int keys, int window, const std::vector<std::string>& want) {
  for (int q = 0; q < queries; ++q) {
    std::string row;
    for (int k = 0; k < keys; ++k) row += visible(q, k, queries, keys, window) ? '#' : '.';
    same("row " + text_of(q) + " of queries " + text_of(queries) + ", keys " + text_of(keys) + ", window " +
             text_of(window),
         row, want[static_cast<std::size_t>(q)]);
  }
}

int check() {
  check(3, 3, 0, {"#..", "##.", "###"});
  check(2, 5, 0, {"####.", "#####"});
  check(4, 4, 2, {"#...", "##..", ".##.", "..##"});
  check(3, 5, 2, {".##..", "..##.", "...##"});
  check(1, 4, 1, {"...#"});
  check(2, 3, 9, {"##.", "###"});
  return result();
}

}  // namespace eddy_learn
