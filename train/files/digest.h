// XXH3 digests of 128 bits, to find files that are no longer what was written: a flipped bit, a lost block.
// They are fast and no protection against someone who wants to deceive (that is SHA-256's, in sha256.h). The
// digits are those that `xxh128sum` prints.
// Source: https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md (XXH3 algorithms).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "tensor/files/input_file.h"

namespace eddy::training {

// Hashes bytes given in pieces; where the pieces are cut does not matter.
class Digest {
 public:
  Digest();
  ~Digest();

  void update(std::string_view bytes);
  // The digest of all bytes so far, as 32 lower-case hexadecimal digits.
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

struct FileDigest {
  std::int64_t bytes = 0;
  std::string hex;
};

// The size and digest of a file.
// errors: IoError.
FileDigest digest_of_file(const InputFile& file);

// The digest of the running program.
// errors: IoError where the system does not show it.
std::string program_digest();

}  // namespace eddy::training
