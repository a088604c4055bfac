// CIFAR-10 as grey images, read from the original binary files or from files of grey records.
// Source: A. Krizhevsky, "Learning multiple layers of features from tiny images" (2009); the grey task:
// Y. Tay et al., "Long range arena" (2021).
//
//   original record   1 label byte, then 1024 bytes each of red, green and blue, row by row
//   grey record       1 label byte, then 1024 bytes
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace eddy::training {

inline constexpr std::int64_t kCifarPixels = 1024;  // 32 rows of 32
inline constexpr std::int64_t kCifarClasses = 10;
inline constexpr std::int64_t kCifarTrain = 50000, kCifarTest = 10000;  // images
extern const char* const kCifarNames[kCifarClasses];

struct GreyImages {
  std::vector<std::uint8_t> labels;
  std::vector<std::uint8_t> pixels;  // 1024 each, row-major

  std::int64_t count() const { return std::ssize(labels); }
  std::span<const std::uint8_t> image(std::int64_t i) const {
    return std::span(pixels).subspan(static_cast<std::size_t>(i * kCifarPixels), kCifarPixels);
  }
};

// The grey value of a pixel, by the luma weights of ITU-R BT.601 in 16-bit integers, as imaging programs do:
//   (19595 R + 38470 G + 7471 B + 32768) >> 16
inline std::uint8_t grey_of(std::uint8_t red, std::uint8_t green, std::uint8_t blue) {
  return static_cast<std::uint8_t>((19595u * red + 38470u * green + 7471u * blue + 32768u) >> 16);
}

// Appends the images of one file. The file's size tells whether its records are grey or coloured; when both
// fit, the labels do.
// errors: IoError when it cannot be read; FormatError for a size that is no whole number of records (a
// truncated file) or a label above 9, with the record's number.
void read_cifar_file(const std::string& path, GreyImages& images);

struct CifarData {
  GreyImages train, test;
  std::string folder;
};

// The images of data_batch_1.bin … data_batch_5.bin and test_batch.bin in a folder, or in its subfolder
// cifar-10-batches-bin. With an empty `path`: in cifar10-gray or cifar-10-batches-bin below the folder that
// EDDY_DATA_DIR names. With `training` false only the test images are read.
// errors: IoError that names what is missing and where to get it; as read_cifar_file.
CifarData read_cifar(const std::string& path, bool training);

}  // namespace eddy::training
