// Checks and gradient of the LSTM cell.
#include "ops/recurrence/lstm_cell.h"

#include "autograd/named_values.h"
#include "autograd/tape.h"
#include "ops/cast/upcast.h"
#include "ops/core/checks.h"
#include "ops/core/rows.h"
#include "ops/pointwise/pointwise.h"
#include "ops/views/views.h"
#include "tensor/base/format.h"

namespace eddy {

using namespace detail;

LstmCell lstm_cell(const Tensor& gates, const Tensor& c) {
  if (is_bf16(gates)) {
    const LstmCell next = lstm_cell(upcast(gates), upcast_like("lstm_cell", gates, c));
    return {downcast(next.h), downcast(next.c)};
  }
  checks::floating("lstm_cell", gates, "gates");
  checks::defined("lstm_cell", c, "c");
  checks::same_kind("lstm_cell", gates, c);
  if (c.rank() != 2)
    fail<ShapeError>("lstm_cell: c {} has {} axes (2: [batch, hidden])", to_string(c.shape()), c.rank());
  if (gates.shape() != Shape{c.dim(0), 4 * c.dim(1)})
    fail<ShapeError>("lstm_cell: gates {} for c {} ([batch, 4 hidden]: [{}, {}])", to_string(gates.shape()),
                     to_string(c.shape()), c.dim(0), 4 * c.dim(1));

  constexpr const char* kGates[] = {"input_gate", "forget_gate", nullptr, "output_gate"};
  for (std::int64_t part = 0; part < 4; ++part)
    if (kGates[part] != nullptr)
      name_value(kGates[part], [&] { return sigmoid(narrow(gates, 1, part * c.dim(1), c.dim(1))); });
  const Rows gate_rows = rows_of(gates), c_rows = rows_of(c);
  const LstmCell next{Tensor::empty(c.shape(), c.dtype(), c.device()),
                      Tensor::empty(c.shape(), c.dtype(), c.device())};
  if (c.elements() > 0)
    lstm_cell_forward_slot(c.device(), {c.dtype(), c.dim(0), c.dim(1), gate_rows.data(), gate_rows.stride,
                                        c_rows.data(), c_rows.stride, next.h.raw_data(), next.c.raw_data()});
  // The gradients are in the header. Recomputing the gates' values is cheaper than saving them.
  record_many(
      "lstm_cell", {gates, c}, {next.h, next.c}, {gate_rows.storage, c_rows.storage, next.c},
      [gates_stride = gate_rows.stride, c_stride = c_rows.stride](VjpContext& v) {
        const Tensor& c_next = v.saved(2);
        const std::int64_t batch = c_next.dim(0), hidden = c_next.dim(1);
        const auto wanted = [&](int k, std::int64_t width) {
          return v.sink.needs(k) ? Tensor::empty({batch, width}, c_next.dtype(), c_next.device()) : Tensor();
        };
        const Tensor dgates = wanted(0, 4 * hidden), dc = wanted(1, hidden);
        const Rows dh = v.dy(0).defined() ? rows_of(v.dy(0)) : Rows();
        const Rows dc_next = v.dy(1).defined() ? rows_of(v.dy(1)) : Rows();
        if (c_next.elements() > 0)
          lstm_cell_backward_slot(
              c_next.device(),
              {c_next.dtype(), batch, hidden, v.saved(0).raw_data(), gates_stride, v.saved(1).raw_data(),
               c_stride, c_next.raw_data(), data_or_null(dh.storage), dh.stride,
               data_or_null(dc_next.storage), dc_next.stride, data_or_null(dgates), data_or_null(dc)});
        if (dgates.defined()) v.sink.accumulate(0, dgates);
        if (dc.defined()) v.sink.accumulate(1, dc);
      });
  return next;
}

}  // namespace eddy
