// Files of numbers by step that TensorBoard reads: `events.out.tfevents.*`, append-only.
//
//   file    = record ...
//   record  = length u64, check of the length u32, bytes, check of the bytes u32      (little-endian)
//   check   = rotate_right(CRC-32C, 15) + 0xa282ead8
//   bytes   = a protocol buffer `Event`: wall_time = 1, step = 2, file_version = 3, summary = 5, session_log = 7
//
// Source: TensorFlow, core/lib/io/record_writer.h, core/util/event.proto and core/framework/summary.proto.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor/files/descriptor.h"

namespace eddy::training {

// CRC-32C (Castagnoli) of some bytes.
std::uint32_t crc32c(std::string_view bytes);

class EventFile {
 public:
  // Makes a new file in a folder, which is made too. What files before it have of later steps than `step` no longer
  // counts.
  // errors: IoError.
  EventFile(const std::filesystem::path& folder, std::int64_t step);

  // Appends numbers of one step, each under its name; those that are not finite too. None: nothing.
  // errors: IoError.
  void write(std::int64_t step, const std::vector<std::pair<std::string, double>>& numbers);

  const std::filesystem::path& path() const { return path_; }

  // Whether a file has the name of one of these.
  static bool is_name(std::string_view name);

 private:
  void append(std::int64_t step, std::string_view fields);

  std::filesystem::path path_;
  Descriptor file_;
};

}  // namespace eddy::training
