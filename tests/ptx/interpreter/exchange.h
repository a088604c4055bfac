// Instructions of a whole warp or warpgroup.
#pragma once

#include "tests/ptx/interpreter/machine.h"

namespace ptx {

enum : int { kUp, kDown, kButterfly, kIndex };  // `option` of exchange_lanes
enum : int { kAll, kAny, kBallot };             // `option` of vote
// shfl.sync: to = {value, predicate or nothing}, from = {value, lane, clamp, mask}
void exchange_lanes(Warp& warp, const Instruction& instruction, Mask mask);
// vote.sync: from = {predicate, mask}
void vote(Warp& warp, const Instruction& instruction, Mask mask);
// bar.warp.sync: from = {mask}
void order_warp(Warp& warp, const Instruction& instruction, Mask mask);
// ldmatrix.x4; `option` 1 transposes. from = {address}
void load_matrices(Warp& warp, const Instruction& instruction, Mask mask);
// mma.m16n8k16 of bf16: from = A[4], B[2], C[4]
void multiply(Warp& warp, const Instruction& instruction, Mask mask);
// mma.m16n8k8 of TF32, the same
void multiply_tf32(Warp& warp, const Instruction& instruction, Mask mask);

// fence.proxy.async
void publish_shared(Warp& warp, const Instruction& instruction, Mask mask);
// wgmma.fence, commit_group, wait_group, whose number is `offset`, and mma_async. They run once for four
// warps, of which the first is given. from = {descriptor or four registers of A, descriptor of B, whether to
// add}; `option` is 1 if A is in registers, and 2 more if B is transposed.
void order_registers(Warp& first, const Instruction& instruction, Mask mask);
void commit_products(Warp& first, const Instruction& instruction, Mask mask);
void wait_for_products(Warp& first, const Instruction& instruction, Mask mask);
void start_product(Warp& first, const Instruction& instruction, Mask mask);

// Checks that an instruction touches no register of a product that runs, and notes what it writes.
void watch_registers(Warp& warp, const Instruction& instruction);

}  // namespace ptx
