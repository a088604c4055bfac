// The emulated GPU's threads: one runs at a time, on a stack of its own, until it waits for others.
//
// Threads are switched by _setjmp and _longjmp between the stacks, some 20 ns; swapcontext would make two
// system calls each time. A thread that has ended waits for the next block and is reused.
#include <sys/mman.h>
#include <ucontext.h>
#include <csetjmp>
#include <csignal>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "tests/emulation/include/cuda_runtime.h"
#include "tests/emulation/record.h"
#include "tests/emulation/together.h"

EmulatedIndex threadIdx, blockIdx;
EmulatedSize blockDim, gridDim;

namespace emulation {
namespace {

constexpr int kWarp = 32;
constexpr int kMostThreads = 1024;            // of a block
constexpr int kMostResident = 132 * 512;      // threads of resident blocks
constexpr int kBlocks = 16, kThreads = 8192;  // the same, unless EDDY_EMULATED_BLOCKS asks for more
// A power of two between stacks would put the tops of all of them into the same few lines of every cache.
constexpr std::size_t kPage = 4096, kLine = 64, kStackBytes = (256 << 10) + kPage;
constexpr std::size_t kMostShared = 227 << 10;
constexpr std::uint32_t kMostCopies = 1 << 16;  // of boxes on their way, to choose one

enum class State : unsigned char { ready, at_barrier, at_exchange, waiting, ended };

struct Thread {
  std::jmp_buf context;
  bool started = false;
  int turn = 0;                                 // which of the two values the next exchange writes
  const std::function<bool()>* over = nullptr;  // what it waits for
};

struct Machine {
  Thread threads[kMostResident];  // of one block, or of all resident blocks in order
  State states[kMostResident];    // theirs, together, since every round reads all of them
  // [turn][thread]: a lane may write its next value while others still read the last one.
  alignas(64) unsigned char values[2][kMostResident][kLaneBytes];
  char* stacks = nullptr;
  char* shared_end[kMostBlocks] = {};  // the start of the inaccessible page
  char* shared[kMostBlocks] = {};
  unsigned blocks = 0;  // that have run or are running
  std::jmp_buf scheduler;
  const Launch* launch = nullptr;
  const std::function<void()>* body = nullptr;
  int current = -1;
  bool resident = false;
  std::uint64_t random = 0x9e3779b97f4a7c15u;
};
Machine machine;

// The resident blocks that there may be.
int wanted_blocks() {
  static const int wanted = [] {
    const char* const given = std::getenv("EDDY_EMULATED_BLOCKS");
    const int blocks = given == nullptr ? kBlocks : std::atoi(given);
    if (blocks < 1 || blocks > kMostBlocks) stop("EDDY_EMULATED_BLOCKS: %d (1 to %d)", blocks, kMostBlocks);
    return blocks;
  }();
  return wanted;
}
int most_threads() {
  return wanted_blocks() > kBlocks ? kMostResident : kThreads;
}

std::map<std::string, std::int64_t>& launch_counts() {
  static std::map<std::string, std::int64_t> counts;
  return counts;
}

char* map_bytes(std::size_t bytes) {
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) stop("no memory for stacks");
  return static_cast<char*>(memory);
}

std::uint32_t random_below(std::uint32_t end) {
  std::uint64_t& x = machine.random;  // xorshift64
  x ^= x << 13;
  x ^= x >> 7;
  x ^= x << 17;
  return static_cast<std::uint32_t>((x >> 32) * end >> 32);
}

// The numbers 0 .. count - 1 in random order: a random start and a random step.
class RandomOrder {
 public:
  explicit RandomOrder(std::uint32_t count) : count_(count), at_(random_below(count)) {
    do step_ = 1 + random_below(count);
    while (std::gcd(step_, count) != 1);
  }
  std::uint32_t next() {
    at_ += step_;  // at most the count, so that one subtraction is the remainder
    if (at_ >= count_) at_ -= count_;
    return at_;
  }

