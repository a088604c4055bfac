// Known first bytes, the header of tar, and the look of token numbers.
#include "train/files/file_kind.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <filesystem>
#include <set>

#include "tensor/base/format.h"
#include "train/files/text_encoding.h"
#include "train/words/human_text.h"
#include "train/words/utf8.h"

namespace eddy::training {
namespace {

using namespace std::string_view_literals;

constexpr const char
    *kUnpack = "unpack it",
    *kSave = "save it as plain text in UTF-8",
    *kImage = "a picture has no text; --data.name cifar10 reads its own files",
    *kTables =
        "write its texts out first, as lines of JSON, which --data.json_field reads, for example by "
        "pandas or duckdb",
    *kNumbers = "it holds numbers: write the texts out first that they were made from",
    *kTokens = "give the text that they were made from, and data.tokenizer", *kSound = "it has no text";

// ".txt" of "A.TXT".
std::string lower_ending(std::string_view path) {
  std::string ending = std::filesystem::path(path).extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); });
  return ending;
}

// A little-endian number of `width` bytes.
std::uint64_t number_at(std::string_view bytes, std::size_t at, std::size_t width) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < width; ++i)
    value |= std::uint64_t{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
  return value;
}

// Whether a block is the header of a file in a tar archive: its checksum is that of its bytes.
// source: POSIX.1-1988, ustar; the field of the checksum counts as blanks.
bool is_tar(std::string_view head) {
  constexpr std::size_t kBlock = 512, kField = 148, kFieldBytes = 8;
  if (head.size() < kBlock || head[0] == '\0') return false;
  std::uint64_t wanted = 0, sum = 0;
  for (const char c : head.substr(kField, kFieldBytes)) {
    if (c >= '0' && c <= '7')
      wanted = 8 * wanted + static_cast<std::uint64_t>(c - '0');
    else if (c != ' ' && c != '\0')
      return false;
  }
  for (std::size_t i = 0; i < kBlock; ++i)
    sum += i >= kField && i < kField + kFieldBytes ? ' ' : static_cast<unsigned char>(head[i]);
  return sum == wanted;
}

// Whether bytes look like token numbers of `width` bytes each: all are below what a vocabulary has, and only the upper
// bytes are often zero, since texts use the first, common tokens most.
bool is_tokens(std::string_view head, std::size_t width) {
  constexpr std::size_t kLeast = 64;  // numbers that show it
  constexpr std::uint64_t kVocabulary16 = 0xf000, kVocabulary = std::uint64_t{1} << 20;
  const std::size_t all = head.size() / width;
  std::size_t low_zeros = 0, high_zeros = 0;
  std::set<std::uint64_t> seen;
  for (std::size_t i = 0; i < all; ++i) {
    const std::uint64_t value = number_at(head, i * width, width);
    if (value >= (width == 2 ? kVocabulary16 : kVocabulary)) return false;
    low_zeros += (value & 0xff) == 0 ? 1 : 0;
    high_zeros += value < (std::uint64_t{1} << (8 * (width - 1))) ? 1 : 0;
    seen.insert(value);
  }
  constexpr std::size_t kDistinct = 10;
  return all >= kLeast && seen.size() >= kDistinct && low_zeros * 10 <= all && high_zeros * 100 >= all;
}

// What a file of token numbers is called, if it looks like one.
std::optional<NoText> tokens_of(std::string_view head) {
  const auto zeros = static_cast<std::size_t>(std::count(head.begin(), head.end(), '\0'));
  if (zeros == 0 || encoding_of(head).unit > 1) return std::nullopt;
  if (zeros * 4 < head.size() && utf8_until(head) + 4 > head.size())
    return std::nullopt;                                    // a text with some zeros
  for (const std::uint64_t magic : {20240520u, 20240801u})  // of the headers of llm.c, 1024 bytes
    if (head.size() >= 1024 && number_at(head, 0, 4) == magic) return NoText{"token numbers", kTokens};
  for (const std::size_t width : {std::size_t{8}, std::size_t{4}, std::size_t{2}})
    if (is_tokens(head, width))
      return NoText{fmt::format("token numbers of {} bytes each, by their look", width), kTokens};
  return std::nullopt;
}

// How a packed file is unpacked: by a command that writes its files, or by one that writes what the one file holds to
// standard output, such as zcat.
std::string unpacked_by(std::string_view command, std::string_view path) {
  if (path == "-") return kUnpack;  // standard input
  const std::string file(path), ending = lower_ending(path);
  std::string inner = file.substr(0, file.size() - ending.size());
  const bool archive = !command.ends_with("cat"),
             packed_tar = ending == ".tgz" || lower_ending(inner) == ".tar";
  if (archive || packed_tar)
    return fmt::format("{}: {} {}", kUnpack, archive ? command : "tar -xf", shell_quoted(file));
  const bool named =
      ending == ".gz" || ending == ".xz" || ending == ".bz2" || ending == ".zst" || ending == ".lz4";
  if (!named) inner = file + ".txt";
  return fmt::format("{}: {} {} > {}", kUnpack, command, shell_quoted(file), shell_quoted(inner));
}

// A zip file, named for the document that it is.
NoText zip_of(std::string_view head, std::string_view path) {
  const std::string ending = lower_ending(path);
  for (const char* document : {"docx", "xlsx", "pptx", "odt", "ods", "odp", "epub"})
    if (ending == std::string(".") + document) {
      std::string kind = document;
      std::transform(kind.begin(), kind.end(), kind.begin(),
                     [](char c) { return static_cast<char>(std::toupper(static_cast<unsigned char>(c))); });
      return {kind, kSave};
    }
  // The name of its first file follows the header of 30 bytes.
  const std::size_t length = head.size() >= 30 ? number_at(head, 26, 2) : 0;
  const std::string_view first = head.substr(std::min<std::size_t>(30, head.size()), length);
  if (first.ends_with(".npy")) return {"NumPy (.npz)", kNumbers};
  if (first.ends_with("/data.pkl")) return {"PyTorch", kNumbers};
  return {"ZIP", unpacked_by("unzip", path)};
}

}  // namespace

