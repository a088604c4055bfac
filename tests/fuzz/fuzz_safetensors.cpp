// Mutated safetensors files: whatever the bytes, the reader answers with tensors inside the file or with an
// eddy::Error. The mutations are drawn from a fixed seed, so a failure repeats; run with the sanitizers on to
// see stray reads.
#include <doctest/doctest.h>

#include <array>
#include <exception>
#include <vector>

#include "tensor/base/error.h"
#include "tensor/files/safetensors.h"
#include "tests/fuzz/mutations.h"
#include "tests/support/files.h"
#include "tests/tensor/safetensors_bytes.h"

using namespace eddy;
using namespace eddy::test;

namespace {

// Good files to start from: several tensors of all dtypes, none, metadata only, rank 0 and size 0.
std::vector<std::string> seeds(const TempFolder& folder) {
  const std::vector<double> numbers = {1.0, -2.5, 3.25, 1e30};
  const std::string path = folder.path("seed");
  std::vector<std::string> files;
  write_safetensors(path,
                    std::vector<SafetensorsItem>{{"layers.0.w", Dtype::f32, {2, 3}, numbers.data()},
                                                 {"layers.0.b", Dtype::bf16, {4}, numbers.data()},
                                                 {"step", Dtype::i64, {}, numbers.data()},
                                                 {"none", Dtype::f64, {0, 7}, nullptr},
                                                 {"ids", Dtype::u8, {1, 1, 1, 1, 1, 5}, numbers.data()}},
                    {{"format", "eddy"}, {"k\"ey", "v\xc3\xa9"}});
  files.push_back(read_bytes(path));
  write_safetensors(path, std::vector<SafetensorsItem>{{"x", Dtype::i32, {3}, numbers.data()}});
  files.push_back(read_bytes(path));
  write_safetensors(path, std::vector<SafetensorsItem>{}, {{"a", "b"}});
  files.push_back(read_bytes(path));
  return files;
}

void set_length(std::string& file, std::uint64_t length) {
  for (std::size_t i = 0; i < 8 && i < file.size(); ++i)
    file[i] = static_cast<char>(length >> (8 * i) & 0xff);
}

std::uint64_t get_length(const std::string& file) {
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < 8 && i < file.size(); ++i)
    length |= static_cast<std::uint64_t>(static_cast<unsigned char>(file[i])) << (8 * i);
  return length;
}

// Replaces a stretch of the header by a piece of JSON and corrects the length, so that the JSON layer is
// passed often.
void splice(std::string& file, Random& random) {
  static const std::array<std::string, 24> kPieces = {
      "{",
      "}",
      "[",
      "]",
      ",",
      ":",
      "\"",
      "\\",
      "0",
      "-1",
      "1e9",
      "9223372036854775807",
      "18446744073709551615",
      "null",
      "[[[[[[[[[[[[",
      "{\"a\":{\"a\":{\"a\":",
      "\"dtype\"",
      "\"shape\":[]",
      "\"F16\"",
      "\"U8\"",
      "\"data_offsets\":[0,0]",
      "\"x\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},",
      "\xff\xfe",
      std::string(1, '\0')};
  const std::uint64_t header =
      std::min<std::uint64_t>(get_length(file), file.size() < 8 ? 0 : file.size() - 8);
  const std::string& piece = kPieces[below(random, kPieces.size())];
  const std::size_t at = 8 + below(random, static_cast<std::size_t>(header) + 1);
  if (at > file.size()) return;
  const std::size_t cut = below(random, 4) == 0 ? below(random, 20) : 0;
  const std::size_t removed = std::min(cut, file.size() - at);
  file.replace(at, removed, piece);
  set_length(file, header + piece.size() - std::min<std::uint64_t>(removed, header));
}

// One digit of the header becomes another: offsets, sizes and dtypes that stay well-formed JSON.
void change_digit(std::string& file, Random& random) {
  for (int attempt = 0; attempt < 50 && file.size() > 8; ++attempt) {
    char& c = file[8 + below(random, file.size() - 8)];
    if (c < '0' || c > '9') continue;
    c = static_cast<char>('0' + below(random, 10));
    return;
  }
}

std::string mutate_safetensors(std::string file, Random& random) {
  const std::size_t changes = 1 + below(random, 4);
  for (std::size_t i = 0; i < changes; ++i) {
    switch (below(random, 6)) {
      case 0:
        if (!file.empty()) file[below(random, file.size())] ^= static_cast<char>(1u << below(random, 8));
        break;
      case 1:
        file.resize(below(random, file.size() + 1));
        break;
      case 2:
        set_length(file, get_length(file) + random() % 17 - 8);
        break;
      case 3:
        set_length(file, random() >> below(random, 64));
        break;
      case 4:
        splice(file, random);
        break;
      default:
        change_digit(file, random);
        break;
    }
  }
  return file;
}

// Opens the bytes and reads every byte of every tensor. Returns whether they were accepted.
bool file_survives(const std::string& path, const std::string& bytes) {
  write_bytes(path, bytes);
  try {
    const SafetensorsFile file = SafetensorsFile::open(path);
    for (const SafetensorsEntry& entry : file.entries())
      file.read(entry, std::vector<char>(static_cast<std::size_t>(entry.bytes)).data());
    for (const auto& [name, tensor] : load_safetensors(path)) {
      const SafetensorsEntry& entry = *file.find(name);
      CHECK(tensor.bytes() == (entry.type == "F16" ? 2 : 1) * entry.bytes);  // read as f32
    }
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

TEST_CASE("no mutation of a safetensors file does more than raise an eddy error") {
  const TempFolder folder;
  const std::string path = folder.path("mutant");
  const std::vector<std::string> files = seeds(folder);
  for (const std::string& file : files) REQUIRE(file_survives(path, file));

  Random random(20240917);
  int accepted = 0;
  constexpr int kMutants = 6000;
  for (int i = 0; i < kMutants; ++i) {
    const std::string mutant = mutate_safetensors(files[below(random, files.size())], random);
    try {
      accepted += file_survives(path, mutant) ? 1 : 0;
    } catch (const std::exception& error) {
      FAIL_CHECK("mutant ", i, " raised another error: ", error.what());
    }
  }
  // Both answers must occur, or the mutations test nothing.
  CHECK(accepted > kMutants / 100);
  CHECK(accepted < kMutants * 9 / 10);
}

TEST_CASE("every prefix of a safetensors file is refused") {
  const TempFolder folder;
  const std::string path = folder.path("prefix");
  const std::string whole = seeds(folder)[0];
  for (std::size_t length = 0; length < whole.size(); ++length) {
    CAPTURE(length);
    CHECK(!file_survives(path, whole.substr(0, length)));
  }
}
