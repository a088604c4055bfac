// What files are that hold no text.
#include "train/files/file_kind.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace eddy::training;
using namespace std::string_literals;

std::string kind_of(const std::string& head, const std::string& path = "f.txt") {
  const auto found = no_text(head, path);
  return found ? found->kind : "";
}

// The header of a file in a tar archive, with `magic` behind its fields.
std::string tar_header(const std::string& magic) {
  std::string block(512, '\0');
  const auto put = [&](std::size_t at, const std::string& text) { block.replace(at, text.size(), text); };
  put(0, "a.txt");
  put(100, "0000644");
  put(124, "00000000144");
  put(156, "0");
  put(257, magic);
  put(148, "        ");
  unsigned sum = 0;
  for (const char c : block) sum += static_cast<unsigned char>(c);
  std::string digits;
  for (int i = 0; i < 6; ++i, sum /= 8) digits.insert(digits.begin(), static_cast<char>('0' + sum % 8));
  put(148, digits + '\0' + ' ');
  return block + "the text of the first file";
}

// Numbers as little-endian bytes.
std::string bytes_of_numbers(const std::vector<std::uint64_t>& numbers, int width) {
  std::string bytes;
  for (const std::uint64_t number : numbers)
    for (int i = 0; i < width; ++i) bytes += static_cast<char>(number >> (8 * i) & 0xff);
  return bytes;
}

// Tokens as of a text: half are common ones.
std::vector<std::uint64_t> tokens() {
  std::vector<std::uint64_t> all;
  for (std::uint64_t i = 0; i < 500; ++i)
    all.push_back(i % 2 == 0 ? 11 + i % 7 * 30 : i * 2654435761u % 50257);
  return all;
}

}  // namespace

TEST_CASE("file kind: a packed file is named with the command that unpacks it") {
  const auto way_out = [](const std::string& head, const std::string& path) {
    const auto found = no_text(head, path);
    return found ? found->way_out : "";
  };
  CHECK(way_out("\x1f\x8b\x08", "web/a.jsonl.gz") == "unpack it: zcat web/a.jsonl.gz > web/a.jsonl");
  CHECK(way_out("\xfd\x37zXZ", "my books.xz") == "unpack it: xzcat 'my books.xz' > 'my books'");
  CHECK(way_out("\x1f\x8b\x08", "a.tar.gz") == "unpack it: tar -xf a.tar.gz");
  CHECK(way_out("\x1f\x8b\x08", "A.TGZ") == "unpack it: tar -xf A.TGZ");
  CHECK(way_out("BZh9", "a") == "unpack it: bzcat a > a.txt");
  CHECK(way_out(tar_header(""), "a.tar") == "unpack it: tar -xf a.tar");
  CHECK(way_out("070701" + std::string(104, '0') + "a", "a.cpio") == "unpack it: cpio -idF a.cpio");
  CHECK(way_out("070701\n" + std::string(104, '0'), "numbers.txt").empty());
  CHECK(way_out("PK\3\4", "a.zip") == "unpack it: unzip a.zip");
  CHECK(way_out("\x1f\x8b\x08", "-") == "unpack it");
}

TEST_CASE("file kind: tar is known by its checksum, with and without a name of the format") {
  for (const std::string& magic : {"ustar\00000"s, "ustar  \0"s, ""s})
    CHECK(kind_of(tar_header(magic)) == "tar");
  std::string damaged = tar_header("ustar");
  damaged[0] = 'b';
  CHECK(kind_of(damaged).empty());
}

TEST_CASE("file kind: tables, arrays and databases are named whatever they are called") {
  CHECK(kind_of("PAR1\x15\x04\x15\x80") == "Parquet");
  CHECK(kind_of("\x93NUMPY\1\0v\0"s) == "NumPy");
  CHECK(kind_of("PK\3\4"s + std::string(22, '\0') + "\x9\0\0\0"s + "arr_0.npy") == "NumPy (.npz)");
  CHECK(kind_of("SQLite format 3\0\x10"s) == "SQLite");
  CHECK(kind_of("PAR1 is a name").empty());
  CHECK(kind_of("\xff\xff\xff\xff\x78\x02\0\0\x10\0\0\0\0\0"s) == "Arrow");
  CHECK(kind_of("\x48\0\0\0\0\0\0\0{\"a\":{\"dtype\":\"F32\""s) == "safetensors");
  CHECK(kind_of("\x80\x02\x8a\x0al\xfc\x9c") == "PyTorch");
  CHECK(kind_of("\1\2\3\4\5\6\7\10DUCK@\0\0\0\0\0\0\0"s) == "DuckDB");
  CHECK(kind_of("We saw a DUCK on the lake.").empty());
  CHECK(kind_of("RIFF\x24\0\0\0WAVEfmt "s) == "WAV");
  CHECK(kind_of("PK\5\6"s + std::string(18, '\0')) == "ZIP (empty)");
  CHECK(kind_of("version https://git-lfs.github.com/spec/v1\noid sha256:") == "a pointer of Git LFS");
  CHECK(kind_of("version https://example.org").empty());
  CHECK(kind_of("PK\3\4") == "ZIP");
}