std::optional<NoText> no_text(std::string_view head, std::string_view path) {
  struct Beginning {
    std::string_view bytes;
    const char *kind, *way_out;
  };
  static constexpr std::array kPacked{// with the command that unpacks them
                                      Beginning{"\x1f\x8b"sv, "gzip", "zcat"},
                                      Beginning{"\x1f\x9d"sv, "compress", "zcat"},
                                      Beginning{"\xfd\x37zXZ"sv, "xz", "xzcat"},
                                      Beginning{"BZh"sv, "bzip2", "bzcat"},
                                      Beginning{"\x28\xb5\x2f\xfd"sv, "zstd", "zstdcat"},
                                      Beginning{"\x04\x22\x4d\x18"sv, "lz4", "lz4cat"},
                                      Beginning{"!<arch>\n"sv, "ar", "ar x"},
                                      Beginning{"7z\xbc\xaf\x27\x1c"sv, "7z", "7z x"},
                                      Beginning{"Rar!\x1a\x07"sv, "RAR", "unrar x"}};
  for (const Beginning& packed : kPacked)
    if (head.starts_with(packed.bytes)) return NoText{packed.kind, unpacked_by(packed.way_out, path)};
  static constexpr std::array kBeginnings{
      Beginning{"version https://git-lfs.github.com/spec/"sv, "a pointer of Git LFS",
                "the file itself is fetched by git lfs pull"},
      Beginning{"%PDF"sv, "PDF", "take out its text: pdftotext"},
      Beginning{"{\\rtf"sv, "RTF", kSave},
      Beginning{"\xd0\xcf\x11\xe0"sv, "an old office document", kSave},
      Beginning{"\x89PNG\r\n"sv, "PNG image", kImage},
      Beginning{"\xff\xd8\xff"sv, "JPEG image", kImage},
      Beginning{"GIF87a"sv, "GIF image", kImage},
      Beginning{"GIF89a"sv, "GIF image", kImage},
      Beginning{"II*\0"sv, "TIFF image", kImage},
      Beginning{"MM\0*"sv, "TIFF image", kImage},
      Beginning{"fLaC\0"sv, "FLAC", kSound},
      Beginning{"OggS\0"sv, "Ogg", kSound},
      Beginning{"ID3\x03\0"sv, "MP3", kSound},
      Beginning{"ID3\x04\0"sv, "MP3", kSound},
      Beginning{"PAR1\x15"sv, "Parquet", kTables},
      Beginning{"ARROW1\0\0"sv, "Arrow", kTables},
      Beginning{"FEA1\0"sv, "Feather", kTables},
      Beginning{"Obj\x01"sv, "Avro", kTables},
      Beginning{"SQLite format 3\0"sv, "SQLite", kTables},
      Beginning{"\x89HDF\r\n\x1a\n"sv, "HDF5", kTables},
      Beginning{"\x93NUMPY"sv, "NumPy", kNumbers},
      Beginning{"GGUF\x03\0\0\0"sv, "GGUF", kNumbers},
      Beginning{"MMIDIDX\0\0"sv, "the index of a file of token numbers", kTokens},
      Beginning{"\x80\x02\x7d"sv, "pickle", kNumbers},
      Beginning{"\x80\x02]"sv, "pickle", kNumbers},
      Beginning{"\x80\x02\x8a"sv, "PyTorch", kNumbers},
      Beginning{"\x80\x03\x7d"sv, "pickle", kNumbers},
      Beginning{"\x80\x03]"sv, "pickle", kNumbers},
      Beginning{"\x80\x04\x95"sv, "pickle", kNumbers},
      Beginning{"\x80\x05\x95"sv, "pickle", kNumbers}};
  for (const Beginning& known : kBeginnings)
    if (head.starts_with(known.bytes)) return NoText{known.kind, known.way_out};
  const auto has_at = [&](std::size_t at, std::string_view bytes) {
    return head.size() >= at && head.substr(at).starts_with(bytes);
  };
  if (head.starts_with("RIFF") && has_at(8, "WEBP")) return NoText{"WebP image", kImage};
  if (head.starts_with("RIFF") && has_at(8, "WAVE")) return NoText{"WAV", kSound};
  if (head.starts_with("BM") && has_at(6, "\0\0\0\0"sv)) return NoText{"BMP image", kImage};
  if (has_at(4, "ftyp") && head[0] == '\0') return NoText{"MP4", kSound};
  if (has_at(60, "BOOKMOBI")) return NoText{"an e-book of Mobipocket", kSave};
  if (has_at(8, "DUCK") && has_at(13, "\0\0\0\0\0\0\0"sv)) return NoText{"DuckDB", kTables};
  // A stream of Arrow's messages: a mark, the bytes of the first, and where its table begins, some 16 bytes on.
  if (head.starts_with("\xff\xff\xff\xff") && has_at(7, "\0"sv) && has_at(9, "\0\0\0"sv))
    return NoText{"Arrow", kTables};
  // The header's bytes, and the JSON that it is.
  if (has_at(4, "\0\0\0\0{\""sv)) return NoText{"safetensors", kNumbers};
  if (head.starts_with("PK\3\4")) return zip_of(head, path);
  if (head.starts_with("PK\5\6")) return NoText{"ZIP (empty)", "it holds no file"};
  if (is_tar(head)) return NoText{"tar", unpacked_by("tar -xf", path)};
  return tokens_of(head);
}

}  // namespace eddy::training
