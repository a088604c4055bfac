// Random tensors, and the draws of a model's initial values.
#include "tensor/random/random_tensors.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>

#include "tensor/base/format.h"
#include "tensor/convert.h"
#include "tensor/random/uniform_draw.h"
#include "tensor/threads/thread_pool.h"

namespace eddy {
namespace {

constexpr std::int64_t kGrain =
    1 << 13;  // random numbers to a piece of work; even, since normals come in pairs

// The standard deviation of a standard normal that is cut off at two.
constexpr double kTruncatedDeviation = 0.8796256610342398;

std::atomic<std::uint64_t> default_seed{0}, draws{0};

// Returns a tensor of the type T whose numbers draw(first, count, to) writes a piece at a time, as Number.
template <class T, class Number, class Draw>
Tensor drawn_as(const Shape& shape, Device device, const Draw& draw) {
  const Tensor x = Tensor::empty(shape, dtype_of<T>);
  T* const to = x.mutable_data<T>();
  parallel_for(x.elements(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    Number numbers[kGrain];
    draw(begin, end - begin, numbers);
    for (std::int64_t i = begin; i < end; ++i) to[i] = convert<T>(numbers[i - begin]);
  });
  return raw::to_device(x, device);
}

// The same for a floating type.
template <class Draw>
Tensor drawn(const char* op, const Shape& shape, Dtype dtype, Device device, const Draw& draw) {
  if (dtype == Dtype::f32) return drawn_as<float, double>(shape, device, draw);
  if (dtype == Dtype::f64) return drawn_as<double, double>(shape, device, draw);
  if (dtype == Dtype::bf16) return drawn_as<bf16, double>(shape, device, draw);
  fail<DtypeError>("{}: no such numbers of type {} (f32, f64 or bf16)", op, dtype_name(dtype));
}

// Writes the normals first .. first + count - 1 of a key; `first` is even.
void draw_normals(const RandomKey& key, double deviation, std::int64_t first, std::int64_t count,
                  double* to) {
  for (std::int64_t i = 0; i < count; i += 2) {
    const Philox4 words = key.words(static_cast<std::uint64_t>((first + i) / 2));
    const double radius = std::sqrt(-2.0 * std::log((words.word[0] + 0.5) * 0x1p-32));
    const double angle = 6.283185307179586476925 * (words.word[1] + 0.5) * 0x1p-32;
    to[i] = deviation * radius * std::cos(angle);
    if (i + 1 < count) to[i + 1] = deviation * radius * std::sin(angle);
  }
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
  return drawn("randn", shape, dtype, device, [&](std::int64_t first, std::int64_t count, double* to) {
    draw_normals(key, 1, first, count, to);
  });
}
Tensor randn(const Shape& shape, Dtype dtype, Device device) {
  return randn(shape, next_random_key(), dtype, device);
}

Tensor rand(const Shape& shape, const RandomKey& key, Dtype dtype, Device device) {
  return drawn("rand", shape, dtype, device, [&](std::int64_t first, std::int64_t count, double* to) {
    for (std::int64_t i = 0; i < count; ++i)
      to[i] = uniform01(key.word(static_cast<std::uint64_t>(first + i)));
  });
}
Tensor rand(const Shape& shape, Dtype dtype, Device device) {
  return rand(shape, next_random_key(), dtype, device);
}

Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape, const RandomKey& key, Dtype dtype,
               Device device) {
  if (low >= high) fail<ValueError>("randint: from {} to below {} (the first must be smaller)", low, high);
  if (dtype != Dtype::i64 && dtype != Dtype::i32)
    fail<DtypeError>("randint: no such numbers of type {} (i64 or i32)", dtype_name(dtype));
  const std::uint64_t bound = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
  const auto draw = [&](std::int64_t first, std::int64_t count, std::int64_t* to) {
    for (std::int64_t i = 0; i < count; ++i)
      to[i] = static_cast<std::int64_t>(static_cast<std::uint64_t>(low) +
                                        uniform_below(key, static_cast<std::uint64_t>(first + i), bound));
  };
  return dtype == Dtype::i64 ? drawn_as<std::int64_t, std::int64_t>(shape, device, draw)
                             : drawn_as<std::int32_t, std::int64_t>(shape, device, draw);
}
Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape, Dtype dtype, Device device) {
  return randint(low, high, shape, next_random_key(), dtype, device);
}

Tensor randperm(std::int64_t n, const RandomKey& key, Device device) {
  const Tensor order = Tensor::empty({n}, Dtype::i64);
  std::int64_t* const to = order.mutable_data<std::int64_t>();
  std::iota(to, to + n, std::int64_t{0});
  for (std::int64_t i = n; i > 1; --i) {  // Fisher and Yates
    const auto bound = static_cast<std::uint64_t>(i);
    std::swap(to[i - 1], to[uniform_below(key, bound, bound)]);
  }
  return raw::to_device(order, device);
}
Tensor randperm(std::int64_t n, Device device) {
  return randperm(n, next_random_key(), device);
}

Tensor multinomial(const Tensor& weights, std::int64_t count, const RandomKey& key) {
  const std::int64_t width = weights.rank() > 0 ? weights.dim(-1) : 0;
  if (count < 1 || count > width)
    fail<ShapeError>("multinomial: {} places of {} (1 to as many as the last axis has)", count,
                     to_string(weights.shape()));
  if (!is_floating(weights.dtype()))
    fail<DtypeError>("multinomial: the weights are {} (f32, f64 or bf16)", dtype_name(weights.dtype()));
  std::vector<double> left = raw::cast(raw::to_device(weights, kCpu), Dtype::f64).to_vector<double>();
  for (const double weight : left)
    if (!(weight >= 0 && std::isfinite(weight)))
      fail<ValueError>("multinomial: a weight is {} (at least 0 and finite: softmax makes such of logits)",
                       weight);
  const Tensor places = Tensor::empty(weights.shape().with(-1, count), Dtype::i64);
  std::int64_t* const to = places.mutable_data<std::int64_t>();
  for (std::int64_t i = 0; i < places.elements(); ++i) {
    const std::span<double> row(left.data() + i / count * width, static_cast<std::size_t>(width));
    const Philox4 words = key.words(static_cast<std::uint64_t>(i));
    const double uniform = ((words.word[0] >> 5) * 0x1p26 + (words.word[1] >> 6)) * 0x1p-53;  // in [0, 1)
    const double target = uniform * std::accumulate(row.begin(), row.end(), 0.0);
    double below = 0;
    std::int64_t place = -1;
    for (std::int64_t j = 0; j < width && below <= target; ++j) {
      const double weight = row[static_cast<std::size_t>(j)];
      if (weight > 0) place = j;
      below += weight;
    }
    if (place < 0)
      fail<ValueError>("multinomial: row {} has {} numbers above 0 and {} are to be drawn", i / count,
                       i % count, count);
    to[i] = place;
    row[static_cast<std::size_t>(place)] = 0;  // without replacement
  }
  return raw::to_device(places, weights.device());
}
Tensor multinomial(const Tensor& weights, std::int64_t count) {
  return multinomial(weights, count, next_random_key());
}

void fill_normal(std::vector<double>& values, const RandomKey& key, double deviation) {
  parallel_for(std::ssize(values), kGrain, [&](std::int64_t begin, std::int64_t end) {
    draw_normals(key, deviation, begin, end - begin, values.data() + begin);
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
