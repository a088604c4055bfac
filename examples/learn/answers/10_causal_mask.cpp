// The answer to exercise 10.
bool visible(int query, int key, int queries, int keys, int window) {
  const int position = keys - queries + query;
  return key <= position && (window == 0 || position - key < window);
}
