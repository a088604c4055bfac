// Finding, reading and checking the files of CIFAR-10.
#include "train/tasks/cifar.h"

#include <cstdlib>
#include <filesystem>

#include "tensor/base/format.h"
#include "tensor/files/input_file.h"

namespace eddy::training {

const char* const kCifarNames[kCifarClasses] = {"airplane", "automobile", "bird",  "cat",  "deer",
                                                "dog",      "frog",       "horse", "ship", "truck"};

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kGreyRecord = 1 + kCifarPixels;
constexpr std::int64_t kColourRecord = 1 + 3 * kCifarPixels;

// The first record whose label is no class, or -1.
std::int64_t first_bad_label(std::string_view bytes, std::int64_t record) {
  for (std::size_t at = 0; at < bytes.size(); at += static_cast<std::size_t>(record))
    if (static_cast<std::uint8_t>(bytes[at]) >= kCifarClasses) return static_cast<std::int64_t>(at) / record;
  return -1;
}

bool holds_images(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / "test_batch.bin", error) || fs::exists(folder / "data_batch_1.bin", error);
}

fs::path find_folder(const std::string& path) {
  std::vector<fs::path> places;
  if (!path.empty()) {
    places = {path, fs::path(path) / "cifar-10-batches-bin", fs::path(path) / "cifar10-gray"};
  } else if (const char* folder = std::getenv("EDDY_DATA_DIR"); folder != nullptr && *folder != 0) {
    places = {fs::path(folder) / "cifar10-gray", fs::path(folder) / "cifar-10-batches-bin"};
  }
  for (const fs::path& place : places)
    if (holds_images(place)) return place;
  fail<IoError>(
      "cifar: no test_batch.bin {} (unpack cifar-10-binary.tar.gz from "
      "https://www.cs.toronto.edu/~kriz/cifar.html and name its folder by --data.path)",
      path.empty() ? "to be found: neither data.path nor EDDY_DATA_DIR leads to one"
                   : "in '" + fs::absolute(path).string() + "'");
}

}  // namespace

void read_cifar_file(const std::string& path, GreyImages& images) {
  const std::string bytes = InputFile(path).text();
  const auto size = std::ssize(bytes);
  bool grey = size % kGreyRecord == 0, coloured = size % kColourRecord == 0;
  if (size == 0 || (!grey && !coloured))
    fail<FormatError>(
        "cifar: {} has {} bytes, which is no whole number of records (3073 bytes each, or 1025 of grey "
        "images; is the file cut off?)",
        path, size);
  if (grey && coloured) grey = first_bad_label(bytes, kColourRecord) >= 0;
  const std::int64_t record = grey ? kGreyRecord : kColourRecord;
  if (const std::int64_t bad = first_bad_label(bytes, record); bad >= 0)
    fail<FormatError>(
        "cifar: {}: record {} has label {} (0 to 9)", path, bad,
        static_cast<int>(static_cast<std::uint8_t>(bytes[static_cast<std::size_t>(bad * record)])));

  const std::int64_t count = size / record;
  images.labels.reserve(images.labels.size() + static_cast<std::size_t>(count));
  images.pixels.reserve(images.pixels.size() + static_cast<std::size_t>(count * kCifarPixels));
  for (std::int64_t i = 0; i < count; ++i) {
    const auto* at = reinterpret_cast<const std::uint8_t*>(bytes.data()) + i * record;
    images.labels.push_back(at[0]);
    const std::uint8_t* plane = at + 1;
    if (grey) {
      images.pixels.insert(images.pixels.end(), plane, plane + kCifarPixels);
    } else {
      for (std::int64_t p = 0; p < kCifarPixels; ++p)
        images.pixels.push_back(grey_of(plane[p], plane[kCifarPixels + p], plane[2 * kCifarPixels + p]));
    }
  }
}

CifarData read_cifar(const std::string& path, bool training) {
  const fs::path folder = find_folder(path);
  CifarData data;
  data.folder = folder.string();
  const auto need = [&](const std::string& name, GreyImages& images) {
    std::error_code error;
    if (!fs::exists(folder / name, error))
      fail<IoError>("cifar: {} is missing in {} (the five data batches and the test batch belong together)",
                    name, folder.string());
    read_cifar_file((folder / name).string(), images);
  };
  if (training)
    for (int i = 1; i <= 5; ++i) need("data_batch_" + std::to_string(i) + ".bin", data.train);
  need("test_batch.bin", data.test);
  return data;
}

}  // namespace eddy::training
