// A library for LD_PRELOAD: it stands in front of the C library's calls on files below one folder, counts
// them, and at one of them kills the process or lets the call fail. Calls inside the C library (fopen, fclose)
// are not seen; the program writes what must last by the calls below. It also counts allocations, and lets some fail.
//
//   FAULTS_UNDER=/folder   count calls on files below it
//   FAULTS_LOG=/file       append a line "NUMBER CALL PATH" for each, from 1
//   FAULTS_AT=NUMBER       the call to act at
//   FAULTS_DO=kill         SIGKILL before the call
//   FAULTS_DO=tear         write half of the bytes, then SIGKILL; at calls that write nothing: kill
//   FAULTS_DO=ERRNO        a number: the call fails with it, and has no effect but that close() closes
//
//   FAULTS_MEMORY_AT=NUMBER      operator new, a mapping of 2 MiB or more, or a thread that fails, counted from main on
//   FAULTS_MEMORY_TIMES=NUMBER   so many in a row (1)
//   FAULTS_MEMORY_LOG=/file      write how many there were before the first counted call, and in all
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

// Memory of fixed size only: these functions may be called before main and inside malloc's callers.
struct Path {
  char text[2 * PATH_MAX];
};

Path path_of_descriptor(int file) {
  char link[64];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  Path path;
  const long length = syscall(SYS_readlinkat, AT_FDCWD, link, path.text, sizeof path.text - 1);
  path.text[length > 0 ? length : 0] = '\0';
  return path;
}

Path path_at(int folder, const char* name) {
  Path path;
  path.text[0] = '\0';
  if (name == nullptr) return path;
  if (name[0] != '/' && folder == AT_FDCWD) {
    if (syscall(SYS_getcwd, path.text, sizeof path.text) < 0) path.text[0] = '\0';
  } else if (name[0] != '/') {
    path = path_of_descriptor(folder);
  }
  const std::size_t length = std::strlen(path.text);
  std::snprintf(path.text + length, sizeof path.text - length, "%s%s", name[0] == '/' ? "" : "/", name);
  return path;
}

// Before main no program can say what it lacks: allocations count from there.
using Main = int(int, char**, char**);
Main* main_of_program = nullptr;
bool in_main = false;
std::atomic<long> allocations{0}, allocations_before{0};

int counted_main(int count, char** words, char** variables) {
  in_main = true;
  return main_of_program(count, words, variables);
}

long number_in(const char* variable, long otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atol(text);
}

// Counts an allocation. Returns whether it is to fail.
bool lacks_memory() {
  if (!in_main) return false;
  static const long first = number_in("FAULTS_MEMORY_AT", 0), times = number_in("FAULTS_MEMORY_TIMES", 1);
  const long number = ++allocations;
  return first > 0 && number >= first && number - first < times;
}

[[gnu::destructor]] void log_allocations() {
  const char* const file = std::getenv("FAULTS_MEMORY_LOG");
  if (file == nullptr) return;
  char line[64];
  const int length =
      std::snprintf(line, sizeof line, "%ld %ld\n", allocations_before.load(), allocations.load());
  const long log = syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (log < 0) return;
  syscall(SYS_write, log, line, length);
  syscall(SYS_close, log);
}

void* map_memory(void* at, size_t bytes, int access, int flags, int file, off_t from) {
  if ((flags & MAP_ANONYMOUS) != 0 && bytes >= size_t{1} << 21 && lacks_memory()) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  const long address = syscall(SYS_mmap, at, bytes, access, flags, file, from);
  return reinterpret_cast<void*>(address);  // MAP_FAILED is -1
}

// What the next library calls by this name.
template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

bool is_counted(const Path& path) {
  const char* const under = std::getenv("FAULTS_UNDER");
  if (under == nullptr || *under == '\0') return false;
  const std::size_t length = std::strlen(under);
  return std::strncmp(path.text, under, length) == 0 &&
         (path.text[length] == '/' || path.text[length] == '\0');
}

