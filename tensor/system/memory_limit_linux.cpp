// What the program does before anything else: it notes whether SIGHUP is ignored, which a library may change as it is
// loaded, and does what a limit on memory asks. OpenBLAS starts threads when it is loaded, and its newer versions take
// a buffer then; where the system refuses one it asks again without an end. The functions of the section .preinit_array
// run before the constructors of shared libraries. Only the system and the C library can be called there.
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "tensor/system/process.h"

namespace {

// One buffer of OpenBLAS, and what its constructor needs beside it; what each thread takes (as in
// ops/product/openblas.cpp), and a small run with the libraries that are loaded.
constexpr std::size_t kMiB = std::size_t{1} << 20, kBufferBytes = 128 * kMiB, kBesideBytes = 8 * kMiB;
constexpr std::size_t kThreadBytes = 200 * kMiB, kSmallRunBytes = 456 * kMiB;

[[noreturn]] void refuse(std::size_t limit) {
  const auto threads = static_cast<std::size_t>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  char text[256];
  const int written = std::snprintf(
      text, std::size(text),
      "error: memory: the program needs %zu MiB of virtual memory for OpenBLAS, and the limit is "
      "%zu KiB (ulimit -v %zu would do, with more for a large model)\n",
      kBufferBytes >> 20, limit >> 10, (kSmallRunBytes + threads * kThreadBytes) >> 10);
  if (write(STDERR_FILENO, text, static_cast<std::size_t>(written)) != written) _exit(1);
  _exit(1);
}

// Under a limit OpenBLAS is not to have threads of its own (it works on those of the thread pool): they could be left
// asking for a buffer. That can only be said in the environment of a new program: this one, begun anew.
void begin_under_memory_limit(int, char** argv, char** environment) {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  constexpr std::size_t bytes = kBufferBytes + kBesideBytes;
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) refuse(limit.rlim_cur);
  munmap(memory, bytes);
  static char one_thread[] = "OPENBLAS_NUM_THREADS=1";
  constexpr std::size_t name_length = std::size(one_thread) - 2;
  std::size_t count = 0;
  for (; environment[count] != nullptr; ++count)
    if (std::strncmp(environment[count], one_thread, name_length) == 0) return;
  char** const changed = static_cast<char**>(std::malloc((count + 2) * sizeof(char*)));
  if (changed == nullptr) return;
  std::copy_n(environment, count, changed);
  changed[count] = one_thread;
  changed[count + 1] = nullptr;
  execve("/proc/self/exe", argv, changed);  // returns where there is no /proc: go on as before
  std::free(changed);
}

void note_hangup(int, char**, char**) {
  struct sigaction now {};
  eddy::hangup_was_ignored = sigaction(SIGHUP, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

[[gnu::section(".preinit_array"), gnu::used]] void (*const kNoteHangup)(int, char**, char**) = note_hangup;
[[gnu::section(".preinit_array"), gnu::used]] void (*const kBegin)(int, char**,
                                                                   char**) = begin_under_memory_limit;

}  // namespace
