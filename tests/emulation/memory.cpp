// The emulated GPU's memory: each block is a separate mapping that ends at an inaccessible page.
#include <sys/mman.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "tests/emulation/emulation.h"

namespace emulation {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kMostBytes = std::size_t{16} << 30;  // of one block; more is out of memory
constexpr std::size_t kMostPoisoned = std::size_t{64} << 20;

std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

struct Block {
  char* map;
  std::size_t length, bytes;  // of the mapping without the last page, and of the request
};

// Never destroyed: static destructors may still free tensors.
std::map<char*, Block>& blocks() {
  static auto* const all = new std::map<char*, Block>;
  return *all;
}
std::map<char*, std::size_t>& pinned() {
  static auto* const all = new std::map<char*, std::size_t>;
  return *all;
}
int open_count = 0, to_refuse = 0;
void (*page_touched)(const char*, std::size_t) = nullptr;

void allow(const Block& block, int rights) {
  if (mprotect(block.map, block.length, rights) != 0) stop("mprotect failed");
}
void allow_all(int rights) {
  for (const auto& [start, block] : blocks()) allow(block, rights);
}

}  // namespace

void stop(const char* format, ...) {
  std::fputs("emulated GPU: ", stderr);
  va_list values;
  va_start(values, format);
  std::vfprintf(stderr, format, values);
  va_end(values);
  std::fputc('\n', stderr);
  describe_running();
  std::abort();
}

void refuse_memory(int requests) {
  to_refuse = requests;
}

void* take_memory(std::size_t bytes) {
  if (bytes > kMostBytes || (to_refuse > 0 && to_refuse-- > 0)) return nullptr;
  const std::size_t used = round_up(bytes, 16), length = round_up(used, kPage);
  void* const mapping = mmap(nullptr, length + kPage, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) return nullptr;
  char* const map = static_cast<char*>(mapping);
  if (mprotect(map + length, kPage, PROT_NONE) != 0) stop("mprotect failed");
  if (length <= kMostPoisoned && !counts_only()) std::memset(map, 0xff, length);
  const Block block{map, length, bytes};
  if (open_count == 0) allow(block, PROT_NONE);
  char* const start = map + length - used;
  blocks()[start] = block;
  return start;
}

void give_memory_back(void* memory) {
  const auto found = blocks().find(static_cast<char*>(memory));
  if (found == blocks().end()) stop("%p is freed and was not allocated, or was freed before", memory);
  munmap(found->second.map, found->second.length + kPage);
  blocks().erase(found);
}

void* take_pinned(std::size_t bytes) {
  void* const memory = std::malloc(bytes);
  pinned()[static_cast<char*>(memory)] = bytes;
  return memory;
}
void give_pinned_back(void* memory) {
  if (pinned().erase(static_cast<char*>(memory)) == 0) stop("%p is freed and is not pinned memory", memory);
  std::free(memory);
}
bool is_pinned(const void* address) {
  const char* const at = static_cast<const char*>(address);
  const auto next = pinned().upper_bound(const_cast<char*>(at));
  if (next == pinned().begin()) return false;
  const auto& [start, bytes] = *std::prev(next);
  return at < start + bytes;
}

OpenMemory::OpenMemory() {
  if (open_count++ == 0) allow_all(PROT_READ | PROT_WRITE);
}
OpenMemory::~OpenMemory() {
  if (--open_count == 0) allow_all(PROT_NONE);
}

void watch_pages(void (*touched)(const char*, std::size_t)) {
  page_touched = touched;
  allow_all(touched == nullptr ? PROT_READ | PROT_WRITE : PROT_NONE);
}
bool open_page(const void* address) {
  const char* const at = static_cast<const char*>(address);
  if (page_touched == nullptr) return false;
  for (const auto& [start, block] : blocks()) {
    if (at < block.map || at >= block.map + block.length) continue;
    char* const page = block.map + static_cast<std::size_t>(at - block.map) / kPage * kPage;
    if (mprotect(page, kPage, PROT_READ | PROT_WRITE) != 0) stop("mprotect failed");
    const char* const first = page < start ? start : page;
    page_touched(first, static_cast<std::size_t>(page + kPage - first));
    return true;
  }
  return false;
}

void describe_address(const void* address) {
  const char* const at = static_cast<const char*>(address);
  for (const auto& [start, block] : blocks()) {
    if (at < block.map || at >= block.map + block.length + kPage) continue;
    std::fprintf(stderr, "  %p is at byte %td of a block of %zu bytes%s\n", address, at - start, block.bytes,
                 open_count == 0 ? ", and the host may not touch the GPU's memory" : "");
    return;
  }
  std::fprintf(stderr, "  %p is in no block of the GPU's memory\n", address);
}

void describe_blocks() {
  for (const auto& [start, block] : blocks()) std::fprintf(stderr, "  a block of %zu bytes\n", block.bytes);
}

}  // namespace emulation
