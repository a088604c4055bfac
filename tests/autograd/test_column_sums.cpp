// Sums of a gradient's columns that one node hands to another.
#include <doctest/doctest.h>

#include <vector>

#include "autograd/tape.h"
#include "tensor/transfer.h"
#include "tests/autograd/tiny_ops.h"

using namespace eddy;
using namespace eddy::tiny;

namespace {

using Values = std::vector<double>;

// x, whose gradient comes with the sums of its columns, here the gradient itself, where they are wanted.
Tensor giving(const Tensor& x) {
  return record("giving", {x}, raw::copy(x), {}, [](VjpContext& c) {
    c.sink.into(0, [&](const Tensor& dst, float beta) {
      if (beta == 0) raw::fill(dst, 0);
      raw::add_into(dst, c.dy());
      if (c.sink.wants_column_sums(0)) c.sink.set_column_sums(0, raw::copy(dst));
    });
  });
}
// x; notes the sums that came, or an empty list.
struct WantingVjp {
  bool wants;
  std::vector<Values>* given;
  bool wants_column_sums() const { return wants; }
  void operator()(VjpContext& c) const {
    given->push_back(c.column_sums().defined() ? c.column_sums().to_vector<double>() : Values());
    c.sink.accumulate(0, c.dy());
  }
};

}  // namespace

TEST_CASE(
    "sums of a gradient's columns come with it to a node that wants them until something is added to it") {
  const auto sums_given = [](bool wants, auto&& above) {
    std::vector<Values> given;
    const Tensor x = Tensor::from(Values{1, 2}, {2});
    require_grad(x);
    const Tensor y = record("wanting", {x}, raw::copy(x), {}, WantingVjp{wants, &given});
    backward(sum(above(y)));
    return given.at(0);
  };
  CHECK(sums_given(true, giving) == Values{1, 1});
  CHECK(sums_given(false, giving).empty());
  // Nodes run from the newest to the oldest: what is added ahead of the sums is in them.
  CHECK(sums_given(true, [](const Tensor& y) {
          const Tensor given = giving(y), newer = scale(y, 3);
          return add(given, newer);
        }) == Values{4, 4});
  CHECK(sums_given(true, [](const Tensor& y) {
          const Tensor older = scale(y, 3), given = giving(y);
          return add(older, given);
        }).empty());
}
