// The answer to exercise 19. The tile's sums stay in registers: a compiler makes vector code of the loops over j.
#include <cstddef>
#include <vector>

using Size = std::size_t;

template <class A, class B>
void product_plain(const A& a, const B& b, double* c, Size n) {
  for (Size r = 0; r < n; ++r)
    for (Size o = 0; o < n; ++o) {
      c[r * n + o] = 0;
      for (Size k = 0; k < n; ++k) c[r * n + o] += a[r * n + k] * b[k * n + o];
    }
}

// A tile of 4 x 4 sums at row r and column o. b_at(k, j) is b[k, o + j].
template <class A, class BAt>
void tile(const A& a, const BAt& b_at, double* c, Size n, Size r, Size o) {
  double sums[4][4] = {};
  for (Size k = 0; k < n; ++k) {
    double of_b[4];
    for (Size j = 0; j < 4; ++j) of_b[j] = b_at(k, j);
    for (Size i = 0; i < 4; ++i) {
      const double of_a = a[(r + i) * n + k];
      for (Size j = 0; j < 4; ++j) sums[i][j] += of_a * of_b[j];
    }
  }
  for (Size i = 0; i < 4; ++i)
    for (Size j = 0; j < 4; ++j) c[(r + i) * n + o + j] = sums[i][j];
}

template <class A, class B>
void product_tiled(const A& a, const B& b, double* c, Size n) {
  for (Size r = 0; r < n; r += 4)
    for (Size o = 0; o < n; o += 4)
      tile(
          a, [&](Size k, Size j) { return b[k * n + o + j]; }, c, n, r, o);
}

template <class B>
std::vector<double> pack(const B& b, Size n) {
  std::vector<double> packed;
  for (Size o = 0; o < n; o += 4)
    for (Size k = 0; k < n; ++k)
      for (Size j = 0; j < 4; ++j) packed.push_back(b[k * n + o + j]);
  return packed;
}

template <class A, class P>
void product_packed(const A& a, const P& packed, double* c, Size n) {
  for (Size r = 0; r < n; r += 4)
    for (Size o = 0; o < n; o += 4)
      tile(
          a, [&](Size k, Size j) { return packed[o * n + 4 * k + j]; }, c, n, r, o);
}
