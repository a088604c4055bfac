// Copies between the host and the GPU; strided copies, sums, fills and casts on the GPU, which are maps
// (cuda/core/map.cuh).
//
// Not supported: sums of types other than f32 and bf16, and casts to or from f64. f64 exists on the GPU only
// as the result of l2_norm; copies and fills move it like any other eight bytes.
#include "cuda/views/transfer.h"

#include <algorithm>
#include <cstring>

#include "cuda/core/map.cuh"
#include "tensor/convert.h"

namespace eddy::cuda {
namespace {

struct Copy {
  template <class T>
  __device__ T operator()(T x) const {
    return x;
  }
};

// bf16 is summed in f32 and rounded once, as on the CPU.
struct Sum {
  template <class T>
  __device__ float operator()(T a, T b) const {
    return static_cast<float>(a) + static_cast<float>(b);
  }
};

template <class T>
struct Constant {
  T value;
  __device__ T operator()() const { return value; }
};

template <class T>
constexpr bool is_activation = std::is_same_v<T, float> || std::is_same_v<T, bf16>;

// A result in f32 is rounded by the map.
template <class To>
struct Cast {
  template <class From>
  __device__ auto operator()(From x) const {
    if constexpr (is_activation<To> && is_activation<From>)
      return static_cast<float>(x);
    else
      return convert<To>(x);
  }
};

// Several copies in one launch. Every thread goes through all of them, so that copies of equal length use the
// GPU equally.
constexpr int kMostCopies = 16;  // 3.5 KB of arguments

template <class T>
struct Copies {
  int count = 0;
  Map<Copy, T, T> maps[kMostCopies];
};

template <class T>
__global__ void copies_kernel(const __grid_constant__ Copies<T> copies) {
  for (int k = 0; k < copies.count; ++k) run_map(copies.maps[k]);
}

// The axes of tensors of one shape.
template <class... X>
WalkShape<1 + static_cast<int>(sizeof...(X))> axes_of(const Tensor& y, const X&... x) {
  WalkShape<1 + static_cast<int>(sizeof...(X))> shape;
  for (int i = 0; i < y.rank(); ++i) shape.add_axis(y.dim(i), {y.strides()[i], x.strides()[i]...});
  return shape;
}

template <class T>
T* data_of(const Tensor& x) {
  return static_cast<T*>(x.raw_data());
}

template <class T>
void copy_together(const std::vector<Tensor>& to, const std::vector<Tensor>& from) {
  Copies<T> copies;
  std::int64_t longest = 0;
  const auto run = [&] {
    launch("copies", copies_kernel<T>, grid_for(longest, kThreads), kThreads, copies);
    copies.count = 0;
    longest = 0;
  };
  for (std::size_t k = 0; k < to.size(); ++k)
    for_maps(
        Copy{}, axes_of(to[k], from[k]),
        [&](const Map<Copy, T, T>& map) {
          copies.maps[copies.count++] = map;
          longest = std::max(longest, static_cast<std::int64_t>(map.walk.elements));
          if (copies.count == kMostCopies) run();
        },
        data_of<T>(to[k]), data_of<const T>(from[k]));
  if (copies.count > 0) run();
}

// The types that kernels support.
// errors: DtypeError for f64.
template <class Visit>
void by_dtype(const char* op, Dtype dtype, Visit&& visit) {
  switch (dtype) {
    case Dtype::f32:
      return visit(float{});
    case Dtype::bf16:
      return visit(bf16{});
    case Dtype::i32:
      return visit(std::int32_t{});
    case Dtype::i64:
      return visit(std::int64_t{});
    case Dtype::u8:
      return visit(std::uint8_t{});
    case Dtype::f64:
      refuse_dtype(op, dtype);
  }
}

// Returns the bits of `value` as a `dtype`, in the low bytes.
std::uint64_t bits_of(Dtype dtype, double value) {
  std::uint64_t bits = 0;
  const auto keep = [&bits](auto typed) { std::memcpy(&bits, &typed, sizeof typed); };
  if (dtype == Dtype::f64)
    keep(value);
  else
    by_dtype("fill", dtype, [&](auto type) { keep(convert<decltype(type)>(value)); });
  return bits;
}

class CudaHostCopy final : public HostCopy {
 public:
  void start(const Tensor& x) override {
    like_ = Tensor::empty(x.shape(), x.dtype(), kCpu);
    download_.start(x.raw_data(), static_cast<std::size_t>(x.bytes()));
  }
  Tensor wait() override {
    download_.wait(like_.raw_data());
    return like_;
  }

 private:
  LaterDownload download_;
  Tensor like_;
};

class CudaTransfer final : public Transfer {
 public:
  std::unique_ptr<HostCopy> make_host_copy() override { return std::make_unique<CudaHostCopy>(); }

  Tensor to_device(const Tensor& x, Device device) override {
    const bool up = device.type == DeviceType::cuda;
    const Device gpu = up ? device : x.device();
    if (gpu.index != device_index() || (up && x.device().type == DeviceType::cuda)) refuse_other_gpu(gpu);
    const Tensor packed = raw::contiguous(x);
    const Tensor result = Tensor::empty(x.shape(), x.dtype(), device);
    (up ? upload : download)(result.raw_data(), packed.raw_data(), static_cast<std::size_t>(x.bytes()));
    return result;
  }

  void copy_strided(const Tensor& to, const Tensor& from) override {
    dispatch_by_size(to.dtype(), [&](auto width) {
      using T = decltype(width);
      launch_map("copy", Copy{}, axes_of(to, from), data_of<T>(to), data_of<const T>(from));
    });
  }

  void copy_all(const std::vector<Tensor>& to, const std::vector<Tensor>& from) override {
    dispatch_by_size(to[0].dtype(), [&](auto width) { copy_together<decltype(width)>(to, from); });
  }

  void add(const Tensor& to, const Tensor& a, const Tensor& b) override { sum("add", to, a, b); }

  void add_into(const Tensor& to, const Tensor& from) override { sum("add_into", to, to, from); }

  void fill(const Tensor& x, double value) override {
    const std::uint64_t bits = bits_of(x.dtype(), value);
    dispatch_by_size(x.dtype(), [&](auto width) {
      using T = decltype(width);
      launch_map("fill", Constant<T>{static_cast<T>(bits)}, axes_of(x), data_of<T>(x));
    });
  }

  void cast(const Tensor& to, const Tensor& from) override {
    by_dtype("cast", to.dtype(), [&](auto to_type) {
      using To = decltype(to_type);
      by_dtype("cast", from.dtype(), [&](auto from_type) {
        using From = decltype(from_type);
        if constexpr (!std::is_same_v<To, From>)
          launch_map("cast", Cast<To>{}, axes_of(to, from), data_of<To>(to), data_of<const From>(from));
      });
    });
  }

 private:
  static void sum(const char* name, const Tensor& to, const Tensor& a, const Tensor& b) {
    for_activations(name, to.dtype(), [&](auto* type) {
      using T = StoredIn<decltype(type)>;
      launch_map(name, Sum{}, axes_of(to, a, b), data_of<T>(to), data_of<const T>(a), data_of<const T>(b));
    });
  }
};

}  // namespace

Transfer& device_transfer() {
  static CudaTransfer only;
  return only;
}

}  // namespace eddy::cuda
