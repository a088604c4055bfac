// Checkpointing: memory for time. The forward pass keeps the inputs of a function and none of what it
// computes inside; the backward pass computes it again, this time with a graph, and runs that graph at once.
// Source: Chen, Xu, Zhang, Guestrin, "Training deep nets with sublinear memory cost" (arXiv 1604.06174),
// section 3.
#pragma once

#include <functional>
#include <vector>

#include "autograd/tape.h"

namespace eddy {

// The results of fn(inputs), with a node that recomputes them. fn runs twice and must compute the same both
// times: random numbers by key, nothing written in place, no SeqBuffer::append.
// grad: the same bits as without the checkpoint. Inputs may be untracked, of any dtype, or undefined. Leaves
// that fn captures (parameters) get their gradient as usual. As they cannot be seen from outside, the node is
// left whenever recording is on, so floating results always count as tracked; when nothing in fn wants a
// gradient, backward does nothing there.
// errors: in the forward pass ValueError for an undefined result, GraphError when fn wrote to an input; in
// the backward pass VersionError when an input was overwritten since, GraphError when fn uses a tracked
// result that is not among the inputs, or gives other shapes the second time.
std::vector<Tensor> checkpoint(std::function<std::vector<Tensor>(const std::vector<Tensor>&)> fn,
                               const std::vector<Tensor>& inputs);
// The same for a function with one result.
Tensor checkpoint(std::function<Tensor(const std::vector<Tensor>&)> fn, const std::vector<Tensor>& inputs);

}  // namespace eddy
