// Exercise 19: a matrix product in three versions
//
//   c[r, o] = sum over k of a[r, k] b[k, o]             all [n, n], n a multiple of 4
//
// Version 1 (given) reads two numbers from memory for every multiplication. Version 2 computes a tile of 4 x 4 sums at
// once: for each k it reads 4 numbers of a and 4 of b, and multiplies 16 times. In version 3 the numbers of b that a
// tile reads one after another lie one behind the other: b is packed into panels of 4 columns first. In Eddy:
// ops/product/, where a panel is as wide as the processor's vectors.
//
// The check counts what you read: `a`, `b` and `packed` look like arrays, and a[i] is one read. By tiles each number is
// read n / 4 times.
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

// Version 2: n^3 / 4 reads of a, and as many of b.
template <class A, class B>
void product_tiled(const A& a, const B& b, double* c, Size n) {
  product_plain(a, b, c, n);  // your code
}

// The panels of b: the four numbers b[k, 4 p], ..., b[k, 4 p + 3] lie at 4 (p n + k) and behind it.
template <class B>
std::vector<double> pack(const B& b, Size n) {
  return std::vector<double>(n * n);  // your code
}

// Version 3: the same tiles, and within a tile packed[i + 1] is read behind packed[i].
template <class A, class P>
void product_packed(const A& a, const P& packed, double* c, Size n) {
  // your code
}
