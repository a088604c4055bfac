// The header of xxHash, compiled in, and reads of whole files in blocks that stay in a core's cache.
#include "train/files/digest.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "tensor/base/format.h"
#include "tensor/files/descriptor.h"

namespace eddy {
namespace {

[[noreturn]] void cannot(const char* what, const std::filesystem::path& file, int error) {
  fail<IoError>("digest: cannot {} {}: {}", what, file.string(), std::strerror(error));
}

}  // namespace

struct Digest::State {
  XXH3_state_t xxh3;
};

Digest::Digest() : state_(std::make_unique<State>()) {
  XXH3_128bits_reset(&state_->xxh3);
}

Digest::~Digest() = default;

void Digest::update(std::string_view bytes) {
  if (bytes.empty()) return;  // its pointer may be null
  XXH3_128bits_update(&state_->xxh3, bytes.data(), bytes.size());
}

std::string Digest::hex() const {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state_->xxh3));
  return fmt::format("{:02x}", fmt::join(canonical.digest, ""));
}

FileDigest digest_of_file(const std::filesystem::path& file) {
  // O_NONBLOCK: opening a pipe must not wait for its writer.
  const Descriptor from(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (from.get() < 0) cannot("open", file, errno);
  struct stat status {};
  if (::fstat(from.get(), &status) != 0) cannot("examine", file, errno);
  if (!S_ISREG(status.st_mode)) fail<IoError>("digest: {} is not a regular file", file.string());
  (void)::posix_fadvise(from.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  std::vector<char> block(std::size_t{1} << 18);
  Digest digest;
  FileDigest result;
  for (;;) {
    const ssize_t got = ::read(from.get(), block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) cannot("read", file, errno);
    if (got == 0) break;
    digest.update({block.data(), static_cast<std::size_t>(got)});
    result.bytes += got;
  }
  result.hex = digest.hex();
  return result;
}

}  // namespace eddy
