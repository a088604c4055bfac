// Errors that the emulated GPU must detect: each case breaks a rule in a process of its own and checks the
// report.
#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "cuda/core/shared_launch.cuh"
#include "cuda/runtime/context.h"
#include "cuda/runtime/gemm.h"
#include "ops/product/gemm.h"
#include "tensor/base/error.h"
#include "tensor/transfer.h"
#include "tests/gpu/support/gpu_test.h"
#include "tests/support/processes.h"

using namespace eddy;
using namespace eddy::detail;
using namespace eddy::gpu_test;

namespace {

// Returns what `work` prints before it ends its process, or "ended well".
template <class Work>
std::string report_of(Work&& work) {
  cuda::synchronize();
  return test::report_of(work);
}

struct Floats {
  const float* from;
  float* to;
  std::int64_t count;
};

void past_the_end_kernel(Floats args) {
  args.to[threadIdx.x] = args.from[threadIdx.x + 1];
}

void some_at_the_barrier_kernel(Floats) {
  if (threadIdx.x < 40) __syncthreads();
}

void some_at_the_shuffle_kernel(Floats args) {
  if (threadIdx.x != 5) args.to[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1.0f, 1);
}

void shared_past_the_end_kernel(Floats args) {
  cuda::shared_memory()[threadIdx.x] = args.from[threadIdx.x];
}

// Reverses a row of 256 numbers through shared memory. Without the barrier a thread reads before its partner
// has written.
template <bool Waits>
void turn_around_kernel(Floats args) {
  float* const row = cuda::shared_memory();
  row[threadIdx.x] = args.from[threadIdx.x];
  if (Waits) __syncthreads();
  args.to[threadIdx.x] = row[255 - threadIdx.x];
}

}  // namespace

