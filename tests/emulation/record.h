// Records launches for tests/ptx, which runs them again from compiled code: what was launched, with which
// arguments, and the pages of memory that it touched, before and after.
#pragma once

#include <cstdint>

#include "tests/emulation/emulation.h"

namespace emulation {

// A file is a header, the kernel's symbol, its arguments, the ranges that the launch ahead of a dependent one changed,
// all pieces, the bytes of each before, and of each that changed the bytes after.
struct RecordHeader {
  static constexpr std::uint64_t kMagic = 0x3268636e75616c65;  // "elaunch2"
  std::uint64_t magic = kMagic;
  std::int32_t blocks = 0, threads = 0, shared_bytes = 0, resident = 0;
  std::int32_t symbol_bytes = 0, argument_bytes = 0, pieces = 0, ranges_ahead = 0;
  std::int32_t dependent = 0, unused = 0;
};
struct RecordRange {
  std::uint64_t start = 0, bytes = 0;
};
struct RecordPiece {
  std::uint64_t start = 0;
  std::uint32_t bytes = 0, changed = 0;
};

// Records the launch that runs while this object exists into a file of the folder that the environment's
// EDDY_RECORD_LAUNCHES names; does nothing where it names none. A kernel's first launches are recorded, those
// of new shapes and every second, fourth, eighth one; small ones only. Of a dependent launch behind a plain one it is
// not known what that changed.
class Recorded {
 public:
  Recorded(const Launch& launch, bool resident);
  ~Recorded();
  Recorded(const Recorded&) = delete;
  Recorded& operator=(const Recorded&) = delete;

 private:
  const Launch& launch_;
  bool resident_, records_ = false, watches_ = false;
};

}  // namespace emulation
