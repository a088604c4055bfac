#include "tests/ptx/launches.h"

#include <cxxabi.h>
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <regex>

#include "tests/emulation/record.h"

namespace ptx {
namespace {

class Reader {
 public:
  explicit Reader(const std::filesystem::path& file) : name_(file.string()) {
    std::ifstream stream(file, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(stream), {});
  }
  std::vector<unsigned char> take(std::size_t count) {
    if (count > bytes_.size() - at_) throw Fault(name_ + ": no whole record of a launch");
    const auto* const first = reinterpret_cast<const unsigned char*>(bytes_.data()) + at_;
    at_ += count;
    return {first, first + count};
  }
  template <class T>
  T take() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }

 private:
  std::string name_, bytes_;
  std::size_t at_ = 0;
};

}  // namespace

std::string text_name(const std::string& mangled) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status), std::free);
  if (status != 0) return mangled;
  static const std::regex of_file("_GLOBAL__N__[A-Za-z0-9_]*");
  const std::string name = std::regex_replace(text.get(), of_file, "(anonymous namespace)");
  return name.starts_with("void ") ? name.substr(5) : name;
}

RecordedLaunch read_launch(const std::filesystem::path& file) {
  Reader reader(file);
  const auto header = reader.take<emulation::RecordHeader>();
  if (header.magic != emulation::RecordHeader::kMagic) throw Fault(file.string() + ": no record of a launch");
  RecordedLaunch launch;
  launch.file = file.filename().string();
  launch.shape = {header.blocks, header.threads, header.shared_bytes, header.resident != 0,
                  header.dependent != 0};
  const std::vector<unsigned char> symbol = reader.take(static_cast<std::size_t>(header.symbol_bytes));
  launch.kernel = text_name({symbol.begin(), symbol.end()});
  launch.arguments = reader.take(static_cast<std::size_t>(header.argument_bytes));
  for (int i = 0; i < header.ranges_ahead; ++i) {
    const auto range = reader.take<emulation::RecordRange>();
    launch.ahead.emplace_back(range.start, range.bytes);
  }
  std::vector<emulation::RecordPiece> pieces;
  for (int i = 0; i < header.pieces; ++i) pieces.push_back(reader.take<emulation::RecordPiece>());
  for (const emulation::RecordPiece& piece : pieces)
    launch.pieces.push_back({piece.start, reader.take(piece.bytes), {}});
  for (std::size_t i = 0; i < pieces.size(); ++i)
    launch.pieces[i].after = pieces[i].changed != 0 ? reader.take(pieces[i].bytes) : launch.pieces[i].before;
  return launch;
}

GlobalMemory memory_before(const RecordedLaunch& launch) {
  GlobalMemory memory;
  for (const Piece& piece : launch.pieces) memory.add(piece.start, piece.before);
  for (const auto& [start, bytes] : launch.ahead) memory.add_written_ahead(start, bytes);
  return memory;
}

}  // namespace ptx
