// hint: Compute the query's position first. Both rules compare it with the key.
// hint: A window of 1 is the query's own position alone: position - key < window.
#include <learn.h>
#include EXERCISE

namespace eddy_learn {

void check(const std::string& part, int queries, int keys, int window) {
  for (int q = 0; q < queries; ++q) {
    std::string row;
    asks("visible(query " + text_of(q) + ", each key, queries " + text_of(queries) + ", keys " +
         text_of(keys) + ", window " + text_of(window) + ")");
    for (int k = 0; k < keys; ++k) row += visible(q, k, queries, keys, window) ? '#' : '.';
    gives(part, row);
  }
}

void check() {
  check("visible", 3, 3, 0);
  check("visible", 2, 5, 0);
  check("visible", 4, 4, 2);
  check("visible", 3, 5, 2);
  check("visible", 1, 4, 1);
  check("visible", 2, 3, 9);
}

}  // namespace eddy_learn
