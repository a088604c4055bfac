// Rows of a table picked by ids, and the gradient: row v of dtable is the sum of the rows of dy whose id is
// v.
//
// Forward.
//   mapping        a warp per position; each thread takes every 32nd group of the row, 16 bytes of the result,
//                  or every 32nd element if rows are not aligned.
//   shared memory  none
//   bytes moved    ids, rows and result once, the least
//
// Backward, without atomics and in a fixed order. The positions are sorted by id, stably, and the sorted list
// is cut into chunks of 64. A run is the positions of one id, which are neighbours in the list:
//
//   ids     2 2 2 2|2 2 2 5|5 7 7 7|7 7 9 9|      | between chunks
//   runs    [2 . . . . . .][5 .][7 . . . .][9 .]
//
//   1. A block per chunk, a thread per column, sums its part of each run in order. A run inside the chunk
//      is added to dtable. A part that continues in the next chunk, or comes from the chunk before, goes to
//      one of the chunk's two spare rows: the last for the former, the first for the latter.
//   2. A block per chunk in which a continued run begins adds the spare rows of that run, chunk by chunk, to
//      dtable.
//
// So a frequent id costs one row per 64 positions more, and takes no longer than other ids.
//   shared memory  512 bytes
//   bytes moved    dy once, the rows of dtable that are hit read and written once, the spare rows (2 in 64)
//                  written and read once, and the sort: near the least
//
// An id outside the table gives a row of NaN forward and nothing backward.
#include "cuda/core/map.cuh"
#include "cuda/core/team.cuh"
#include "cuda/index/sort.cuh"
#include "ops/index/gather.h"
#include "tensor/base/error.h"

namespace eddy::cuda {
namespace {

// Returns the first element of what is added to a position's row.
__device__ const float* added_row(const EmbeddingArgs& args, std::int64_t position) {
  const float* row = static_cast<const float*>(args.added);
  for (int axis = args.axes - 1; axis >= 0; --axis) {
    row += position % args.sizes[axis] * args.strides[axis];
    position /= args.sizes[axis];
  }
  return row;
}

template <class Id, class T, int Width>
__global__ void forward_kernel(const __grid_constant__ EmbeddingArgs args) {
  using RowTeam = Team<32>;
  const Id* const ids = static_cast<const Id*>(args.ids);
  for (std::int64_t i = RowTeam::first_row(); i < args.positions; i += RowTeam::row_step()) {
    const std::int64_t id = static_cast<std::int64_t>(ids[i]);
    const bool known = id >= 0 && id < args.vocab;
    const float* const from = static_cast<const float*>(args.from) + (known ? id * args.dim : 0);
    const float* const added = args.added == nullptr ? nullptr : added_row(args, i);
    T* const to = static_cast<T*>(args.to) + i * args.dim;
    for (std::int64_t c = RowTeam::lane() * Width; c < args.dim; c += 32 * Width) {
      Neighbours<float, Width> row = {}, more = {};
      if (known) row = read_neighbours<Width>(from + c, Width, false);
      if (added != nullptr) more = read_neighbours<Width>(added + c, Width, false);
#pragma unroll
      for (int j = 0; j < Width; ++j) {
        if (added != nullptr) row.at[j] += more.at[j];
        if (!known) row.at[j] = __int_as_float(0x7fffffff);
      }
      *reinterpret_cast<Neighbours<T, Width>*>(to + c) = as_stored<T>(row);
    }
  }
}

template <class Id, class T>
void forward(const EmbeddingArgs& args) {
  bool grouped = args.dim % kGroup<T> == 0 && aligned(args.from) && aligned(args.to) && aligned(args.added);
  for (int axis = 0; axis < args.axes; ++axis) grouped = grouped && args.strides[axis] % 4 == 0;
  launch("embedding", grouped ? forward_kernel<Id, T, kGroup<T>> : forward_kernel<Id, T, 1>,
         grid_for(args.positions, Team<32>::kRowsPerBlock, 64), kThreads, args);
}

// Ids as sort keys. An id outside the table becomes `vocab`, which sorts last and is skipped.
struct KeyArgs {
  std::int64_t positions, vocab;
  const void* ids;
  std::int32_t *keys, *places;
};

template <class Id>
__global__ void key_kernel(KeyArgs args) {
  for (std::int64_t i = first_item(); i < args.positions; i += item_step()) {
    const std::int64_t id = static_cast<std::int64_t>(static_cast<const Id*>(args.ids)[i]);
    args.keys[i] = static_cast<std::int32_t>(id >= 0 && id < args.vocab ? id : args.vocab);
    args.places[i] = static_cast<std::int32_t>(i);
  }
}

constexpr int kChunk = 64;

template <class T>
struct SumRunsArgs {
  std::int64_t positions, dim;
  std::int32_t vocab;
  const std::int32_t *keys, *places;  // sorted by key
  const T* dy;
  float* dtable;
  float* spare;  // [chunks, 2, dim]: of the run from the chunk before, and of the run that continues

