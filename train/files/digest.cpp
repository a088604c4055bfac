// The header of xxHash, compiled in, and reads of whole files in blocks that stay in a core's cache.
#include "train/files/digest.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <vector>

#include "tensor/system/process.h"

namespace eddy::training {
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

FileDigest digest_of_file(const InputFile& file) {
  std::vector<char> block(std::size_t{1} << 18);
  Digest digest;
  for (std::int64_t at = 0; at < file.bytes();) {
    const std::int64_t part = std::min<std::int64_t>(std::ssize(block), file.bytes() - at);
    file.read(at, block.data(), part);
    digest.update({block.data(), static_cast<std::size_t>(part)});
    at += part;
  }
  return {file.bytes(), digest.hex()};
}

std::string program_digest() {
  return digest_of_file(InputFile(own_program())).hex;
}

}  // namespace eddy::training