TEST_CASE("file kind: token numbers of every width are known by their look") {
  for (const int width : {2, 4, 8}) {
    CAPTURE(width);
    CHECK(kind_of(bytes_of_numbers(tokens(), width)).starts_with("token numbers"));
  }
  std::vector<std::uint64_t> letters;  // of a vocabulary of characters
  for (std::uint64_t i = 0; i < 500; ++i) letters.push_back(i * 7 % 65);
  CHECK(kind_of(bytes_of_numbers(letters, 2)).starts_with("token numbers of 2 bytes"));
}

TEST_CASE("file kind: texts and other binary files are no token numbers") {
  std::string with_zeros, program = "\x7f"s + "XLF\2\1\1\0"s;
  for (int i = 0; i < 300; ++i) {
    with_zeros += "name " + std::to_string(i) + '\0';
    program += std::string(4, '\0') + "\xff\xfe\x8b"s + static_cast<char>(i & 0xff);
  }
  CHECK(kind_of(with_zeros).empty());
  CHECK(kind_of(program).empty());
  CHECK(kind_of("Once there was a cat.").empty());
  CHECK(kind_of("").empty());
}

TEST_CASE("file kind: weights, programs, pictures and further archives are named for what they are") {
  const std::vector<std::pair<std::string, std::string>> known{
      {"\x08\x08\x12\x07pytorch\x1a\x05"
       "2.1.0:\x8c\x01\n"s,
       "ONNX"},
      {"\x08\x03\x12\x00\x28\x01\x42\x02\x10\x07"s, "ONNX"},
      {"\x81\xa6params\x81\xa7"
       "Dense_0\x82\xa4"
       "bias\xc7\x10\x01\x93"s,
       "MessagePack, as weights of Flax"},
      {"\xde\x00\x11\xa3key\xc4\x04"s, "MessagePack, as weights of Flax"},
      {"\x0a\0\0\0\0\0\0\0\xae\xa3\xbf\x3a"s, "TFRecord"},
      {"\x80\x04\x95\x10\0"s, "pickle"},
      {"GGUF\x02\0\0\0"s, "GGUF"},
      {"\x08\x01\x12\x90\x08"s, "TensorFlow (SavedModel)"},
      {"\n\x0e\n\x05<unk>\x15\0"s, "a vocabulary of SentencePiece"},
      {"\x7f"s + "ELF\2\1\1\0"s, "a program or library (ELF)"},
      {"MZ\x90\0\x03"s, "a program or library of Windows"},
      {"\x55\r\r\n\0\0\0\0"s, "compiled Python"},
      {"\0\0\0\x18"
       "ftypheic"s,
       "HEIF image"},
      {"8BPS\0\1"s, "Photoshop image"},
      {"\x1a\x45\xdf\xa3"s, "Matroska or WebM"},
      {"PK\3\4"s + std::string(22, '\0') + "\x13\0\0\0[Content_Types].xml"s, "an office document"},
      {"PK\x07\x08PK\3\4"s, "ZIP"},
      {"\x5d\0\0\x80\0"s, "lzma"},
      {"LZIP\x01\x0c"s, "lzip"},
      {"MSCF\0\0\0\0"s, "a cabinet"},
      {"x\x9c\x01\x02\x03"s, "zlib"},
      {"ORC\x11\0\0"s, "ORC"},
      {"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\xde\xc0\xef\xbe"s, "LMDB"}};
  for (const auto& [head, kind] : known) CHECK(kind_of(head) == kind);
}

TEST_CASE("file kind: texts that begin as other files do are texts") {
  for (const char* const text :
       {"MZ is a code of Mozambique", "ORCs came", "x\xdaxi", "\x81\xa6 kana", "BM", "FORM 8 AIFF", "CWS",
        "ELF", "\x82\xa0\x82\xa2", "GGUF is a format", "tjgg", "II* III", "RDX2", "MATLAB 5 is old", "OTTO"})
    CHECK_MESSAGE(kind_of(text).empty(), text);
}
