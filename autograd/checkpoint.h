// Checkpointing saves memory at the cost of time. The forward pass keeps the inputs of a function but not its
// intermediate results. The backward pass recomputes those, records a graph, and runs that graph at once.
// Source: Chen, Xu, Zhang, Guestrin, "Training deep nets with sublinear memory cost" (arXiv 1604.06174),
// section 3.
#pragma once

#include <functional>
#include <vector>

#include "autograd/tape.h"

namespace eddy {

// Returns fn(inputs), recorded as one node whose backward recomputes them. fn runs twice and must compute the
// same both times: it draws random numbers by key or by dropout(x, p), which draws the same again, writes nothing in
// place and appends to no SeqBuffer that it did not make. What it captures must live until then. Inputs may be
// untracked, of any dtype, or undefined. fn may also capture
// leaves (parameters) and results computed before, which the checkpoint cannot see. So it records a node whenever
// recording is on, and floating results are tracked.
// grad: bit-identical to the gradient without the checkpoint, if each result is returned once. Captured leaves and
// results get their gradients as usual. If nothing in fn needs a gradient, the backward of the node does nothing.
// errors: in the forward pass ValueError for an undefined result, GraphError if fn wrote to an input; in the
// backward pass VersionError if an input was overwritten since (captured tensors are not checked), GraphError if fn
// uses a result that was computed after it first ran, or returns other shapes the second time.
std::vector<Tensor> checkpoint(std::function<std::vector<Tensor>(const std::vector<Tensor>&)> fn,
                               const std::vector<Tensor>& inputs);
// The same for a function with one result.
Tensor checkpoint(std::function<Tensor(const std::vector<Tensor>&)> fn, const std::vector<Tensor>& inputs);

}  // namespace eddy
