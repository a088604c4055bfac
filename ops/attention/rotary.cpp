// Checks, the table of angles and the gradient of the rotary embedding.
#include "ops/attention/rotary.h"

#include <cmath>
#include <mutex>
#include <vector>

#include "autograd/tape.h"
#include "ops/cast/upcast.h"
#include "ops/core/capture.h"
#include "ops/core/checks.h"
#include "tensor/base/format.h"

namespace eddy {

using namespace detail;

namespace {

constexpr std::int64_t kLastPosition = std::int64_t{1} << 52;  // up to here an f64 holds every position

// The table [positions, 2, 2 pairs] of RotaryArgs.
Tensor make_turns(std::int64_t first_position, std::int64_t positions, std::int64_t pairs, double theta,
                  Dtype dtype, Device device) {
  const Tensor table = Tensor::empty({positions, 2, 2 * pairs}, Dtype::f64);
  double* const turns = table.mutable_data<double>();
  std::vector<double> frequencies;
  for (std::int64_t i = 0; i < pairs; ++i)
    frequencies.push_back(std::pow(theta, -static_cast<double>(i) / static_cast<double>(pairs)));
  for (std::int64_t t = 0; t < positions; ++t) {
    double* const cosines = turns + t * 4 * pairs;
    double* const sines = cosines + 2 * pairs;
    for (std::int64_t i = 0; i < pairs; ++i) {
      const double angle = static_cast<double>(first_position + t) * frequencies[static_cast<std::size_t>(i)];
      cosines[2 * i] = cosines[2 * i + 1] = std::cos(angle);
      sines[2 * i + 1] = std::sin(angle);
      sines[2 * i] = -sines[2 * i + 1];
    }
  }
  return raw::to_device(dtype == Dtype::f64 ? table : raw::cast(table, dtype), device);
}

// A model rotates queries and keys of every layer by the same angles. Computing sines and cosines would take
// a tenth of a call's time, so tables from position 0 on are cached.
struct KeptTurns {
  std::int64_t pairs;
  double theta;
  Tensor table;
};
constexpr std::int64_t kCachedElements = 1 << 21;  // the largest table that is cached: 8 MiB of f32
constexpr std::size_t kCachedTables = 8;           // the oldest is dropped

struct Kept {
  std::mutex mutex;
  std::vector<KeptTurns> tables;
};
// Never destroyed: its tensors must not outlive the allocator at the end of the program.
Kept& the_kept() {
  static Kept& kept = *new Kept;
  return kept;
}

// The rows first_position .. first_position + time - 1 of the table.
Tensor turns_of(std::int64_t first_position, std::int64_t time, std::int64_t pairs, double theta, Dtype dtype,
                Device device) {
  const std::int64_t end = first_position + time;
  std::int64_t capacity = 64;
  while (capacity < end && capacity * 4 * pairs <= kCachedElements) capacity *= 2;
  if (capacity < end || capacity * 4 * pairs > kCachedElements)
    return make_turns(first_position, time, pairs, theta, dtype, device);

  const std::lock_guard lock(the_kept().mutex);
  std::vector<KeptTurns>& kept = the_kept().tables;
  for (auto entry = kept.begin(); entry != kept.end(); ++entry) {
    if (entry->pairs != pairs || entry->theta != theta || entry->table.dtype() != dtype ||
        entry->table.device() != device)
      continue;
    if (entry->table.dim(0) >= end) {
      keep_for_capture(entry->table);  // the cache may drop it while captured work still reads it
      return raw::narrow(entry->table, 0, first_position, time);
    }
    if (!capturing()) kept.erase(entry);
    break;
  }
  // A table uploaded during capture has its values only after a replay, so other calls must not use it.
  if (capturing()) return make_turns(first_position, time, pairs, theta, dtype, device);
  if (kept.size() == kCachedTables) kept.erase(kept.begin());
  kept.push_back({pairs, theta, make_turns(0, capacity, pairs, theta, dtype, device)});
  return raw::narrow(kept.back().table, 0, first_position, time);
}

// y = beta y + x rotated; x [batch, time, heads, head_size] with last stride 1, y row-major.
void run_rotary(const Tensor& x, const Tensor& turns, bool back, const Tensor& y, float beta) {
  if (x.elements() == 0) return;
  const std::int64_t* const strides = x.strides();
  rotary_slot(x.device(), {x.dtype(), x.dim(0), x.dim(1), x.dim(2), x.dim(3) / 2, x.raw_data(), strides[0],
                           strides[1], strides[2], turns.raw_data(), back, y.raw_data(), beta});
}

Tensor with_adjacent_entries(const Tensor& x) {
  return x.strides()[3] == 1 ? x : raw::contiguous(x);
}

}  // namespace

void clear_rotary_cache() {
  const std::lock_guard lock(the_kept().mutex);
  the_kept().tables.clear();
}

Tensor rotary_bthd(const Tensor& x, std::int64_t first_position, double theta) {
  if (must_upcast(x)) return downcast(rotary_bthd(upcast(x), first_position, theta));
  checks::floating("rotary_bthd", x);
  if (x.rank() != 4)
    fail<ShapeError>("rotary_bthd: input {} has {} axes (4: [batch, time, heads, head_size])",
                     to_string(x.shape()), x.rank());
  if (x.dim(3) % 2 != 0)
    fail<ShapeError>("rotary_bthd: head_size {} of input {} is odd (entries turn in pairs)", x.dim(3),
                     to_string(x.shape()));
  if (first_position < 0 || first_position > kLastPosition - x.dim(1))
    fail<ValueError>("rotary_bthd: positions from {} for {} rows (0 or more, below 2^52)", first_position,
                     x.dim(1));
  if (!(theta > 0) || !std::isfinite(theta))
    fail<ValueError>("rotary_bthd: theta is {} (finite and above 0)", theta);

  const Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  const Tensor turns = x.elements() == 0 ? Tensor()
                                         : turns_of(first_position, x.dim(1), x.dim(3) / 2, theta,
                                                    compute_dtype(x), x.device());
  run_rotary(with_adjacent_entries(x), turns, false, y, 0);
  // A rotation is orthogonal: its transpose, which takes dy to dx, is the rotation by the negative angle.
  return record("rotary_bthd", {x}, y, {turns}, [](VjpContext& v) {
    const Tensor dy = with_adjacent_entries(v.dy());
    v.sink.into(0, [&](const Tensor& dx, float beta) { run_rotary(dy, v.saved(0), true, dx, beta); });
  });
}

}  // namespace eddy
