// Whole-file reads by POSIX calls, which report why they fail; replacement by AtomicFile.
#include "train/files/text_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tensor/base/format.h"
#include "tensor/files/atomic_file.h"
#include "tensor/files/descriptor.h"

namespace eddy {
namespace {

[[noreturn]] void cannot(const char* what, const std::filesystem::path& path, int error) {
  fail<IoError>("read_text_file: cannot {}: {}: {}", what, path.string(), std::strerror(error));
}

}  // namespace

std::string read_text_file(const std::filesystem::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) cannot("open", path, errno);
  std::string text;
  constexpr std::size_t kBlockBytes = std::size_t{1} << 16;
  for (;;) {
    const std::size_t before = text.size();
    text.resize(before + kBlockBytes);
    const ssize_t got = ::read(file.get(), text.data() + before, kBlockBytes);
    text.resize(before + (got > 0 ? static_cast<std::size_t>(got) : 0));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) cannot("read", path, errno);
    if (got == 0) return text;
  }
}

void replace_text_file(const std::filesystem::path& path, std::string_view text) {
  AtomicFile file(path.string());
  file.write(text.data(), std::ssize(text));
  file.commit();
}

}  // namespace eddy
