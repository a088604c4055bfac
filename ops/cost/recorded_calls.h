// The products and the attention of a step, recorded, and run again with nothing between them: the time that they take
// alone. Where they ran, in a step, other kernels stand between them.
//
//   RecordCalls        keeps the arguments of the calls that run while it exists
//   RepeatedCalls      runs such calls again, in memory of its own
#pragma once

#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "ops/attention/attention.h"
#include "ops/core/cost.h"
#include "ops/product/gemm.h"
#include "tensor/tensor.h"

namespace eddy {

// A product, a call of attention, or its gradient.
using RecordedCall = std::variant<detail::GemmArgs, detail::AttentionArgs, detail::AttentionBackwardArgs>;

inline bool is_product(const RecordedCall& call) {
  return std::holds_alternative<detail::GemmArgs>(call);
}
// Returns its least work (kernel_costs.h).
Cost cost_of(const RecordedCall& call);

// While alive, keeps the calls that go through the slots of a device, those that another kernel makes included. Only
// one may exist in the process. An ObserveKernels is made after it and ends before it.
class RecordCalls {
 public:
  explicit RecordCalls(Device device);
  ~RecordCalls();
  RecordCalls(const RecordCalls&) = delete;
  RecordCalls& operator=(const RecordCalls&) = delete;

  // Returns the calls so far, in their order.
  std::vector<RecordedCall> take();

 private:
  Device device_;
};

// Calls in memory of their own, in which operands lie to each other as they lay when they were recorded: what one call
// reads after another is in the same caches as far as the calls alone decide. Recorded addresses are not read, so what
// was there may be gone. What calls read is normally distributed and stays so, however often they run; what they write
// lies apart. Only attention's gradient reads what attention wrote.
class RepeatedCalls {
 public:
  // errors: OutOfMemoryError.
  RepeatedCalls(std::vector<RecordedCall> calls, Device device);

  // Runs all of them in their order; on a GPU it does not wait.
  void run() const;

 private:
  std::vector<RecordedCall> calls_;
  Device device_;
  Tensor read_, written_;
};

}  // namespace eddy
