// Pointwise functions of one tensor and their gradients, one kernel for each functor of
// ops/pointwise_functors.h and direction.
//
// Mapping: a thread takes four neighbouring elements at a time, as 16 bytes, where all addresses allow it,
// else one; the grid walks over the tensor. Shared memory: none. Bytes moved: each operand once, the least.
#include "cuda/install.h"
#include "cuda/launch.cuh"
#include "ops/pointwise.h"
#include "ops/pointwise_functors.h"

namespace eddy::cuda {
namespace {

using namespace pointwise;

struct UnaryLaunch {
  std::int64_t elements;
  std::int64_t fours;  // groups of four at the front; what is left goes one by one
  const float *x, *dy;
  float* y;
};

template <class Op>
__global__ void forward_kernel(UnaryLaunch args) {
  for (std::int64_t i = first_item(); i < args.fours; i += item_step()) {
    const Four x = reinterpret_cast<const Four*>(args.x)[i];
    Four y;
    for (int j = 0; j < 4; ++j) y.at[j] = Op::forward(x.at[j]);
    reinterpret_cast<Four*>(args.y)[i] = y;
  }
  for (std::int64_t i = 4 * args.fours + first_item(); i < args.elements; i += item_step())
    args.y[i] = Op::forward(args.x[i]);
}

template <class Op>
__global__ void backward_kernel(UnaryLaunch args) {
  for (std::int64_t i = first_item(); i < args.fours; i += item_step()) {
    const Four saved = reinterpret_cast<const Four*>(args.x)[i],
               dy = reinterpret_cast<const Four*>(args.dy)[i];
    Four dx;
    for (int j = 0; j < 4; ++j) dx.at[j] = Op::vjp(dy.at[j], saved.at[j]);
    reinterpret_cast<Four*>(args.y)[i] = dx;
  }
  for (std::int64_t i = 4 * args.fours + first_item(); i < args.elements; i += item_step())
    args.y[i] = Op::vjp(args.dy[i], args.x[i]);
}

void run(const char* name, void (*kernel)(UnaryLaunch), const UnaryArgs& args) {
  const bool by_four = aligned(args.x) && aligned(args.dy) && aligned(args.y);
  const UnaryLaunch launched{args.elements, by_four ? args.elements / 4 : 0,
                             static_cast<const float*>(args.x), static_cast<const float*>(args.dy),
                             static_cast<float*>(args.y)};
  launch(name, kernel, grid_for(args.elements, kThreads * (by_four ? 4 : 1)), kThreads, launched);
}

// Finds the op by its place in the list.
template <class... Ops>
void forward(const UnaryArgs& args, OpList<Ops...>) {
  int place = 0;
  ((place++ == args.op ? run(Ops::kName, forward_kernel<Ops>, args) : void()), ...);
}
template <class... Ops>
void backward(const UnaryArgs& args, OpList<Ops...>) {
  int place = 0;
  ((place++ == args.op ? run(Ops::kName, backward_kernel<Ops>, args) : void()), ...);
}

}  // namespace

void install_pointwise_unary() {
  unary_forward_slot.function[static_cast<int>(DeviceType::cuda)] = [](const UnaryArgs& args) {
    require_f32("pointwise", args.dtype);
    forward(args, UnaryOps{});
  };
  unary_backward_slot.function[static_cast<int>(DeviceType::cuda)] = [](const UnaryArgs& args) {
    require_f32("pointwise", args.dtype);
    backward(args, UnaryOps{});
  };
}

}  // namespace eddy::cuda
