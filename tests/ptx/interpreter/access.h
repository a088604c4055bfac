// Loads, stores, atomic operations and asynchronous copies.
#pragma once

#include "tests/ptx/interpreter/machine.h"

namespace ptx {

// The functions of `ld`, `st` and `atom.add` of a type; the register may be wider than the memory.
// errors: Fault for a type that has none.
Run run_of_load(Type memory, Type in_register);
Run run_of_store(Type memory, Type in_register);
Run run_of_atomic_add(Type type);
// cp.async of up to 16 bytes: from = {shared address, global address, size}.
void copy_async(Warp& warp, const Instruction& instruction, Mask mask);
void wait_for_copies(Warp& warp, const Instruction& instruction, Mask mask);
// Returns a thread's bytes in global memory, to be read.
// errors: Fault where they are out of bounds, or must not be read yet.
const unsigned char* read_global(Warp& warp, int lane, std::uint64_t address, int bytes);
// griddepcontrol.wait and .launch_dependents. A thread of a dependent launch must wait before it reads what the launch
// ahead wrote, stores anything, lets the next launch begin, or ends.
void wait_for_launch_ahead(Warp& warp, const Instruction& instruction, Mask mask);
void begin_next_launch(Warp& warp, const Instruction& instruction, Mask mask);

// What `option` of a load or an atomic operation says.
enum : int { kPlain = 0, kAcquires = 1, kReleases = 2 };

}  // namespace ptx