TEST_SUITE("device") {
  TEST_CASE("a thread that reads behind the end of a tensor is reported with its kernel and its place") {
    const Tensor from = to_gpu(Tensor::full({64}, 1)), to = Tensor::empty({64}, Dtype::f32, gpu());
    const std::string text = report_of([&] {
      cuda::launch("past_the_end", past_the_end_kernel, 1, 64,
                   {from.data<float>(), to.mutable_data<float>(), 64});
      cuda::synchronize();
    });
    CHECK_MESSAGE(text.find("in kernel past_the_end, block 0 of 1, thread 63 of 64") != std::string::npos,
                  text);
    CHECK_MESSAGE(text.find("byte 256 of a block of 256 bytes") != std::string::npos, text);
  }

  TEST_CASE("threads that wait for one that does not come are reported") {
    const Tensor x = Tensor::zeros({64}, Dtype::f32, gpu());
    const auto text_of = [&](const char* name, void (*kernel)(Floats)) {
      return report_of([&] {
        cuda::launch(name, kernel, 1, 64, {x.data<float>(), x.mutable_data<float>(), 64});
        cuda::synchronize();
      });
    };
    std::string text = text_of("some_at_the_barrier", some_at_the_barrier_kernel);
    CHECK_MESSAGE(text.find("of 64, 24 have ended, 40 wait at a barrier, 0 in a warp") != std::string::npos,
                  text);
    text = text_of("some_at_the_shuffle", some_at_the_shuffle_kernel);
    CHECK_MESSAGE(text.find("of 64, 33 have ended, 0 wait at a barrier, 31 in a warp") != std::string::npos,
                  text);
  }

  TEST_CASE("a write behind the shared memory of a launch is reported") {
    const Tensor x = Tensor::zeros({64}, Dtype::f32, gpu());
    const std::string text = report_of([&] {
      cuda::launch_shared("shared_past_the_end", shared_past_the_end_kernel, 1, 64, 63 * 4,
                          {x.data<float>(), nullptr, 64});
      cuda::synchronize();
    });
    CHECK_MESSAGE(text == "ended well", "63 numbers are rounded up to 64: ", text);
    const std::string beyond = report_of([&] {
      cuda::launch_shared("shared_past_the_end", shared_past_the_end_kernel, 1, 64, 60 * 4,
                          {x.data<float>(), nullptr, 64});
      cuda::synchronize();
    });
    CHECK_MESSAGE(beyond.find("in kernel shared_past_the_end") != std::string::npos, beyond);
  }

  TEST_CASE("the host cannot read the memory of the emulated GPU") {
    const Tensor x = Tensor::zeros({64}, Dtype::f32, gpu());
    const std::string text = report_of([&] {
      const volatile float* const numbers = x.data<float>();
      _exit(numbers[3] == 0 ? 0 : 1);
    });
    CHECK(text != "ended well");
  }

  TEST_CASE("memory holds NaN before it is written") {
    const std::vector<float> values = to_cpu(Tensor::empty({100}, Dtype::f32, gpu())).to_vector<float>();
    for (const float value : values) CHECK(std::isnan(value));
  }

  TEST_CASE("a missing barrier between a write and a read of shared memory gives wrong numbers") {
    std::vector<float> numbers(256);
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
    const std::vector<float> turned(numbers.rbegin(), numbers.rend());
    const Tensor from = to_gpu(Tensor::from(numbers, {256})), to = Tensor::empty({256}, Dtype::f32, gpu());
    const auto run = [&](void (*kernel)(Floats)) {
      cuda::launch_shared("turn_around", kernel, 3, 256, 1024,
                          {from.data<float>(), to.mutable_data<float>(), 256});
      return to_cpu(to).to_vector<float>();
    };
    CHECK(run(turn_around_kernel<true>) == turned);
    CHECK(run(turn_around_kernel<false>) != turned);
  }

  TEST_CASE("enqueued work runs late and reads pinned memory as it is then") {
    void* pinned = nullptr;
    REQUIRE(cudaHostAlloc(&pinned, 4, cudaHostAllocDefault) == cudaSuccess);
    const Tensor x = Tensor::zeros({1}, Dtype::f32, gpu());
    *static_cast<float*>(pinned) = 1;
    cudaMemcpyAsync(x.raw_data(), pinned, 4, cudaMemcpyHostToDevice, cuda::stream());
    *static_cast<float*>(pinned) = 2;
    CHECK(to_cpu(x).item() == 2);
    float pageable = 3;
    cudaMemcpyAsync(x.raw_data(), &pageable, 4, cudaMemcpyHostToDevice, cuda::stream());
    pageable = 4;
    CHECK(to_cpu(x).item() == 3);
    cudaFreeHost(pinned);
  }

  TEST_CASE("asking what GPUs there are leaves the current one as it is") {
    const Tensor x = to_gpu(Tensor::full({4}, 1));
    emulation::show_devices(3);
    CHECK(cuda_status().find("Emulated GPU, 16 GiB, 1 multiprocessors; Emulated GPU") != std::string::npos);
    CHECK(emulation::current_device() == 0);
    CHECK(to_cpu(raw::add(x, x)).to_vector<float>() == std::vector<float>(4, 2.0f));
    const std::string text = report_of([&] {
      cudaSetDevice(2);
      raw::add_into(x, x);
    });
    CHECK_MESSAGE(text.find("while GPU 2 is current") != std::string::npos, text);
    emulation::show_devices(1);
  }

  TEST_CASE("the first product gives back what is cached and then says what it lacks") {
    const Tensor a = to_gpu(Tensor::full({4, 4}, 1)), to = Tensor::zeros({4, 4}, Dtype::f32, gpu());
    GemmArgs args{};
    args.m = args.n = args.k = args.lda = args.ldb = args.ldc = 4;
    args.a = args.b = a.raw_data();
    args.c = to.raw_data();
    cuda::forget_product_plans();
    emulation::refuse_memory(2);
    CHECK_THROWS_WITH_AS(gemm_slot(gpu(), args),
                         doctest::Contains("33554432 bytes could not be had on cuda:0"), OutOfMemoryError);
    emulation::refuse_memory(1);
    gemm_slot(gpu(), args);
    CHECK(to_cpu(to).to_vector<float>() == std::vector<float>(16, 4.0f));
  }

  TEST_CASE("a captured graph runs at every launch and not before, and a wait invalidates the capture") {
    const Tensor x = Tensor::zeros({4}, Dtype::f32, gpu()), one = to_gpu(Tensor::full({4}, 1));
    cuda::synchronize();
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    REQUIRE(cudaStreamBeginCapture(cuda::stream(), cudaStreamCaptureModeGlobal) == cudaSuccess);
    raw::add_into(x, one);
    REQUIRE(cudaStreamEndCapture(cuda::stream(), &graph) == cudaSuccess);
    REQUIRE(cudaGraphInstantiate(&exec, graph) == cudaSuccess);
    CHECK(to_cpu(x).to_vector<float>() == std::vector<float>(4, 0.0f));
    for (int i = 0; i < 3; ++i) cudaGraphLaunch(exec, cuda::stream());
    CHECK(to_cpu(x).to_vector<float>() == std::vector<float>(4, 3.0f));
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    REQUIRE(cudaStreamBeginCapture(cuda::stream(), cudaStreamCaptureModeGlobal) == cudaSuccess);
    CHECK(cudaStreamSynchronize(cuda::stream()) == cudaErrorStreamCaptureUnsupported);
    CHECK(cudaStreamEndCapture(cuda::stream(), &graph) == cudaErrorStreamCaptureInvalidated);
  }
}
