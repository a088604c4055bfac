// mbarriers, whose phases count arrivals and the bytes of copies, and copies of boxes of a tensor
// (cp.async.bulk.tensor).
//
// Who waits for a phase sees what was done before the arrivals at it: of its own warp up to the last bar.warp.sync, and
// all that it had seen. A copy's bytes are seen by those that waited for the phase that counted them. SharedMemory
// checks each access by that.
// source: PTX ISA 9.0, "mbarrier", "cp.async.bulk.tensor", "Tensors"; maps are those of tests/emulation/tensor_map.h.
#pragma once

#include "tests/ptx/interpreter/machine.h"

namespace ptx {

// from = {address of the mbarrier, arrivals}
void init_phases(Warp& warp, const Instruction& instruction, Mask mask);
// fence.mbarrier_init: what these lanes prepared may be used by copies and other threads.
void publish_phases(Warp& warp, const Instruction& instruction, Mask mask);
// mbarrier.arrive, with expect_tx if there are bytes: from = {address, bytes or nothing}
void arrive_at_phase(Warp& warp, const Instruction& instruction, Mask mask);
// mbarrier.try_wait.parity: from = {address, parity}, to = {predicate}. It runs once the phase is over.
bool phase_is_over(Warp& warp, const Instruction& instruction);
void see_phase(Warp& warp, const Instruction& instruction, Mask mask);
// from = {address of the mbarrier, where to, map, four coordinates}
void start_box(Warp& warp, const Instruction& instruction, Mask mask);

// Lets one of the copies arrive, number `which` of them; returns false without any.
bool complete_box(Block& block, std::uint64_t which);
// All warps have seen what each of them has: they passed a barrier.
void share_what_is_seen(Block& block);
// errors: Fault for copies that are on their way, and for bytes that none brings.
void check_no_transactions(Block& block);

}  // namespace ptx
