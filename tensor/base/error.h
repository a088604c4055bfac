// The exceptions that Eddy throws. Their text is `op: what is wrong: the values (the rule)`, with the fix if
// known. This header does not include fmt, so that `.cu` files can include it; `fail` is in
// tensor/base/format.h.
#pragma once

#include <stdexcept>
#include <string>

namespace eddy {

// Root of the tree: catch this to report any failure of the library.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Sizes that do not fit each other.
class ShapeError : public Error {
 public:
  using Error::Error;
};
// A dtype that the operation does not support.
class DtypeError : public Error {
 public:
  using Error::Error;
};
// A device that the operation or this build does not support, or operands on different devices.
class DeviceError : public Error {
 public:
  using Error::Error;
};
// An argument out of its range, or an index out of bounds.
class ValueError : public Error {
 public:
  using Error::Error;
};
// Misuse of the tape: a second backward over a freed graph, an in-place write to a tracked tensor.
class GraphError : public Error {
 public:
  using Error::Error;
};
// A tensor that was saved for the backward pass was overwritten since.
class VersionError : public GraphError {
 public:
  using GraphError::GraphError;
};
// A NaN or infinity where numbers must be finite (anomaly mode, training).
class NonFiniteError : public Error {
 public:
  using Error::Error;
};
// An allocation failed. The text gives the request, the live memory and ways to use less.
class OutOfMemoryError : public Error {
 public:
  using Error::Error;
};
// The operating system reported an error: a missing file, a full disk, a directory that exists.
class IoError : public Error {
 public:
  using Error::Error;
};
// The content of a file violates its format.
class FormatError : public Error {
 public:
  using Error::Error;
};
// A configuration with unknown keys, values out of range or sizes that contradict each other.
class ConfigError : public Error {
 public:
  using Error::Error;
};

}  // namespace eddy