void log_call(int number, const char* call, const Path& path) {
  const char* const file = std::getenv("FAULTS_LOG");
  if (file == nullptr) return;
  char line[sizeof(Path) + 64];
  const int length = std::snprintf(line, sizeof line, "%d %s %s\n", number, call, path.text);
  const long log = syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log < 0) return;
  syscall(SYS_write, log, line, length);
  syscall(SYS_close, log);
}

[[noreturn]] void end_process() {
  syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
  for (;;) pause();
}

// Counts a call. Returns the error it is to fail with; 0: none.
int fault_at(const char* call, const Path& path, bool* torn = nullptr) {
  static std::atomic<int> calls{0};
  if (!is_counted(path)) return 0;
  const int number = ++calls, before = errno;
  if (number == 1) allocations_before = allocations.load();
  log_call(number, call, path);
  const char* const at = std::getenv("FAULTS_AT");
  const char* const what = std::getenv("FAULTS_DO");
  errno = before;
  if (at == nullptr || what == nullptr || std::atoi(at) != number) return 0;
  if (std::strcmp(what, "tear") == 0 && torn != nullptr) {
    *torn = true;
    return 0;
  }
  if (std::strcmp(what, "kill") == 0 || std::strcmp(what, "tear") == 0) end_process();
  return std::atoi(what);
}

int failed(int error) {
  errno = error;
  return -1;
}

int open_at(const char* call, int folder, const char* name, int flags, mode_t mode) {
  if (const int error = fault_at(call, path_at(folder, name))) return failed(error);
  return static_cast<int>(syscall(SYS_openat, folder, name, flags, mode));
}

// The third argument of open, which is there only when a file may be made.
mode_t mode_of(int flags, std::va_list arguments) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? static_cast<mode_t>(va_arg(arguments, int)) : mode_t{0};
}

int rename_at(const char* call, int from_folder, const char* from, int to_folder, const char* to,
              unsigned flags) {
  if (const int error = fault_at(call, path_at(to_folder, to))) return failed(error);
  return static_cast<int>(syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
}

int unlink_at(const char* call, int folder, const char* name, int flags) {
  if (const int error = fault_at(call, path_at(folder, name))) return failed(error);
  return static_cast<int>(syscall(SYS_unlinkat, folder, name, flags));
}

}  // namespace

// As in the C++ library, the program's handler hears of it first.
[[noreturn]] static void refuse_memory() {
  if (const std::new_handler handler = std::get_new_handler()) handler();  // Eddy's throws
  throw std::bad_alloc();
}

// Those of arrays and of std::nothrow call these, and what they return is freed by free().
void* operator new(std::size_t bytes) {
  void* const memory = lacks_memory() ? nullptr : std::malloc(bytes);
  if (memory == nullptr) refuse_memory();
  return memory;
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  const auto unit = static_cast<std::size_t>(alignment);
  void* const memory = lacks_memory() ? nullptr : std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit);
  if (memory == nullptr) refuse_memory();
  return memory;
}

