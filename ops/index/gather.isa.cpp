// CPU kernels of embedding and gather. The forward pass moves bits, whatever the type. The backward pass
// gives each thread its own range of columns of the result and walks the positions in order: no atomics, no
// sorting.
#include "ops/index/gather.h"

#include <string.h>

#include "ops/cpu/isa.h"
#include "tensor/convert.h"
#include "tensor/threads/thread_pool.h"

namespace eddy::EDDY_ISA {
namespace {

constexpr std::int64_t kGrain = 1 << 14;  // elements per chunk
constexpr std::int64_t kColumns = 64;  // the narrowest range of columns: 256 bytes of f32, whole cache lines

EDDY_INLINE std::int64_t larger(std::int64_t a, std::int64_t b) {
  return a > b ? a : b;
}

template <class Id>
void embedding_forward(const EmbeddingArgs& args) {
  const Id* const ids = static_cast<const Id*>(args.ids);
  const char* const table = static_cast<const char*>(args.from);
  char* const y = static_cast<char*>(args.to);
  const std::int64_t bytes = args.dim * static_cast<std::int64_t>(dtype_bytes(args.dtype));
  parallel_for(args.positions, larger(1, kGrain / args.dim), [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      memcpy(y + i * bytes, table + ids[i] * bytes, static_cast<size_t>(bytes));
  });
}

template <class Id, class T>
void embedding_backward(const EmbeddingArgs& args) {
  const Id* const ids = static_cast<const Id*>(args.ids);
  const T* const dy = static_cast<const T*>(args.from);
  T* const dtable = static_cast<T*>(args.to);
  const std::int64_t positions = args.positions, dim = args.dim;
  const std::int64_t columns = (larger(kColumns, kGrain / positions) + kColumns - 1) / kColumns * kColumns;
  parallel_for(dim, columns, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = 0; i < positions; ++i) {
      const T* const from = dy + i * dim;
      T* const to = dtable + ids[i] * dim;
      for (std::int64_t c = begin; c < end; ++c) to[c] += from[c];
    }
  });
}

void embedding_forward_entry(const EmbeddingArgs& args) {
  args.id_dtype == Dtype::i32 ? embedding_forward<std::int32_t>(args) : embedding_forward<std::int64_t>(args);
}
template <class T>
void embedding_backward_by_ids(const EmbeddingArgs& args) {
  args.id_dtype == Dtype::i32 ? embedding_backward<std::int32_t, T>(args)
                              : embedding_backward<std::int64_t, T>(args);
}

// Runs body(outer index, first inner index, end) over the columns of x, a column being all entries of the
// axis at one place of the others.
template <class Body>
EDDY_INLINE void for_columns(const GatherArgs& args, Body&& body) {
  const std::int64_t inner = args.inner;
  const std::int64_t grain = larger(1, kGrain / larger(1, args.picks));
  parallel_for(args.outer * inner, grain, [&](std::int64_t begin, std::int64_t end) {
    while (begin < end) {
      const std::int64_t o = begin / inner, first = begin - o * inner;
      const std::int64_t last = end - o * inner < inner ? end - o * inner : inner;
      body(o, first, last);
      begin = o * inner + last;
    }
  });
}

// Runs body(index into picks, index into x) for every pick.
template <class Body>
EDDY_INLINE void for_picks(const GatherArgs& args, Body body) {
  const std::int64_t size = args.size, picks = args.picks, inner = args.inner;
  const std::int64_t* const index = args.index;
  for_columns(args, [=](std::int64_t o, std::int64_t first, std::int64_t last) {
    for (std::int64_t j = 0; j < picks; ++j) {
      const std::int64_t row = (o * picks + j) * inner;
      for (std::int64_t i = first; i < last; ++i) body(row + i, (o * size + index[row + i]) * inner + i);
    }
  });
}

template <class T>
void gather_forward(const GatherArgs& args) {
  const T* const x = static_cast<const T*>(args.from);
  T* const y = static_cast<T*>(args.to);
  for_picks(args, [=](std::int64_t pick, std::int64_t place) { y[pick] = x[place]; });
}

template <class T>
void gather_backward(const GatherArgs& args) {
  const T* const dy = static_cast<const T*>(args.from);
  T* const dx = static_cast<T*>(args.to);
  for_picks(args, [=](std::int64_t pick, std::int64_t place) { dx[place] += dy[pick]; });
}

void gather_forward_entry(const GatherArgs& args) {
  dispatch_by_size(args.dtype, [&](auto bits) { gather_forward<decltype(bits)>(args); });
}

}  // namespace

EDDY_CPU_KERNEL_OF_ALL_DTYPES(embedding_forward, embedding_forward_entry)
EDDY_CPU_KERNEL(embedding_backward, embedding_backward_by_ids)
EDDY_CPU_KERNEL_OF_ALL_DTYPES(gather_forward, gather_forward_entry)
EDDY_CPU_KERNEL(gather_backward, gather_backward)

}  // namespace eddy::EDDY_ISA
