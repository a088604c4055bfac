// CUDA's threads, memory and streams on the host, for tests of the kernels where there is no GPU. README.md
// says what this checks and what it cannot. The headers in include/ stand in for the toolkit's and stand on
// the functions below.
//
// Whatever is wrong ends the program with a line that names the kernel: a kernel cannot throw.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

struct EmulatedStream;

namespace emulation {

// Prints "emulated GPU: <text>" and what is running, and aborts.
[[noreturn]] void stop(const char* format, ...) __attribute__((format(printf, 1, 2)));

// ---- devices (device.cpp)

// How many GPUs CUDA shows from now on, all alike; 1 at the start. The first one has the stream.
void show_devices(int count);
// Of the process: threads do not have one each.
int current_device();
// From here on the GPU is an H200 by its size, and its kernels, products and copies within its memory are
// counted and not done: steps of any size take seconds, and every number is what the memory began with, 0.
// To be called before a GPU is opened.
void only_count();
bool counts_only();
int multiprocessors();

// ---- memory (memory.cpp)

// A block whose bytes are all 255, so NaN as numbers, and whose end, rounded up to 16 bytes, is followed by a
// page that cannot be touched. nullptr when there is not enough.
void* take_memory(std::size_t bytes);
// The next so many requests get nullptr.
void refuse_memory(int requests);
void give_memory_back(void* block);
// Host memory that copies are read from when they run, not when they are asked for.
void* take_pinned(std::size_t bytes);
void give_pinned_back(void* memory);
bool is_pinned(const void* address);
// Blocks can be read and written while one of these exists, and at no other time.
class OpenMemory {
 public:
  OpenMemory();
  ~OpenMemory();
  OpenMemory(const OpenMemory&) = delete;
  OpenMemory& operator=(const OpenMemory&) = delete;
};
// Prints what lies at an address; for the report of an access that is not allowed.
void describe_address(const void* address);
// Prints the size of every live block.
void describe_blocks();

// ---- threads (threads.cpp)

struct Launch {
  const char* kernel;
  std::int64_t blocks;
  int threads, shared_bytes;
};
// Runs a kernel's body once for every thread, block by block, both in random order. Each thread has a stack
// of its own and runs until it waits for others.
void run(const Launch& launch, const std::function<void()>& body);
// How often each kernel was run so far; "memcpy" and "memset" for copies and fills of bytes on the GPU,
// "product" for products.
std::map<std::string, std::int64_t> launches();
void count_launch(const char* what);
// The block's shared memory that the launch asked for: NaN at first, with a page behind its end that cannot
// be touched.
void* shared_memory();
std::int64_t shared_bytes();
// Counts the blocks that have run: changes from each to the next, over launches too.
unsigned block_count();
// Waits for all threads of the block.
void barrier();
// Waits for all threads of the warp; gives a pointer to the value that each lane brought, 64 bytes apart.
// They stay until this thread's next but one call.
constexpr std::size_t kLaneBytes = 64;
const unsigned char* exchange(const void* mine, std::size_t bytes);
// What runs now, for reports; prints nothing between kernels.
void describe_running();

// ---- products (products.cpp)

// From now on cuBLASLt knows no algorithm for products with this epilogue, in its header's numbers; 0 for
// none.
void refuse_epilogue(std::uint32_t epilogue);

// ---- the stream (stream.cpp)

// Puts work at the end of the stream's queue, or into the graph that is being captured. It runs when the host
// waits for the stream, or when the queue has become long.
void submit(EmulatedStream* stream, std::function<void()> work);
// Runs all that is queued.
void finish();

}  // namespace emulation
