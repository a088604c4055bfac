// A workload for measuring the packed product: the five weight products of one step of a recurrent
// transformer of width 384 and feed-forward width 1536 (keys, values, output, up, down: 7.7 MB in f32, more
// than the second-level cache of current processors), repeated as over a sequence. It reads no clock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "ops/product/packed_gemm.h"
#include "tensor/memory/allocator.h"

namespace eddy {

class PackedGemmCycle {
 public:
  // Packs made-up weights for products with at most `rows` rows.
  // errors: OutOfMemoryError.
  explicit PackedGemmCycle(std::int64_t rows) : rows_(rows), gemm_(packed_gemm_kernels().f32) {
    std::int64_t elements = 0;
    for (const Sizes& sizes : kSizes) elements += gemm_.packed_elements(sizes.inner, sizes.columns);
    packed_ = Floats(elements);
    input_ = Floats(rows * kWidest);
    output_ = Floats(rows * kWidest);
    for (std::int64_t i = 0; i < elements; ++i) packed_.data[i] = made_up(i);
    for (std::int64_t i = 0; i < rows * kWidest; ++i) input_.data[i] = made_up(i);
  }

  // One step on one thread.
  void run() {
    const float* packed = packed_.data;
    for (const Sizes& sizes : kSizes) {
      gemm_.multiply(rows_, sizes.inner, sizes.columns, 0, gemm_.panels(sizes.columns), input_.data,
                     sizes.inner, packed, output_.data, sizes.columns, false);
      packed += gemm_.packed_elements(sizes.inner, sizes.columns);
    }
  }

  // Floating-point operations of one step.
  double flops() const {
    double count = 0;
    for (const Sizes& sizes : kSizes) count += 2.0 * static_cast<double>(rows_ * sizes.inner * sizes.columns);
    return count;
  }
  // Bytes of weights that one step reads at least once.
  double weight_bytes() const { return flops() / static_cast<double>(2 * rows_) * sizeof(float); }

 private:
  struct Sizes {
    std::int64_t inner, columns;
  };
  static constexpr std::array<Sizes, 5> kSizes{
      {{768, 384}, {768, 384}, {384, 384}, {384, 1536}, {1536, 384}}};
  static constexpr std::int64_t kWidest = 1536;

  // Floats from the CPU allocator, which gives huge pages: with small ones the stream of weights waits for
  // page walks.
  struct Floats {
    Floats() = default;
    explicit Floats(std::int64_t count)
        : bytes(static_cast<std::size_t>(count) * sizeof(float)),
          data(static_cast<float*>(allocator(kCpu).allocate(bytes))) {}
    Floats(const Floats&) = delete;
    Floats& operator=(Floats&& other) noexcept {
      std::swap(bytes, other.bytes);
      std::swap(data, other.data);
      return *this;
    }
    ~Floats() {
      if (data != nullptr) allocator(kCpu).deallocate(data, bytes);
    }
    std::size_t bytes = 0;
    float* data = nullptr;
  };

  // Small numbers of both signs: no denormals, no overflow.
  static float made_up(std::int64_t i) { return static_cast<float>(i * 7919 % 1009 - 504) * 1e-3f; }

  std::int64_t rows_;
  PackedGemm<float> gemm_;
  Floats packed_, input_, output_;
};

}  // namespace eddy
