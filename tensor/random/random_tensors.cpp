// Random tensors, and the draws of a model's initial values.
#include "tensor/random/random_tensors.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "tensor/base/format.h"
#include "tensor/random/uniform_draw.h"
#include "tensor/threads/thread_pool.h"

namespace eddy {
namespace {

constexpr std::int64_t kGrain = 1 << 13;  // random numbers to a piece of work

// The standard deviation of a standard normal that is cut off at two.
constexpr double kTruncatedDeviation = 0.8796256610342398;

std::atomic<std::uint64_t> default_seed{0}, draws{0};

void require_floating(const char* op, Dtype dtype) {
  if (!is_floating(dtype))
    fail<DtypeError>("{}: no such numbers of type {} (f32, f64 or bf16)", op, dtype_name(dtype));
}

std::vector<double> numbers_for(const Shape& shape) {
  return std::vector<double>(static_cast<std::size_t>(shape.elements()));
}

Tensor tensor_of(const std::vector<double>& values, const Shape& shape, Dtype dtype, Device device) {
  return raw::to_device(raw::cast(Tensor::from(values, shape), dtype), device);
}

}  // namespace

void manual_seed(std::uint64_t seed) {
  default_seed = seed;
  draws = 0;
}

RandomKey next_random_key() {
  return random_key(default_seed, "eddy.default_generator", draws++);
}

Tensor randn(const Shape& shape, const RandomKey& key, Dtype dtype, Device device) {
  require_floating("randn", dtype);
  std::vector<double> values = numbers_for(shape);
  fill_normal(values, key, 1);
  return tensor_of(values, shape, dtype, device);
}
Tensor randn(const Shape& shape, Dtype dtype, Device device) {
  return randn(shape, next_random_key(), dtype, device);
}

Tensor rand(const Shape& shape, const RandomKey& key, Dtype dtype, Device device) {
  require_floating("rand", dtype);
  std::vector<double> values = numbers_for(shape);
  parallel_for(shape.elements(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      values[static_cast<std::size_t>(i)] = uniform01(key.word(static_cast<std::uint64_t>(i)));
  });
  return tensor_of(values, shape, dtype, device);
}
Tensor rand(const Shape& shape, Dtype dtype, Device device) {
  return rand(shape, next_random_key(), dtype, device);
}

Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape, const RandomKey& key, Dtype dtype,
               Device device) {
  if (low >= high) fail<ValueError>("randint: from {} to below {} (the first must be smaller)", low, high);
  if (dtype != Dtype::i64 && dtype != Dtype::i32)
    fail<DtypeError>("randint: no such numbers of type {} (i64 or i32)", dtype_name(dtype));
  std::vector<std::int64_t> values(static_cast<std::size_t>(shape.elements()));
  const std::uint64_t bound = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
  parallel_for(shape.elements(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      values[static_cast<std::size_t>(i)] = static_cast<std::int64_t>(
          static_cast<std::uint64_t>(low) + uniform_below(key, static_cast<std::uint64_t>(i), bound));
  });
  return raw::to_device(raw::cast(Tensor::from(values, shape), dtype), device);
}
Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape, Dtype dtype, Device device) {
  return randint(low, high, shape, next_random_key(), dtype, device);
}

void fill_normal(std::vector<double>& values, const RandomKey& key, double deviation) {
  const auto count = std::ssize(values);
  parallel_for((count + 1) / 2, kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t pair = begin; pair < end; ++pair) {
      const Philox4 words = key.words(static_cast<std::uint64_t>(pair));
      const double radius = std::sqrt(-2.0 * std::log((words.word[0] + 0.5) * 0x1p-32));
      const double angle = 6.283185307179586476925 * (words.word[1] + 0.5) * 0x1p-32;
      const auto i = static_cast<std::size_t>(2 * pair);
      values[i] = deviation * radius * std::cos(angle);
      if (i + 1 < values.size()) values[i + 1] = deviation * radius * std::sin(angle);
    }
  });
}

void fill_truncated_normal(std::vector<double>& values, const RandomKey& key, double deviation) {
  const double widened = deviation / kTruncatedDeviation;
  std::vector<double> drawn;
  std::uint64_t draw = 0;
  for (std::size_t filled = 0; filled < values.size();) {
    drawn.resize(std::min(values.size() - filled, std::size_t{1} << 22));
    parallel_for(std::ssize(drawn), kGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const Philox4 words = key.words(draw + static_cast<std::uint64_t>(i));
        const double radius = std::sqrt(-2.0 * std::log((words.word[0] + 0.5) * 0x1p-32));
        drawn[static_cast<std::size_t>(i)] =
            radius * std::cos(6.283185307179586476925 * (words.word[1] + 0.5) * 0x1p-32);
      }
    });
    draw += drawn.size();
    for (const double value : drawn)
      if (std::abs(value) <= 2) values[filled++] = value * widened;
  }
}

void fill_uniform(std::vector<double>& values, const RandomKey& key, double limit) {
  parallel_for(std::ssize(values), kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      values[static_cast<std::size_t>(i)] =
          limit * ((key.word(static_cast<std::uint64_t>(i)) + 0.5) * 0x1p-31 - 1);
  });
}

}  // namespace eddy
