// The table of positions rounded to bf16, and the products with it (cuda/attention/position_products.h).
//
//   mapping        a thread for every two numbers of the table
//   shared memory  none
//   bytes moved    6 a number, the least
#include "cuda/attention/position_products.h"

#include "cuda/core/launch.cuh"
#include "cuda/core/warp_matrix.cuh"
#include "cuda/runtime/gemm.h"

namespace eddy::cuda {
namespace {

struct TableLaunch {
  const float* from;  // [distances, head_size], rows `stride` apart
  std::uint32_t* to;  // [rows, head_size], two numbers each
  std::int64_t stride, distances, pairs, all;
};

__global__ void round_table_kernel(TableLaunch launched) {
  for (std::int64_t i = first_item(); i < launched.all; i += item_step()) {
    const std::int64_t row = i / launched.pairs;
    const float* const from = launched.from + row * launched.stride + i % launched.pairs * 2;
    launched.to[i] = row < launched.distances ? pack(from[0], from[1]) : 0u;
  }
}

Device this_gpu() {
  return {DeviceType::cuda, device_index()};
}

// A product of each head's rows of q, dq or scores, whose rows of all sequences follow one another.
GemmArgs product_of_heads(const AttentionArgs& args, std::int64_t m, std::int64_t n, std::int64_t k) {
  GemmArgs product{};
  product.dtype = Dtype::bf16;
  product.m = m;
  product.n = n;
  product.k = k;
  product.batch = args.heads;
  return product;
}

}  // namespace

PositionProducts::PositionProducts(const AttentionArgs& args)
    : row_(position_row(args)),
      table_(Tensor::empty({row_, args.head_size}, Dtype::bf16, this_gpu())),
      scores_(Tensor::empty({args.heads, args.batch * args.queries, row_}, Dtype::bf16, this_gpu())) {
  const std::int64_t pairs = args.head_size / 2;
  launch("attention_round_positions", round_table_kernel, grid_for(row_ * pairs, kThreads), kThreads,
         {static_cast<const float*>(args.positions), static_cast<std::uint32_t*>(table_.raw_data()),
          args.positions_stride, args.distances, pairs, row_ * pairs});
  GemmArgs product = product_of_heads(args, args.batch * args.queries, row_, args.head_size);
  product.transpose_b = true;
  product.a = args.q;
  product.lda = args.q_strides.time;
  product.stride_a = args.q_strides.head;
  product.b = table_.raw_data();
  product.ldb = args.head_size;
  product.c = scores_.raw_data();
  product.ldc = row_;
  product.stride_c = args.batch * args.queries * row_;
  gemm(product);
}

Tensor PositionProducts::gradients() const {
  return Tensor::empty(scores_.shape(), scores_.dtype(), scores_.device());
}

void PositionProducts::add_gradients(const AttentionBackwardArgs& args, const Tensor& gradients) const {
  const AttentionArgs& forward = args.forward;
  const std::int64_t rows = forward.batch * forward.queries, of_head = rows * row_;
  if (args.dq != nullptr) {
    const AttentionStrides& dq = args.dq_strides;
    GemmArgs product = product_of_heads(forward, rows, forward.head_size, row_);
    product.a = gradients.raw_data();
    product.lda = row_;
    product.stride_a = of_head;
    product.b = table_.raw_data();
    product.ldb = forward.head_size;
    product.c = args.dq;
    product.ldc = dq.time;
    product.stride_c = dq.head;
    product.beta = 1;
    if (forward.batch > 1 && dq.batch != forward.queries * dq.time) {
      product.m = forward.queries;
      product.outer = forward.batch;
      product.outer_a = forward.queries * row_;
      product.outer_c = dq.batch;
    }
    gemm(product);
  }
  if (args.dpositions == nullptr) return;
  GemmArgs product = product_of_heads(forward, forward.distances, forward.head_size, rows);
  product.transpose_a = true;
  product.c_f32 = true;
  product.a = gradients.raw_data();
  product.lda = row_;
  product.stride_a = of_head;
  product.b = forward.q;
  product.ldb = forward.q_strides.time;
  product.stride_b = forward.q_strides.head;
  product.c = args.dpositions;
  product.ldc = args.dpositions_stride;
  product.stride_c = args.dpositions_part;
  product.beta = 1;
  gemm(product);
}

}  // namespace eddy::cuda
