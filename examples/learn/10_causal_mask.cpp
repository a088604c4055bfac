// Exercise 10: a causal mask with a window
//
// A query may read the keys of its own position and of those before it, and of these only the last `window` (0: all of
// them). A model that writes a text has more keys than queries: the queries are the last positions. So query q of
// `queries` stands at the position keys - queries + q. In Eddy: ops/attention/attention.h.
//
//   queries 3, keys 5, window 2        . . # # .        # is visible, . is not
//                                      position 3 = 5 - 3 + 1, the row of query 1

// Whether a query may read a key.
bool visible(int query, int key, int queries, int keys, int window) {
  return true;  // your code
}