 private:
  std::uint32_t count_, at_, step_ = 1;
};

// Returns to the scheduler until it resumes this thread.
__attribute__((noinline)) void leave(State state) {
  Thread& thread = machine.threads[machine.current];
  machine.states[machine.current] = state;
  if (_setjmp(thread.context) == 0) _longjmp(machine.scheduler, 1);
}

void thread_main() {
  for (;;) {
    (*machine.body)();
    leave(State::ended);
  }
}

__attribute__((noinline)) void start_thread(int index) {
  ucontext_t context;
  if (getcontext(&context) != 0) stop("getcontext failed");
  char* const stack = machine.stacks + static_cast<std::size_t>(index) * kStackBytes;
  // A page that stops an overflow. A process may have some 65,000 mappings: of many threads every eighth has one.
  if (index < kThreads || index % 8 == 0) mprotect(stack, kPage, PROT_NONE);
  context.uc_stack.ss_sp = stack + kPage;
  // A page lower in the next one, and lines lower in the page: no cache has to hold all tops in one place.
  context.uc_stack.ss_size = kStackBytes - kPage - static_cast<std::size_t>(index) % (kPage / kLine) * kLine;
  context.uc_link = nullptr;
  makecontext(&context, thread_main, 0);
  setcontext(&context);
}

__attribute__((noinline)) void resume(int index) {
  machine.current = index;
  if (machine.resident) blockIdx.x = static_cast<unsigned>(index / machine.launch->threads);
  threadIdx.x = static_cast<unsigned>(index % machine.launch->threads);
  if (_setjmp(machine.scheduler) != 0) return;
  Thread& thread = machine.threads[machine.current];
  if (thread.started) _longjmp(thread.context, 1);
  thread.started = true;
  start_thread(machine.current);
}

// The threads of resident blocks at once, or of a single block: runs each until all have ended.
class Run {
 public:
  Run(int blocks, int threads_each)
      : blocks_(blocks), threads_each_(threads_each), threads_(blocks * threads_each) {
    for (int i = 0; i < threads_; ++i) {
      machine.states[i] = State::ready;
      machine.threads[i].turn = 0;
    }
    ready_ = threads_;
    std::fill_n(waiting_, (threads_ + kWarp - 1) / kWarp, 0);
  }

  // Every round resumes the threads that are ready, in random order.
  void until_all_ended() {
    do {
      while (ready_ > 0) {
        RandomOrder order(static_cast<std::uint32_t>(threads_));
        for (int i = 0; i < threads_; ++i) {
          const int index = static_cast<int>(order.next());
          if (machine.states[index] == State::ready && exchanges(index)) run_ahead(index / kWarp);
        }
        if (release_waiting() == 0) continue;
        while (random_below(2) == 0 && complete_copy(random_below(kMostCopies))) {
        }
      }
      machine.current = -1;
    } while (release_barriers());
  }

 private:
  // Resumes a thread. Returns whether it is the last one of its warp to reach an exchange.
  bool exchanges(int index) {
    resume(index);
    --ready_;
    waits_ += machine.states[index] == State::waiting;
    if (machine.states[index] != State::at_exchange || ++waiting_[index / kWarp] < kWarp) return false;
    std::fill_n(&machine.states[index / kWarp * kWarp], kWarp, State::ready);
    ready_ += kWarp;
    waiting_[index / kWarp] = 0;
    return true;
  }

  // After an exchange a warp goes on with the other threads, or alone for some exchanges, so that it may be far
  // ahead of others: in lockstep, warps that exchange would wait for each other as at a barrier, and a missing
  // barrier would go unnoticed. Alone, its threads also stay in the caches.
  void run_ahead(int warp) {
    constexpr std::uint32_t kMostAhead = 200;  // more than the exchanges of a product of tiles
    if (random_below(2) == 0) return;
    bool goes_on = true;
    for (std::uint32_t left = random_below(kMostAhead); goes_on && left > 0; --left) {
      goes_on = false;
      RandomOrder order(kWarp);
      for (int i = 0; i < kWarp; ++i) goes_on |= exchanges(warp * kWarp + static_cast<int>(order.next()));
    }
  }

