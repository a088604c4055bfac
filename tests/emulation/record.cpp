#include "tests/emulation/record.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace emulation {
namespace {

constexpr std::int64_t kMostThreads = 1 << 16;  // of all blocks of a launch
constexpr std::size_t kMostBytes = std::size_t{4} << 20;
constexpr int kMostOfProcess = 8, kMostOfKernel = 24;

struct Piece {
  const char* start;
  std::vector<char> before;
};
std::vector<Piece>& pieces() {
  static auto* const all = new std::vector<Piece>;
  return *all;
}
// What the last launch changed, if it was a dependent one.
std::vector<RecordRange>& changed_ahead() {
  static auto* const all = new std::vector<RecordRange>;
  return *all;
}

const char* folder() {
  static const char* const name = std::getenv("EDDY_RECORD_LAUNCHES");
  return name != nullptr && *name != '\0' && !counts_only() ? name : nullptr;
}

// Names of this program's functions by address, from its symbol table: kernels are not exported.
std::map<std::uint64_t, std::string> read_symbols() {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  ElfW(Ehdr) header;
  if (bytes.size() < sizeof header) stop("this program's file cannot be read");
  std::memcpy(&header, bytes.data(), sizeof header);
  std::vector<ElfW(Shdr)> sections(header.e_shnum);
  std::memcpy(sections.data(), bytes.data() + header.e_shoff, sections.size() * sizeof(ElfW(Shdr)));
  std::map<std::uint64_t, std::string> names;
  for (const ElfW(Shdr) & section : sections) {
    if (section.sh_type != SHT_SYMTAB) continue;
    const char* const strings = bytes.data() + sections[section.sh_link].sh_offset;
    for (std::uint64_t at = 0; at < section.sh_size; at += sizeof(ElfW(Sym))) {
      ElfW(Sym) symbol;
      std::memcpy(&symbol, bytes.data() + section.sh_offset + at, sizeof symbol);
      if ((symbol.st_info & 15) == STT_FUNC && symbol.st_value != 0)
        names[symbol.st_value] = strings + symbol.st_name;
    }
  }
  if (names.empty()) stop("this program has no symbol table, so launches cannot be recorded");
  return names;
}

const std::string& symbol_of(const void* function) {
  static const std::uint64_t base = [] {
    std::uint64_t found = 0;
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* to) {
          *static_cast<std::uint64_t*>(to) = info->dlpi_addr;
          return 1;  // the program is the first one
        },
        &found);
    return found;
  }();
  static const auto* const names = new std::map<std::uint64_t, std::string>(read_symbols());
  const auto found = names->find(reinterpret_cast<std::uint64_t>(function) - base);
  if (found == names->end()) stop("a kernel without a symbol");
  return found->second;
}

bool wanted(const Launch& launch) {
  if (folder() == nullptr || launch.function == nullptr || launch.blocks * launch.threads > kMostThreads)
    return false;
  struct Seen {
    std::int64_t launches = 0;
    int recorded = 0;
    std::set<std::tuple<std::int64_t, int, int>> shapes;
  };
  static auto* const of_kernels = new std::map<const void*, Seen>;
  Seen& seen = (*of_kernels)[launch.function];
  ++seen.launches;
  const bool fresh = seen.shapes.insert({launch.blocks, launch.threads, launch.shared_bytes}).second;
  const bool power = (seen.launches & (seen.launches - 1)) == 0;
  return (fresh || power) && seen.recorded < kMostOfProcess && ++seen.recorded > 0;
}

void touched(const char* start, std::size_t bytes) {
  pieces().push_back({start, std::vector<char>(start, start + bytes)});
}

// The bytes of the pieces that are not as they were. Ranges less than 16 bytes apart are one: of a number that was
// stored some bytes may be as before.
std::vector<RecordRange> changed_ranges() {
  constexpr std::size_t kNear = 16;
  std::vector<RecordRange> ranges;
  for (const Piece& piece : pieces()) {
    std::size_t end = 0;  // of the piece's last range; 0 without one
    for (std::size_t i = 0; i < piece.before.size(); ++i) {
      if (piece.start[i] == piece.before[i]) continue;
      if (end == 0 || i - end >= kNear)
        ranges.push_back({reinterpret_cast<std::uint64_t>(piece.start) + i, 1});
      else
        ranges.back().bytes += i + 1 - end;
      end = i + 1;
    }
  }
  return ranges;
}

template <class T>
void append(std::string& to, const T& value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// A file of its own, although processes that run at the same time record the same kernels.
void write_file(const std::string& symbol, const std::string& text) {
  for (int i = 0; i < kMostOfKernel; ++i) {
    char name[64];
    std::snprintf(name, sizeof name, "/%016zx-%02d.launch", std::hash<std::string>{}(symbol), i);
    const int file =
        open((folder() + std::string(name)).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (file < 0) continue;
    if (write(file, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
      stop("%s%s cannot be written", folder(), name);
    close(file);
    return;
  }
}

}  // namespace

Recorded::Recorded(const Launch& launch, bool resident)
    : launch_(launch),
      resident_(resident),
      records_(wanted(launch)),
      watches_(records_ || (launch.dependent && folder() != nullptr)) {
  if (!watches_) return;
  pieces().clear();
  watch_pages(touched);
}

Recorded::~Recorded() {
  const std::vector<RecordRange> ahead = std::exchange(changed_ahead(), {});
  if (!watches_) return;
  watch_pages(nullptr);
  if (launch_.dependent) changed_ahead() = changed_ranges();
  if (!records_) return;
  const std::string& symbol = symbol_of(launch_.function);
  RecordHeader header;
  header.blocks = static_cast<std::int32_t>(launch_.blocks);
  header.threads = launch_.threads;
  header.shared_bytes = launch_.shared_bytes;
  header.resident = resident_ ? 1 : 0;
  header.symbol_bytes = static_cast<std::int32_t>(symbol.size());
  header.argument_bytes = static_cast<std::int32_t>(launch_.argument_bytes);
  header.pieces = static_cast<std::int32_t>(pieces().size());
  header.dependent = launch_.dependent ? 1 : 0;
  header.ranges_ahead = launch_.dependent ? static_cast<std::int32_t>(ahead.size()) : 0;
  std::string text, before, after;
  append(text, header);
  text += symbol;
  text.append(static_cast<const char*>(launch_.arguments), launch_.argument_bytes);
  if (launch_.dependent)
    for (const RecordRange& range : ahead) append(text, range);
  for (const Piece& piece : pieces()) {
    const bool changed = std::memcmp(piece.start, piece.before.data(), piece.before.size()) != 0;
    append(text, RecordPiece{reinterpret_cast<std::uint64_t>(piece.start),
                             static_cast<std::uint32_t>(piece.before.size()), changed ? 1u : 0u});
    before.append(piece.before.data(), piece.before.size());
    if (changed) after.append(piece.start, piece.before.size());
  }
  if (text.size() + before.size() + after.size() <= kMostBytes) write_file(symbol, text + before + after);
}

}  // namespace emulation
