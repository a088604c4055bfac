// Launches that tests/emulation recorded.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tests/ptx/interpreter/machine.h"

namespace ptx {

struct Piece {
  std::uint64_t start = 0;
  std::vector<unsigned char> before, after;
};

struct RecordedLaunch {
  std::string file, kernel;  // the kernel's name as text_name returns it
  Shape shape;
  std::vector<unsigned char> arguments;
  std::vector<Piece> pieces;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ahead;  // start and bytes that the launch ahead wrote
};

// Returns a mangled kernel's name as C++ text, the same for both compilers: without the type of its result, and
// with "(anonymous namespace)" where nvcc names the file.
std::string text_name(const std::string& mangled);

// errors: Fault for a file that is no record, or not a whole one.
RecordedLaunch read_launch(const std::filesystem::path& file);

// The memory before the launch.
GlobalMemory memory_before(const RecordedLaunch& launch);

}  // namespace ptx