extern "C" {

int __libc_start_main(Main* program, int count, char** words, void (*begin)(), void (*end)(),
                      void (*end_of_loader)(), void* stack) {
  main_of_program = program;
  return next<decltype(__libc_start_main)>("__libc_start_main")(counted_main, count, words, begin, end,
                                                                end_of_loader, stack);
}
int pthread_create(pthread_t* thread, const pthread_attr_t* how, void* (*work)(void*),
                   void* argument) noexcept {
  if (lacks_memory()) return EAGAIN;
  return next<int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>("pthread_create")(
      thread, how, work, argument);
}
void* mmap(void* at, size_t bytes, int access, int flags, int file, off_t from) noexcept {
  return map_memory(at, bytes, access, flags, file, from);
}
void* mmap64(void* at, size_t bytes, int access, int flags, int file, off64_t from) noexcept {
  return map_memory(at, bytes, access, flags, file, from);
}

int open(const char* name, int flags, ...) {
  std::va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return open_at("open", AT_FDCWD, name, flags, mode);
}
int open64(const char* name, int flags, ...) {
  std::va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return open_at("open", AT_FDCWD, name, flags, mode);
}
int openat(int folder, const char* name, int flags, ...) {
  std::va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return open_at("openat", folder, name, flags, mode);
}
int openat64(int folder, const char* name, int flags, ...) {
  std::va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return open_at("openat", folder, name, flags, mode);
}

ssize_t write(int file, const void* data, size_t bytes) {
  bool torn = false;
  if (const int error = fault_at("write", path_of_descriptor(file), &torn)) return failed(error);
  const long written = syscall(SYS_write, file, data, torn ? bytes / 2 : bytes);
  if (torn) end_process();
  return written;
}
ssize_t pwrite(int file, const void* data, size_t bytes, off_t at) {
  bool torn = false;
  if (const int error = fault_at("pwrite", path_of_descriptor(file), &torn)) return failed(error);
  const long written = syscall(SYS_pwrite64, file, data, torn ? bytes / 2 : bytes, at);
  if (torn) end_process();
  return written;
}
ssize_t pwrite64(int file, const void* data, size_t bytes, off64_t at) {
  return pwrite(file, data, bytes, at);
}

int fsync(int file) {
  if (const int error = fault_at("fsync", path_of_descriptor(file))) return failed(error);
  return static_cast<int>(syscall(SYS_fsync, file));
}
int fdatasync(int file) {
  if (const int error = fault_at("fdatasync", path_of_descriptor(file))) return failed(error);
  return static_cast<int>(syscall(SYS_fdatasync, file));
}
int close(int file) {
  const int error = fault_at("close", path_of_descriptor(file));
  const int result =
      static_cast<int>(syscall(SYS_close, file));  // Linux closes also when it reports an error
  return error != 0 ? failed(error) : result;
}
int ftruncate(int file, off_t length) noexcept {
  if (const int error = fault_at("ftruncate", path_of_descriptor(file))) return failed(error);
  return static_cast<int>(syscall(SYS_ftruncate, file, length));
}
int ftruncate64(int file, off64_t length) noexcept {
  return ftruncate(file, length);
}

int rename(const char* from, const char* to) noexcept {
  return rename_at("rename", AT_FDCWD, from, AT_FDCWD, to, 0);
}
int renameat(int from_folder, const char* from, int to_folder, const char* to) noexcept {
  return rename_at("renameat", from_folder, from, to_folder, to, 0);
}
int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  return rename_at("renameat2", from_folder, from, to_folder, to, flags);
}
int unlink(const char* name) noexcept {
  return unlink_at("unlink", AT_FDCWD, name, 0);
}
int unlinkat(int folder, const char* name, int flags) noexcept {
  return unlink_at("unlinkat", folder, name, flags);
}
int rmdir(const char* name) noexcept {
  return unlink_at("rmdir", AT_FDCWD, name, AT_REMOVEDIR);
}
int remove(const char* name) noexcept {
  if (const int error = fault_at("remove", path_at(AT_FDCWD, name))) return failed(error);
  if (syscall(SYS_unlinkat, AT_FDCWD, name, 0) == 0) return 0;
  return errno == EISDIR ? static_cast<int>(syscall(SYS_unlinkat, AT_FDCWD, name, AT_REMOVEDIR)) : -1;
}
int mkdir(const char* name, mode_t mode) noexcept {
  if (const int error = fault_at("mkdir", path_at(AT_FDCWD, name))) return failed(error);
  return static_cast<int>(syscall(SYS_mkdirat, AT_FDCWD, name, mode));
}
int mkdirat(int folder, const char* name, mode_t mode) noexcept {
  if (const int error = fault_at("mkdirat", path_at(folder, name))) return failed(error);
  return static_cast<int>(syscall(SYS_mkdirat, folder, name, mode));
}

}  // extern "C"