  __device__ std::int64_t chunks() const { return (positions + kChunk - 1) / kChunk; }
  __device__ std::int64_t chunk_end(std::int64_t chunk) const { return min((chunk + 1) * kChunk, positions); }
  __device__ bool comes_in(std::int64_t chunk) const {
    return chunk > 0 && keys[chunk * kChunk] == keys[chunk * kChunk - 1];
  }
  __device__ bool continues(std::int64_t chunk) const {
    const std::int64_t end = chunk_end(chunk);
    return end < positions && keys[end - 1] == keys[end];
  }
};

template <class T>
__global__ void chunk_kernel(SumRunsArgs<T> args) {
  __shared__ std::int32_t keys[kChunk], places[kChunk];
  for (std::int64_t chunk = blockIdx.x; chunk < args.chunks(); chunk += gridDim.x) {
    const std::int64_t first = chunk * kChunk;
    const int count = static_cast<int>(args.chunk_end(chunk) - first);
    if (static_cast<int>(threadIdx.x) < count) {
      keys[threadIdx.x] = args.keys[first + threadIdx.x];
      places[threadIdx.x] = args.places[first + threadIdx.x];
    }
    __syncthreads();
    const bool comes_in = args.comes_in(chunk), continues = args.continues(chunk);
    for (std::int64_t column = threadIdx.x; column < args.dim; column += kThreads) {
      float* const spare = args.spare + 2 * chunk * args.dim + column;
      for (int begin = 0; begin < count && keys[begin] < args.vocab;) {
        float sum = 0;
        int end = begin;
        for (; end < count && keys[end] == keys[begin]; ++end)
          sum += static_cast<float>(args.dy[places[end] * args.dim + column]);
        if (begin == 0 && comes_in)
          spare[0] = sum;
        else if (end == count && continues)
          spare[args.dim] = sum;
        else
          args.dtable[keys[begin] * args.dim + column] += sum;
        begin = end;
      }
    }
    __syncthreads();  // the next chunk overwrites the keys
  }
}

template <class T>
__global__ void spare_kernel(SumRunsArgs<T> args) {
  for (std::int64_t chunk = blockIdx.x; chunk < args.chunks(); chunk += gridDim.x) {
    if (!args.continues(chunk)) continue;
    const std::int32_t key = args.keys[args.chunk_end(chunk) - 1];
    // A run that fills this chunk and continues from the one before began earlier.
    if (key >= args.vocab || (args.comes_in(chunk) && args.keys[chunk * kChunk] == key)) continue;
    for (std::int64_t column = threadIdx.x; column < args.dim; column += kThreads) {
      float sum = args.spare[(2 * chunk + 1) * args.dim + column];
      for (std::int64_t next = chunk + 1;; ++next) {
        sum += args.spare[2 * next * args.dim + column];
        // The run ends in `next`, or fills it and continues.
        if (!args.continues(next) || args.keys[args.chunk_end(next) - 1] != key) break;
      }
      args.dtable[key * args.dim + column] += sum;
    }
  }
}

template <class T>
void backward(const EmbeddingArgs& args) {
  require_f32("embedding", args.dtype);
  if (args.vocab >> 31 != 0) throw ValueError("embedding: a table of 2^31 rows or more (cuda takes fewer)");
  // The sort counts in 32 bits: more positions are handled in parts, which accumulate one after the other.
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  const Device device{DeviceType::cuda, device_index()};
  const bool narrow = args.id_dtype == Dtype::i32;
  int bits = 1;
  while ((args.vocab >> bits) != 0) ++bits;  // `vocab` itself is a key
  for (std::int64_t start = 0; start < args.positions; start += kMost) {
    const std::int64_t count = args.positions - start < kMost ? args.positions - start : kMost;
    const Tensor keys = Tensor::empty({count}, Dtype::i32, device),
                 places = Tensor::empty({count}, Dtype::i32, device);
    const KeyArgs key_args{count, args.vocab, static_cast<const char*>(args.ids) + start * (narrow ? 4 : 8),
                           keys.mutable_data<std::int32_t>(), places.mutable_data<std::int32_t>()};
    launch("embedding_keys", narrow ? key_kernel<std::int32_t> : key_kernel<std::int64_t>,
           grid_for(count, kThreads), kThreads, key_args);
    const Sorted sorted = sort_by_key(keys, places, bits);
    const std::int64_t chunks = (count + kChunk - 1) / kChunk;
    const Tensor spare = Tensor::empty({chunks, 2, args.dim}, Dtype::f32, device);
    const SumRunsArgs<T> run_args{count,
                                  args.dim,
                                  static_cast<std::int32_t>(args.vocab),
                                  sorted.keys.data<std::int32_t>(),
                                  sorted.places.data<std::int32_t>(),
                                  static_cast<const T*>(args.from) + start * args.dim,
                                  static_cast<float*>(args.to),
                                  spare.mutable_data<float>()};
    launch("embedding_backward", chunk_kernel<T>, grid_for(chunks, 1, 32), kThreads, run_args);
    launch("embedding_backward", spare_kernel<T>, grid_for(chunks, 1, 32), kThreads, run_args);
  }
}

}  // namespace

void embedding_forward(const EmbeddingArgs& args) {
  require_f32("embedding", args.dtype);
  for_activations("embedding", args.row_dtype, [&](auto* type) {
    using T = StoredIn<decltype(type)>;
    args.id_dtype == Dtype::i32 ? forward<std::int32_t, T>(args) : forward<std::int64_t, T>(args);
  });
}

void embedding_backward(const EmbeddingArgs& args) {
  for_activations("embedding", args.row_dtype, [&](auto* type) { backward<StoredIn<decltype(type)>>(args); });
}

}  // namespace eddy::cuda