  // Where all threads wait at barriers or have ended: releases whom it can. Returns false once all have ended.
  bool release_barriers() {
    int ended = 0, at_barrier = 0, waiting = 0;
    for (int i = 0; i < threads_; ++i) {
      ended += machine.states[i] == State::ended;
      at_barrier += machine.states[i] == State::at_barrier;
      waiting += machine.states[i] == State::waiting;
    }
    if (ended == threads_) return end_of_phases(), false;
    for (int block = 0; block < blocks_; ++block) release_block(block);
    release_waiting();
    if (ready_ == 0 && !complete_copy(random_below(kMostCopies)))
      stop(
          "threads wait for others that do not come: of %d, %d have ended, %d wait at a barrier, %d in a "
          "warp, %d for a phase or a turn",
          threads_, ended, at_barrier, threads_ - ended - at_barrier - waiting, waiting);
    return true;
  }

  // Releases the threads of a block if all wait at its barrier.
  void release_block(int block) {
    const int first = block * threads_each_;
    for (int i = first; i < first + threads_each_; ++i)
      if (machine.states[i] != State::at_barrier) return;
    release(first, first + threads_each_);
  }

  // Releases the threads whose wait is over; returns how many others wait.
  int release_waiting() {
    int left = 0;
    for (int i = 0; i < threads_ && waits_ > 0; ++i) {
      if (machine.states[i] != State::waiting) continue;
      if (!(*machine.threads[i].over)()) {
        ++left;
        continue;
      }
      machine.states[i] = State::ready;
      ++ready_;
      --waits_;
    }
    return left;
  }

  void release(int begin, int end) {
    for (int i = begin; i < end; ++i) machine.states[i] = State::ready;
    ready_ += end - begin;
  }

  int blocks_, threads_each_, threads_;
  int ready_ = 0, waits_ = 0;           // threads that can go on, and that wait_until holds
  int waiting_[kMostResident / kWarp];  // threads of each warp at an exchange
};

void make_shared(int bytes) {
  if (static_cast<std::size_t>(bytes) > kMostShared) stop("%d bytes of shared memory are too many", bytes);
  char*& end = machine.shared_end[place_of_block()];
  if (end == nullptr) {
    const std::size_t length = (kMostShared + kPage - 1) / kPage * kPage;
    end = map_bytes(length + kPage) + length;
    mprotect(end, kPage, PROT_NONE);
  }
  const std::size_t used = (static_cast<std::size_t>(bytes) + 15) / 16 * 16;
  machine.shared[place_of_block()] = end - used;
  std::memset(end - used, 0xff, used);
}

// Opens a page whose first access is recorded; else names the kernel and the thread before the program ends.
void report_fault(int, siginfo_t* info, void*) {
  if (open_page(info->si_addr)) return;
  std::signal(SIGSEGV, SIG_DFL);
  std::signal(SIGBUS, SIG_DFL);
  std::fputs("emulated GPU: a thread touches memory that it may not touch\n", stderr);
  describe_running();
  describe_address(info->si_addr);
  std::abort();
}

// Reports faults while a kernel runs, and restores the former handlers after.
class WatchFaults {
 public:
  WatchFaults() {
    static char* const handler_stack = map_bytes(std::size_t{64} << 10);
    stack_t own{};
    own.ss_sp = handler_stack;
    own.ss_size = std::size_t{64} << 10;
    sigaltstack(&own, &stack_before_);
    struct sigaction action {};
    action.sa_sigaction = report_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, &segv_before_);
    sigaction(SIGBUS, &action, &bus_before_);
  }
  ~WatchFaults() {
    sigaction(SIGSEGV, &segv_before_, nullptr);
    sigaction(SIGBUS, &bus_before_, nullptr);
    sigaltstack(&stack_before_, nullptr);
  }
  WatchFaults(const WatchFaults&) = delete;
  WatchFaults& operator=(const WatchFaults&) = delete;

