// Copies between the host and the GPU; strided copies, sums, fills and casts on the GPU.
//
//   mapping        one thread per element, in row-major order of the target. Contiguous copies use the copy
//                  engine. Contiguous casts between f32 and bf16 take four neighbours to a thread: that is
//                  how parameters are rounded at every step.
//   shared memory  none
//   bytes moved    one read and one write per element, the least, if neighbours in the target are neighbours
//                  in the source. Else the source is fetched in sectors of 32 bytes: up to 8 times the least
//                  in f32.
//
// Not supported: sums of types other than f32 and bf16, and casts to or from f64. f64 exists on the GPU only
// as the result of l2_norm; copies and fills move it like any other eight bytes.
#include "cuda/views/transfer.h"

#include <algorithm>
#include <cstring>

#include "cuda/core/numbers.cuh"
#include "cuda/core/walk.h"
#include "tensor/convert.h"

namespace eddy::cuda {
namespace {

template <class T>
struct CopyArgs {
  Walk<2> walk;  // over the target and the source
  T* to;
  const T* from;
};

template <class T>
__global__ void copy_kernel(CopyArgs<T> args) {
  for (std::int64_t i = first_item(); i < args.walk.elements; i += item_step()) {
    std::int64_t at[2] = {};
    args.walk.add_offsets(static_cast<std::uint32_t>(i), at);
    args.to[at[0]] = args.from[at[1]];
  }
}

// Several copies in one launch. Every thread goes through all of them, so that copies of equal length use the
// GPU equally.
constexpr int kMostCopies = 8;

template <class T>
struct CopiesArgs {
  int count = 0;
  CopyArgs<T> copies[kMostCopies] = {};
};

template <class T>
__global__ void copies_kernel(const __grid_constant__ CopiesArgs<T> args) {
  for (int k = 0; k < args.count; ++k) {
    const CopyArgs<T>& copy = args.copies[k];
    for (std::int64_t i = first_item(); i < copy.walk.elements; i += item_step()) {
      std::int64_t at[2] = {};
      copy.walk.add_offsets(static_cast<std::uint32_t>(i), at);
      copy.to[at[0]] = copy.from[at[1]];
    }
  }
}

// bf16 is summed in f32 and rounded once, as on the CPU.
template <class T>
__global__ void add_kernel(CopyArgs<T> args) {
  for (std::int64_t i = first_item(); i < args.walk.elements; i += item_step()) {
    std::int64_t at[2] = {};
    args.walk.add_offsets(static_cast<std::uint32_t>(i), at);
    args.to[at[0]] = T(static_cast<float>(args.to[at[0]]) + static_cast<float>(args.from[at[1]]));
  }
}

template <class T>
struct AddArgs {
  Walk<3> walk;  // over the sum and its summands
  T* to;
  const T *a, *b;
};

template <class T>
__global__ void sum_kernel(AddArgs<T> args) {
  for (std::int64_t i = first_item(); i < args.walk.elements; i += item_step()) {
    std::int64_t at[3] = {};
    args.walk.add_offsets(static_cast<std::uint32_t>(i), at);
    args.to[at[0]] = T(static_cast<float>(args.a[at[1]]) + static_cast<float>(args.b[at[2]]));
  }
}

template <class T>
struct FillArgs {
  Walk<1> walk;
  T* to;
  T value;
};

template <class T>
__global__ void fill_kernel(FillArgs<T> args) {
  for (std::int64_t i = first_item(); i < args.walk.elements; i += item_step()) {
    std::int64_t at[1] = {};
    args.walk.add_offsets(static_cast<std::uint32_t>(i), at);
    args.to[at[0]] = args.value;
  }
}

template <class To, class From>
struct CastArgs {
  Walk<2> walk;
  To* to;
  const From* from;
};

template <class To, class From>
__global__ void cast_kernel(CastArgs<To, From> args) {
  for (std::int64_t i = first_item(); i < args.walk.elements; i += item_step()) {
    std::int64_t at[2] = {};
    args.walk.add_offsets(static_cast<std::uint32_t>(i), at);
    args.to[at[0]] = convert<To>(args.from[at[1]]);
  }
}

// The same for contiguous f32 and bf16: groups of four first, then the remaining elements one by one.
template <class To, class From>
struct FlatCastArgs {
  std::int64_t elements, fours;
  To* to;
  const From* from;
};

template <class To, class From>
__global__ void flat_cast_kernel(FlatCastArgs<To, From> args) {
  for (std::int64_t i = first_item(); i < args.fours; i += item_step())
    write_four(args.to + 4 * i, read_four(args.from + 4 * i));
  for (std::int64_t i = 4 * args.fours + first_item(); i < args.elements; i += item_step())
    args.to[i] = convert<To>(args.from[i]);
}

template <class T>
constexpr bool is_activation = std::is_same_v<T, float> || std::is_same_v<T, bf16>;

template <class To, class From>
void cast_flat(const Tensor& to, const Tensor& from) {
  FlatCastArgs<To, From> args{to.elements(), 0, static_cast<To*>(to.raw_data()),
                              static_cast<const From*>(from.raw_data())};
  if (aligned(args.to, sizeof(StoredFour<To>)) && aligned(args.from, sizeof(StoredFour<From>)))
    args.fours = args.elements / 4;
  launch("cast_flat", flat_cast_kernel<To, From>, grid_for(args.elements, 4 * kThreads), kThreads, args);
}

WalkShape<2> walk_of(const Tensor& to, const Tensor& from) {
  WalkShape<2> shape;
  for (int i = 0; i < to.rank(); ++i) shape.add_axis(to.dim(i), {to.strides()[i], from.strides()[i]});
  return shape;
}

// Launches a kernel that takes CopyArgs<T>.
template <class T>
void over_both(const char* name, void (*kernel)(CopyArgs<T>), const Tensor& to, const Tensor& from) {
  walk_of(to, from).for_parts([&](const Walk<2>& walk, const std::int64_t* at) {
    launch(name, kernel, grid_for(walk.elements, kThreads), kThreads,
           {walk, static_cast<T*>(to.raw_data()) + at[0], static_cast<const T*>(from.raw_data()) + at[1]});
  });
}

template <class T>
void copy_together(const std::vector<Tensor>& to, const std::vector<Tensor>& from) {
  CopiesArgs<T> args;
  std::int64_t longest = 0;
  const auto run = [&] {
    if (args.count > 0) launch("copies", copies_kernel<T>, grid_for(longest, kThreads), kThreads, args);
    args = {};
    longest = 0;
  };
  for (std::size_t k = 0; k < to.size(); ++k)
    walk_of(to[k], from[k]).for_parts([&](const Walk<2>& walk, const std::int64_t* at) {
      args.copies[args.count++] = {walk, static_cast<T*>(to[k].raw_data()) + at[0],
                                   static_cast<const T*>(from[k].raw_data()) + at[1]};
      longest = std::max(longest, static_cast<std::int64_t>(walk.elements));
      if (args.count == kMostCopies) run();
    });
  run();
}

template <class T>
void add_to(const Tensor& to, const Tensor& a, const Tensor& b) {
  WalkShape<3> shape;
  for (int i = 0; i < to.rank(); ++i)
    shape.add_axis(to.dim(i), {to.strides()[i], a.strides()[i], b.strides()[i]});
  shape.for_parts([&](const Walk<3>& walk, const std::int64_t* at) {
    launch("add", sum_kernel<T>, grid_for(walk.elements, kThreads), kThreads,
           {walk, static_cast<T*>(to.raw_data()) + at[0], static_cast<const T*>(a.raw_data()) + at[1],
            static_cast<const T*>(b.raw_data()) + at[2]});
  });
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

class CudaTransfer final : public Transfer {
 public:
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
    if (to.contiguous() && from.contiguous())
      return check(cudaMemcpyAsync(to.raw_data(), from.raw_data(), static_cast<std::size_t>(to.bytes()),
                                   cudaMemcpyDeviceToDevice, stream()),
                   "cudaMemcpyAsync");
    dispatch_by_size(to.dtype(), [&](auto width) {
      using T = decltype(width);
      over_both<T>("copy", copy_kernel<T>, to, from);
    });
  }

  void copy_all(const std::vector<Tensor>& to, const std::vector<Tensor>& from) override {
    dispatch_by_size(to[0].dtype(), [&](auto width) { copy_together<decltype(width)>(to, from); });
  }

  void add(const Tensor& to, const Tensor& a, const Tensor& b) override {
    if (to.dtype() == Dtype::f32)
      add_to<float>(to, a, b);
    else if (to.dtype() == Dtype::bf16)
      add_to<bf16>(to, a, b);
    else
      refuse_dtype("add", to.dtype());
  }

  void add_into(const Tensor& to, const Tensor& from) override {
    if (to.dtype() == Dtype::f32)
      over_both<float>("add_into", add_kernel<float>, to, from);
    else if (to.dtype() == Dtype::bf16)
      over_both<bf16>("add_into", add_kernel<bf16>, to, from);
    else
      refuse_dtype("add_into", to.dtype());
  }

  void fill(const Tensor& x, double value) override {
    const std::uint64_t bits = bits_of(x.dtype(), value);
    if (bits == 0 && x.contiguous())
      return check(cudaMemsetAsync(x.raw_data(), 0, static_cast<std::size_t>(x.bytes()), stream()),
                   "cudaMemsetAsync");
    WalkShape<1> shape;
    for (int i = 0; i < x.rank(); ++i) shape.add_axis(x.dim(i), {x.strides()[i]});
    dispatch_by_size(x.dtype(), [&](auto width) {
      using T = decltype(width);
      shape.for_parts([&](const Walk<1>& walk, const std::int64_t* at) {
        launch("fill", fill_kernel<T>, grid_for(walk.elements, kThreads), kThreads,
               {walk, static_cast<T*>(x.raw_data()) + at[0], static_cast<T>(bits)});
      });
    });
  }

  void cast(const Tensor& to, const Tensor& from) override {
    by_dtype("cast", to.dtype(), [&](auto to_type) {
      using To = decltype(to_type);
      by_dtype("cast", from.dtype(), [&](auto from_type) {
        using From = decltype(from_type);
        if constexpr (!std::is_same_v<To, From>) {
          if constexpr (is_activation<To> && is_activation<From>)
            if (to.contiguous() && from.contiguous()) return cast_flat<To, From>(to, from);
          walk_of(to, from).for_parts([&](const Walk<2>& walk, const std::int64_t* at) {
            launch("cast", cast_kernel<To, From>, grid_for(walk.elements, kThreads), kThreads,
                   {walk, static_cast<To*>(to.raw_data()) + at[0],
                    static_cast<const From*>(from.raw_data()) + at[1]});
          });
        }
      });
    });
  }
};

}  // namespace

Transfer& device_transfer() {
  static CudaTransfer only;
  return only;
}

}  // namespace eddy::cuda
