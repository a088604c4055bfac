// Writing into the ring buffer of a memory, whose numbers are copied as they are.
//
//   mapping        a warp per place of a sequence, which finds the row that belongs there and copies its keys
//                  and values, each thread every 32nd element
//   shared memory  none
//   bytes moved    every entry read and written once, the least for a result that is another tensor
#include "cuda/core/numbers.cuh"
#include "cuda/core/team.cuh"
#include "ops/memory/memory_write.h"

namespace eddy::cuda {
namespace {

template <class T>
__global__ void write_kernel(MemoryWriteArgs args) {
  using RowTeam = Team<32>;
  for (std::int64_t i = RowTeam::first_row(); i < args.batch * args.size; i += RowTeam::row_step()) {
    const std::int64_t sequence = i / args.size;
    const bool emptied = args.emptied != nullptr && args.emptied[sequence] != 0;
    const std::int64_t count = emptied ? 0 : args.count[sequence];
    const std::int64_t row = memory_row_at(i % args.size, count, args.rows, args.size);
    const bool fresh = row >= 0;
    const std::int64_t from = (fresh ? sequence * args.rows + row : i) * args.width;
    const T* const keys = static_cast<const T*>(fresh ? args.new_keys : args.keys) + from;
    const T* const values = static_cast<const T*>(fresh ? args.new_values : args.values) + from;
    T* const to_keys = static_cast<T*>(args.to_keys) + i * args.width;
    T* const to_values = static_cast<T*>(args.to_values) + i * args.width;
    const bool zero = emptied && !fresh;
    for (std::int64_t c = RowTeam::lane(); c < args.width; c += 32) {
      to_keys[c] = zero ? T{} : keys[c];
      to_values[c] = zero ? T{} : values[c];
    }
    if (i % args.size == 0 && RowTeam::lane() == 0) args.to_count[sequence] = count + args.rows;
  }
}

template <class T>
void write(const MemoryWriteArgs& args) {
  launch("memory_write", write_kernel<T>, grid_for(args.batch * args.size, Team<32>::kRowsPerBlock, 64),
         kThreads, args);
}

}  // namespace

void memory_write(const MemoryWriteArgs& args) {
  for_activations("memory_write", args.dtype, [&](auto* type) { write<StoredIn<decltype(type)>>(args); });
}

}  // namespace eddy::cuda