 private:
  struct sigaction segv_before_ {
  }, bus_before_{};
  stack_t stack_before_{};
};

}  // namespace

std::map<std::string, std::int64_t> launches() {
  return launch_counts();
}

void count_launch(const char* what) {
  ++launch_counts()[what];
}

namespace {
void prepare(const Launch& launch, const std::function<void()>& body, bool resident) {
  count_launch(launch.kernel);
  if (launch.threads < 1 || launch.threads > kMostThreads || launch.blocks > 0x7fffffff)
    stop("%s: %lld blocks of %d threads", launch.kernel, static_cast<long long>(launch.blocks),
         launch.threads);
  if (machine.stacks == nullptr)
    machine.stacks = map_bytes(static_cast<std::size_t>(most_threads()) * kStackBytes);
  machine.launch = &launch;
  machine.body = &body;
  machine.resident = resident;
  blockDim.x = static_cast<unsigned>(launch.threads);
  gridDim.x = static_cast<unsigned>(launch.blocks);
}
}  // namespace

void run(const Launch& launch, const std::function<void()>& body) {
  if (counts_only()) return count_launch(launch.kernel);
  prepare(launch, body, false);
  const WatchFaults watch;
  const Recorded recorded(launch, false);
  RandomOrder order(gridDim.x);
  for (std::int64_t i = 0; i < launch.blocks; ++i) {
    blockIdx.x = order.next();
    make_shared(launch.shared_bytes);
    ++machine.blocks;
    Run(1, launch.threads).until_all_ended();
  }
  machine.launch = nullptr;
}

void run_resident(const Launch& launch, const std::function<void()>& body) {
  if (counts_only()) return count_launch(launch.kernel);
  if (launch.blocks > most_resident_blocks(launch.threads) || launch.threads % kWarp != 0)
    stop("%s: %lld blocks of %d threads resident at once (%d at most, of whole warps)", launch.kernel,
         static_cast<long long>(launch.blocks), launch.threads, most_resident_blocks(launch.threads));
  prepare(launch, body, true);
  const WatchFaults watch;
  const Recorded recorded(launch, true);
  for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x) {
    make_shared(launch.shared_bytes);
    ++machine.blocks;
  }
  Run(static_cast<int>(launch.blocks), launch.threads).until_all_ended();
  machine.launch = nullptr;
}

int most_resident_blocks(int threads) {
  if (counts_only()) return multiprocessors();  // whatever blocks need, one fits on each
  return std::min(wanted_blocks(), most_threads() / threads);
}

void wait_until(const std::function<bool()>& over) {
  machine.threads[machine.current].over = &over;
  leave(State::waiting);
}

// Blocks that are not resident together all use the first place, and its shared memory.
int place_of_block() {
  return machine.resident ? static_cast<int>(blockIdx.x) : 0;
}

void* shared_memory() {
  return machine.shared[place_of_block()];
}

std::int64_t shared_bytes() {
  const int place = place_of_block();
  return machine.shared_end[place] - machine.shared[place];
}
unsigned block_count() {
  return machine.blocks;
}

void barrier() {
  leave(State::at_barrier);
}

const unsigned char* exchange(const void* mine, std::size_t bytes) {
  if (bytes > kLaneBytes) stop("an exchange of %zu bytes (%zu at most)", bytes, kLaneBytes);
  const int me = machine.current;
  int& turn = machine.threads[me].turn;
  const int now = turn;
  turn ^= 1;
  if (bytes > 0) std::memcpy(machine.values[now][me], mine, bytes);
  leave(State::at_exchange);
  return machine.values[now][me / kWarp * kWarp];
}

void describe_running() {
  if (machine.launch == nullptr) return;
  std::fprintf(stderr, "  in kernel %s, block %u of %u", machine.launch->kernel, blockIdx.x, gridDim.x);
  if (machine.current >= 0) std::fprintf(stderr, ", thread %d of %u", machine.current, blockDim.x);
  std::fputc('\n', stderr);
}

}  // namespace emulation
