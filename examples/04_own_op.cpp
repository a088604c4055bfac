// Example 4: an op of your own, outside the library: kernel, public function, gradient, samples, checks. It
// is the squared distance of rows:
//
//   d[n]     = sum over i of (a[n, i] - b[n, i])^2
//   da[n, i] = 2 dd[n] (a[n, i] - b[n, i])
//   db       = -da
//
// An op of the library has the same parts in separate files; ops/README.md says which. Read beside it:
// ops/core/slot.h, ops/core/op_spec.h, autograd/node.h (GradSink), ops/norm/unit_norm.cpp.
#include <cmath>
#include <cstdio>
#include <exception>
#include <vector>

#include "autograd/gradcheck.h"
#include "autograd/tape.h"
#include "ops/core/checks.h"
#include "ops/core/op_spec.h"
#include "ops/core/slot.h"
#include "tensor/threads/thread_pool.h"

using namespace eddy;
namespace {

// 1. The arguments of a kernel: plain pointers and sizes. A kernel never allocates, checks or throws.
struct Args {
  bool is_f32;  // else f64
  std::int64_t rows, width;
  const void *a, *b;  // [rows, width]
  const void* dd;     // [rows]; gradient only
  void* out;          // forward: d [rows]; gradient: out [rows, width] = beta out + da
  float beta;
};
constinit Slot<Args> forward_slot{"squared_distance_forward"};
constinit Slot<Args> backward_slot{"squared_distance_backward"};

// 2. The CPU kernels. Rows go to threads in chunks whose borders depend only on the sizes.
template <class T>
void forward(const Args& g) {
  const T *a = static_cast<const T*>(g.a), *b = static_cast<const T*>(g.b);
  parallel_for(g.rows, 1 + 16384 / (g.width + 1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      T sum = 0;
      for (std::int64_t i = n * g.width; i < (n + 1) * g.width; ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
      static_cast<T*>(g.out)[n] = sum;
    }
  });
}
template <class T>
void backward(const Args& g) {
  const T *a = static_cast<const T*>(g.a), *b = static_cast<const T*>(g.b), *dd = static_cast<const T*>(g.dd);
  T* out = static_cast<T*>(g.out);
  parallel_for(g.rows, 1 + 16384 / (g.width + 1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin * g.width; i < end * g.width; ++i) {
      const T da = 2 * dd[i / g.width] * (a[i] - b[i]);
      out[i] = g.beta == 0 ? da : out[i] + da;  // with beta 0 the buffer is uninitialised: do not read it
    }
  });
}

// 3. A backend fills its entry of each slot; entry 0 is the CPU. Calling an empty entry is a DeviceError that
// names the kernel.
void install_squared_distance() {
  forward_slot.function[0] = [](const Args& g) { g.is_f32 ? forward<float>(g) : forward<double>(g); };
  backward_slot.function[0] = [](const Args& g) { g.is_f32 ? backward<float>(g) : backward<double>(g); };
}

// 4. The op. Returns the squared distance of each pair of rows.
// shapes: a, b [rows, width] -> [rows].
// dtypes: f32, f64.
// errors: ShapeError, DtypeError, DeviceError.
Tensor squared_distance(const Tensor& a_any, const Tensor& b_any) {
  checks::floating("squared_distance", a_any, "a");
  checks::same_kind("squared_distance", a_any, b_any);
  if (a_any.rank() != 2 || a_any.shape() != b_any.shape())
    fail<ShapeError>("squared_distance: a is {} and b {} (both [rows, width])", to_string(a_any.shape()),
                     to_string(b_any.shape()));
  const Tensor a = raw::contiguous(a_any), b = raw::contiguous(b_any);
  const Tensor d = Tensor::empty({a.dim(0)}, a.dtype(), a.device());
  Args args{a.dtype() == Dtype::f32, a.dim(0), a.dim(1), a.raw_data(), b.raw_data(), {}, d.raw_data(), 0};
  forward_slot(d.device(), args);
  // Inputs and saved tensors are numbered: 0 is a, 1 is b. Since db = -da, db is da with a and b swapped.
  return record("squared_distance", {a_any, b_any}, d, {a, b}, [args](VjpContext& v) mutable {
    const Tensor dd = raw::contiguous(v.dy());
    args.dd = dd.raw_data();
    for (int k = 0; k < 2; ++k) {
      if (!v.sink.needs(k)) continue;
      args.a = v.saved(k).raw_data();
      args.b = v.saved(1 - k).raw_data();
      v.sink.into(k, [&](const Tensor& dst, float beta) {
        args.out = dst.raw_data();
        args.beta = beta;
        backward_slot(dst.device(), args);
      });
    }
  });
}

}  // namespace

int main() try {
  install_squared_distance();
  // 5. The description that drives the tests of an op: named samples, and a reference that shares no code
  // with it.
  const auto pair = [](const Shape& s) { return Tensors{sample_normal(s, "a"), sample_normal(s, "b")}; };
  OpSpec spec;
  spec.run = [](const Tensors& x) { return Tensors{squared_distance(x[0], x[1])}; };
  spec.reference = [](const Tensors& x) {
    const std::vector<double> a = x[0].to_vector<double>(), b = x[1].to_vector<double>();
    std::vector<double> d(static_cast<std::size_t>(x[0].dim(0)));
    for (std::size_t i = 0; i < a.size(); ++i) d[i / (a.size() / d.size())] += std::pow(a[i] - b[i], 2);
    return Tensors{Tensor::from(d, {x[0].dim(0)})};
  };
  spec.samples = {{"size_0", pair({0, 3})}, {"size_1", pair({1, 1})}, {"odd_tail", pair({3, 37})}};
  spec.samples.push_back({"strided", {strided_copy(pair({5, 7})[0]), pair({5, 7})[1]}});
  bool ok = true;
  for (const OpSample& sample : spec.samples) {
    const auto d = spec.run(sample.inputs)[0].to_vector<double>();
    const auto want = spec.reference(sample.inputs)[0].to_vector<double>();
    bool same = d.size() == want.size();
    for (std::size_t n = 0; same && n < d.size(); ++n) same = std::abs(d[n] - want[n]) <= 1e-13 * want[n];
    const GradcheckResult result = gradcheck(spec.run, sample.inputs);
    ok = ok && same && result.ok;
    std::printf("%-6s %s: %s\n", ok ? "ok" : "WRONG", sample.label.c_str(), result.describe().c_str());
  }
  return ok ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
