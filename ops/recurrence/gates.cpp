// Checks and gradients of the gates.
#include "ops/recurrence/gates.h"

#include "autograd/named_values.h"
#include "autograd/tape.h"
#include "ops/cast/upcast.h"
#include "ops/core/checks.h"
#include "ops/core/rows.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/partial_sums.h"
#include "ops/reduce/reduce.h"
#include "tensor/base/format.h"

namespace eddy {

using namespace detail;

namespace {

void check_state(const char* op, const Tensor& c) {
  checks::floating(op, c, "c");
  if (c.rank() == 0) fail<ShapeError>("{}: c is a scalar (it needs an axis of entries)", op);
}

void check_like_state(const char* op, const Tensor& c, const Tensor& x, const char* name) {
  checks::defined(op, x, name);
  checks::same_kind(op, c, x);
  if (x.shape() != c.shape())
    fail<ShapeError>("{}: c {} and {} {} (one shape for both)", op, to_string(c.shape()), name,
                     to_string(x.shape()));
}

void check_bias(const char* op, const Tensor& c, const Tensor& bias, const char* name) {
  checks::defined(op, bias, name);
  checks::same_kind(op, c, bias);
  if (bias.shape() != Shape{c.dim(-1)})
    fail<ShapeError>("{}: {} {} for c {} (it has the size of the last axis: [{}])", op, name,
                     to_string(bias.shape()), to_string(c.shape()), c.dim(-1));
}

GateRows gate_rows(const Rows& rows) {
  return {rows.data(), rows.stride};
}

// Memory for the gradient of input k; undefined if it is not wanted.
Tensor wanted(VjpContext& v, int k, const Shape& shape, const Tensor& like) {
  return v.sink.needs(k) ? Tensor::empty(shape, like.dtype(), like.device()) : Tensor();
}

// Runs the backward kernel and passes on the gradients that are wanted. `args` are those of the forward pass;
// their pointers are taken again from the saved tensors, whose versions are checked. Inputs and saved tensors
// are in the order c, z, i, f, bias_i, bias_f; the fixed gate has c, z and bias, which is the kernel's
// bias_f.
void accumulate_gradients(VjpContext& v, GateArgs args, const Shape& shape) {
  const bool lstm = args.kind == GateKind::lstm;
  const int bias_i_place = 4, bias_f_place = lstm ? 5 : 2;
  const Tensor& like = v.saved(0);
  args.c.data = like.raw_data();
  args.z.data = v.saved(1).raw_data();
  if (lstm) {
    args.i.data = v.saved(2).raw_data();
    args.f.data = v.saved(3).raw_data();
    args.bias_i = v.saved(bias_i_place).raw_data();
  }
  args.bias_f = v.saved(bias_f_place).raw_data();
  const Tensor dc = wanted(v, 0, shape, like), dz = wanted(v, 1, shape, like);
  const Tensor di = lstm ? wanted(v, 2, shape, like) : Tensor(),
               df = lstm ? wanted(v, 3, shape, like) : Tensor();
  const auto partials = [&](int input) {
    return partial_sums_of(v, input, gate_blocks(args.rows), args.width, like.dtype(), like.device());
  };
  const PartialSums bias_i = lstm ? partials(bias_i_place) : PartialSums(), bias_f = partials(bias_f_place);
  const Rows dy = rows_of(v.dy());
  if (shape.elements() > 0)
    gate_backward_slot(like.device(),
                       {args.dtype, args, gate_rows(dy), data_or_null(dc), data_or_null(dz), data_or_null(di),
                        data_or_null(df), data_or_null(bias_i.rows), data_or_null(bias_f.rows)});
  if (dc.defined()) v.sink.accumulate(0, dc);
  if (dz.defined()) v.sink.accumulate(1, dz);
  if (di.defined()) v.sink.accumulate(2, di);
  if (df.defined()) v.sink.accumulate(3, df);
  add_partial_sums({bias_i, bias_f});
}

}  // namespace

Tensor fixed_gate(const Tensor& c, const Tensor& z, const Tensor& bias, bool tanh_z) {
  if (is_bf16(c))
    return downcast(fixed_gate(upcast(c), upcast_like("fixed_gate", c, z), upcast(bias), tanh_z));
  check_state("fixed_gate", c);
  check_like_state("fixed_gate", c, z, "z");
  check_bias("fixed_gate", c, bias, "bias");

  name_value("gate", [&] { return sigmoid(bias); });
  const Rows c_rows = rows_of(c), z_rows = rows_of(z);
  const Tensor gate = raw::contiguous(bias);
  const Tensor y = Tensor::empty(c.shape(), c.dtype(), c.device());
  const GateArgs args{c.dtype(),         GateKind::fixed,   tanh_z, c_rows.rows, c_rows.width,
                      gate_rows(c_rows), gate_rows(z_rows), {},     {},          nullptr,
                      gate.raw_data(),   y.raw_data()};
  if (y.elements() > 0) gate_forward_slot(c.device(), args);
  // y = z' + (c - z') g, so dg = sum of dy (c - z') over rows, and dg/dbias = g (1 - g) in every row.
  return record("fixed_gate", {c, z, bias}, y, {c_rows.storage, z_rows.storage, gate},
                [args, shape = c.shape()](VjpContext& v) { accumulate_gradients(v, args, shape); });
}

Tensor lstm_gate(const Tensor& c, const Tensor& z, const Tensor& i, const Tensor& f, const Tensor& bias_i,
                 const Tensor& bias_f, bool tanh_z) {
  if (is_bf16(c))
    return downcast(lstm_gate(upcast(c), upcast_like("lstm_gate", c, z), upcast_like("lstm_gate", c, i),
                              upcast_like("lstm_gate", c, f), upcast(bias_i), upcast(bias_f), tanh_z));
  check_state("lstm_gate", c);
  check_like_state("lstm_gate", c, z, "z");
  check_like_state("lstm_gate", c, i, "i");
  check_like_state("lstm_gate", c, f, "f");
  check_bias("lstm_gate", c, bias_i, "bias_i");
  check_bias("lstm_gate", c, bias_f, "bias_f");

  name_value("forget_gate", [&] { return sigmoid(f + bias_f + 1.0); });
  name_value("input_gate", [&] { return sigmoid(i + bias_i - 1.0); });
  const Rows c_rows = rows_of(c), z_rows = rows_of(z), i_rows = rows_of(i), f_rows = rows_of(f);
  const Tensor input_bias = raw::contiguous(bias_i), forget_bias = raw::contiguous(bias_f);
  const Tensor y = Tensor::empty(c.shape(), c.dtype(), c.device());
  const GateArgs args{c.dtype(),
                      GateKind::lstm,
                      tanh_z,
                      c_rows.rows,
                      c_rows.width,
                      gate_rows(c_rows),
                      gate_rows(z_rows),
                      gate_rows(i_rows),
                      gate_rows(f_rows),
                      input_bias.raw_data(),
                      forget_bias.raw_data(),
                      y.raw_data()};
  if (y.elements() > 0) gate_forward_slot(c.device(), args);
  // With s = sigmoid and s' = s (1 - s):
  //   df = dy c  s'(f + bias_f + 1)
  //   di = dy z' s'(i + bias_i - 1)
  // A bias is added to every row, so its gradient is the sum over rows.
  return record("lstm_gate", {c, z, i, f, bias_i, bias_f}, y,
                {c_rows.storage, z_rows.storage, i_rows.storage, f_rows.storage, input_bias, forget_bias},
                [args, shape = c.shape()](VjpContext& v) { accumulate_gradients(v, args, shape); });
}

}  // namespace eddy
