// Exercise 20: softmax as a CUDA kernel
//
// softmax of the rows of a matrix. A block of 256 threads computes one row: thread t takes the columns t, t + 256,
// t + 512, ... Shared memory is what the threads of a block have in common, and __syncthreads() is where each waits for
// all others. You need no GPU: the check runs every thread of the kernel on the host, in random order, so a missing
// barrier gives wrong numbers.
//
//   own     = the largest of this thread's columns        every thread
//   shared[t] = own, then a tree: 128 pairs, 64, ... 1    a barrier before each level
//   largest = shared[0]                                   every thread
//   the same for the sum of exp(x - largest), then y = exp(x - largest) / sum
//
// In Eddy: cuda/core/team.cuh, which combines the threads of a warp by shuffles.
#include <cuda_runtime.h>

#include <cstdint>

struct Rows {
  const float* x;  // [rows, width]
  float* y;
  std::int64_t width;  // at least 1
};

constexpr int kThreads = 256;

// The sum of a number of each thread, or the largest of them; every thread gets it. All threads must call it.
__device__ float sum_of_block(float own) {
  __shared__ float shared[kThreads];
  shared[threadIdx.x] = own;
  return shared[0];  // your code
}
__device__ float largest_of_block(float own) {
  __shared__ float shared[kThreads];
  shared[threadIdx.x] = own;
  return shared[0];  // your code
}

__global__ void softmax_kernel(Rows args) {
  const float* x = args.x + blockIdx.x * args.width;
  float* y = args.y + blockIdx.x * args.width;
  // your code
  for (std::int64_t i = threadIdx.x; i < args.width; i += kThreads) y[i] = x[i];
}
