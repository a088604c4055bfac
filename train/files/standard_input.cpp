// Reading to the end of a pipe.
#include "train/files/standard_input.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "tensor/base/format.h"

namespace eddy::training {
namespace {

std::optional<std::string>& held_input() {
  static std::optional<std::string> bytes;
  return bytes;
}

}  // namespace

const std::string& standard_input() {
  std::optional<std::string>& held = held_input();
  if (held) return *held;
  if (::isatty(STDIN_FILENO) == 1)
    fail<IoError>("data: - is standard input, and that is a terminal (pipe a text into it, or name a file)");
  constexpr std::size_t kBlock = std::size_t{1} << 18;
  std::string bytes;
  for (std::size_t size = 0;;) {
    bytes.resize(size + kBlock);
    const ssize_t got = ::read(STDIN_FILENO, bytes.data() + size, kBlock);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail<IoError>("data: cannot read standard input: {}", std::strerror(errno));
    size += static_cast<std::size_t>(got);
    if (got > 0) continue;
    bytes.resize(size);
    break;
  }
  return held.emplace(std::move(bytes));
}

bool holds_standard_input() {
  return held_input().has_value();
}

void release_standard_input() {
  held_input().reset();
}

}  // namespace eddy::training
