// The backward kernels of the block recurrence; block_recurrence.cu says how they work, their mapping and
// bytes included. They stand apart because compiling them takes as long as all else of it.
#include "cuda/fused_recurrence.cuh"

namespace eddy::cuda {

template Direction<UnitRecurrenceArgs> backward_of<true>(const UnitRecurrenceArgs& a);

}  // namespace eddy::cuda
