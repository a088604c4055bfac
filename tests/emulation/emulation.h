// CUDA's threads, memory and streams on the host, to test kernels without a GPU. README.md says what this
// checks and what it cannot. The headers in include/ replace the toolkit's and use the functions below.
//
// Every error ends the program with a line that names the kernel, since a kernel cannot throw.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

struct EmulatedStream;

namespace emulation {

// Prints "emulated GPU: <text>" and what is running, and aborts.
[[noreturn]] void stop(const char* format, ...) __attribute__((format(printf, 1, 2)));

// ---- devices (device.cpp)

// Sets how many GPUs CUDA shows from now on, all alike; 1 at the start. The first one has the stream.
void show_devices(int count);
// The current device of the process: threads do not have their own.
int current_device();
// From now on the GPU has the sizes of an H200, and its kernels, products and copies within its memory are
// counted and not computed: a step of any size takes seconds, and every number keeps the memory's initial
// value, 0. Must be called before a GPU is opened.
void only_count();
bool counts_only();
int multiprocessors();

// ---- memory (memory.cpp)

// Allocates a block whose bytes are all 255, which is NaN, and whose end, rounded up to 16 bytes, is followed
// by an inaccessible page. Returns nullptr when there is not enough memory.
void* take_memory(std::size_t bytes);
// Makes the next `requests` allocations return nullptr.
void refuse_memory(int requests);
void give_memory_back(void* block);
// Allocates host memory that copies read when they run, not when they are enqueued.
void* take_pinned(std::size_t bytes);
void give_pinned_back(void* memory);
bool is_pinned(const void* address);
// Blocks can be read and written only while an object of this class exists.
class OpenMemory {
 public:
  OpenMemory();
  ~OpenMemory();
  OpenMemory(const OpenMemory&) = delete;
  OpenMemory& operator=(const OpenMemory&) = delete;
};
// Closes all blocks; from then on each page of one opens at its first access, after `touched` got its bytes.
// nullptr opens all blocks again.
void watch_pages(void (*touched)(const char* start, std::size_t bytes));
// Opens the page of an address, for the handler of forbidden accesses. Returns false where that is not the reason.
bool open_page(const void* address);
// Prints what is at an address, for the report of a forbidden access.
void describe_address(const void* address);
// Prints the size of every live block.
void describe_blocks();

// ---- threads (threads.cpp)

struct Launch {
  const char* kernel;
  std::int64_t blocks;
  int threads, shared_bytes;
  const void* function = nullptr;  // the kernel and its arguments, for the record (record.h)
  const void* arguments = nullptr;
  std::size_t argument_bytes = 0;
  bool dependent = false;  // on a GPU it may begin before the launch ahead has ended (dependent_launch.cuh)
};
// Runs a kernel's body once for every thread, block by block, both in random order. Each thread has its own
// stack and runs until it waits for others.
void run(const Launch& launch, const std::function<void()>& body);
// Returns how often each kernel was launched so far; "memcpy" and "memset" for copies and fills of bytes on
// the GPU, "product" for products.
std::map<std::string, std::int64_t> launches();
void count_launch(const char* what);
// Returns the block's dynamic shared memory: NaN at first, with an inaccessible page after its end.
void* shared_memory();
std::int64_t shared_bytes();
// Returns how many blocks have run, over all launches; of blocks that are resident together the number after the last.
unsigned block_count();
// Returns the place of the block among those that are resident together; 0 of one that runs alone.
inline constexpr int kMostBlocks = 132;  // one on each multiprocessor of an H100
int place_of_block();
// Waits for all threads of the block.
void barrier();
// Waits for all threads of the warp. Returns a pointer to the values of the lanes, kLaneBytes apart, which
// stay valid until this thread's next call but one.
constexpr std::size_t kLaneBytes = 64;
const unsigned char* exchange(const void* mine, std::size_t bytes);
// ---- barriers of phases and copies of boxes (transactions.cpp), as cuda/core/bulk_copy.cuh says

void init_phases(void* barrier, int arrivals);
void publish_phases();
void arrive_at_phase(void* barrier, std::int64_t bytes);
void wait_for_phase(void* barrier, int parity);
// `address`: of `to`, in shared memory.
void start_box_copy(void* to, std::uint64_t address, const void* map, const int (&at)[4], void* barrier);

// Prints what is running, for reports; nothing between kernels.
void describe_running();

// ---- products (products.cpp)

// From now on cuBLASLt has no algorithm for products with this epilogue (the value in its header); 0 restores
// all.
void refuse_epilogue(std::uint32_t epilogue);
// An algorithm that cuBLASLt proposes: what a product by it takes of the GPU's time, and what it does.
struct Proposal {
  double ms = 0;
  bool splits = false;  // adds the sums of two halves of the terms: other bits
  bool fails = false;   // the library proposes it, and refuses to run it
};
// What it proposes for every product from now on, in this order; {} is the start's: one that takes no time.
void propose(std::vector<Proposal> proposals);
// Sets the library's version; 130000, the start's, is 13.0.0. Algorithms of another version are refused.
void set_library_version(std::size_t version);
// Returns the products so far that have rows or matrices which do not begin at multiples of 16 bytes, in
// words, and how often each was called. The library's fastest algorithms need that alignment.
std::map<std::string, std::int64_t> unaligned_products();

// ---- the GPU's time (stream.cpp)

// Has the GPU take so long for the work that runs, beside the one millisecond between any two events.
void spend(double ms);

// ---- other processes (peers.cpp)

// What stands in for the other processes of NCCL: gets the bytes that were sent to one,
// and returns as many as expected.
using PlayPeer = std::function<std::vector<unsigned char>(int peer, const std::vector<unsigned char>& sent,
                                                          std::size_t expected)>;
// What is wrong with them from now on. A group of calls on the stream: it never ends; or it does not, and NCCL says so.
// A call within a group fails. NCCL says that a process has ended as soon as the group is closed. They do not join.
enum class PeerFault { none, hangs, dies_later, refuses, dies, never_joins };
void play_peers(PlayPeer other, PeerFault fault = PeerFault::none);
// Whether a group is open or a communicator is alive.
bool peers_left_open();

// ---- streams (stream.cpp)

// Enqueues work on a stream, or adds it to the graph that is being captured. It runs when the host waits for the
// stream, or when a queue has become long.
void submit(EmulatedStream* stream, std::function<void()> work);
// The stream does not go on with it before `may_run` says so.
void submit_when(EmulatedStream* stream, std::function<bool()> may_run, std::function<void()> work);
// Runs what can be run of all queues.
void finish();

}  // namespace emulation
