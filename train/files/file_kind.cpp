// Known first bytes, the headers of tar and cpio, and the look of token numbers.
#include "train/files/file_kind.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
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
    *kTokens = "give the text that they were made from, and data.tokenizer", *kNoText = "it has no text",
    *kRecords = "write its texts out first, as lines of JSON, which --data.json_field reads";

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

// Whether bytes begin as an archive of cpio: its magic, then hexadecimal digits to the header's end.
// source: cpio(5)
bool is_cpio(std::string_view head) {
  constexpr std::size_t kMagic = 6, kHeader = 110;
  if (head.size() < kHeader || !(head.starts_with("070701") || head.starts_with("070702"))) return false;
  const std::string_view numbers = head.substr(kMagic, kHeader - kMagic);
  return numbers.find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos;
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
  const bool named = ending == ".gz" || ending == ".xz" || ending == ".bz2" || ending == ".zst" ||
                     ending == ".lz4" || ending == ".lzma";
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
  if (first == "[Content_Types].xml" || first.starts_with("_rels/")) return {"an office document", kSave};
  if (first == "mimetype") return {"an office document or e-book", kSave};
  return {"ZIP", unpacked_by("unzip", path)};
}

// Reads what MessagePack and protocol buffers are made of, from the beginning of a file.
class FieldReader {
 public:
  explicit FieldReader(std::string_view bytes) : left_(bytes) {}

  // The next byte; -1 at the end.
  int next() const { return left_.empty() ? -1 : static_cast<unsigned char>(left_.front()); }
  // Whether the next byte is this one, which is then passed.
  bool takes(int byte) {
    if (left_.empty() || next() != byte) return false;
    left_.remove_prefix(1);
    return true;
  }
  // Passes a number of protocol buffers, seven bits to a byte; -1 where it does not end.
  std::int64_t varint() {
    std::int64_t value = 0;
    for (int bits = 0; bits < 63 && !left_.empty(); bits += 7) {
      const int byte = next();
      left_.remove_prefix(1);
      value |= std::int64_t{byte & 0x7f} << bits;
      if (byte < 0x80) return value;
    }
    return -1;
  }
  // Passes so many bytes; false where there are fewer.
  bool passes(std::size_t bytes) {
    if (left_.size() < bytes) return false;
    left_.remove_prefix(bytes);
    return true;
  }
  // Passes so many printable characters; false where there are fewer, or none.
  bool passes_word(std::int64_t length) {
    if (length < 1 || length > std::ssize(left_)) return false;
    const std::string_view word = left_.substr(0, static_cast<std::size_t>(length));
    passes(word.size());
    return std::all_of(word.begin(), word.end(), [](char c) { return c >= ' ' && c <= '~'; });
  }

 private:
  std::string_view left_;
};

// Whether bytes begin as a model of ONNX: its version, who made it, and the graph or the sets of operators.
// source: onnx.proto, ModelProto; its fields are written in the order of their numbers.
bool is_onnx(std::string_view head) {
  constexpr int kVersion = 0x08, kModelVersion = 0x28, kGraph = 0x3a, kOperators = 0x42;
  constexpr std::int64_t kNewest = 32;
  FieldReader fields(head);
  if (!fields.takes(kVersion)) return false;
  if (const std::int64_t version = fields.varint(); version < 1 || version > kNewest) return false;
  for (const int field : {0x12, 0x1a, 0x22, kModelVersion, 0x32}) {  // but for one they are texts
    if (!fields.takes(field)) continue;
    const std::int64_t number = fields.varint();
    if (field != kModelVersion && number != 0 && !fields.passes_word(number)) return false;
  }
  return fields.next() == kGraph || fields.next() == kOperators;
}

// Whether bytes begin as maps of MessagePack whose first entry is an array, as Flax writes its weights.
// source: the specification of MessagePack
bool is_flax(std::string_view head) {
  FieldReader fields(head);
  for (bool is_entry = false;; is_entry = true) {
    const int type = fields.next();
    // Bytes, or a type of its own.
    if (is_entry && ((type >= 0xc4 && type <= 0xc9) || (type >= 0xd4 && type <= 0xd8))) return true;
    const bool small = type > 0x80 && type < 0x90, wide = type == 0xde;  // maps
    if (!small && !wide) return false;
    fields.takes(type);
    if (wide && !fields.passes(2)) return false;  // how many entries
    const int key = fields.next();
    fields.takes(key);
    const bool short_key = key > 0xa0 && key < 0xc0, long_key = key == 0xd9;
    const int length = long_key ? fields.next() : key - 0xa0;
    if (!short_key && !long_key) return false;
    if (long_key) fields.takes(length);
    if (!fields.passes_word(length)) return false;
  }
}

// Whether bytes begin as a pickle: its protocol, and one of the opcodes that come first.
// source: Python's Lib/pickletools.py
bool is_pickle(std::string_view head) {
  constexpr std::string_view kOpcodes = "}](c)XUKMJGN\x88\x89\x8a\x95";
  return head.size() > 2 && head[0] == '\x80' && head[1] >= 2 && head[1] <= 5 &&
         kOpcodes.find(head[2]) != std::string_view::npos;
}

// Whether bytes are a record of TFRecord: its length is followed by the checksum of that.
// source: tensorflow/core/lib/io/record_writer.h; CRC-32C, turned and with an offset.
bool is_tfrecord(std::string_view head) {
  constexpr std::size_t kLengthBytes = 8, kHeaderBytes = 12;
  constexpr std::uint32_t kPolynomial = 0x82f63b78, kOffset = 0xa282ead8;
  if (head.size() < kHeaderBytes) return false;
  std::uint32_t crc = ~std::uint32_t{0};
  for (const char c : head.substr(0, kLengthBytes)) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
  }
  crc = ~crc;
  return number_at(head, kLengthBytes, 4) == ((crc >> 15 | crc << 17) + kOffset);
}

}  // namespace

std::string lower_ending(const std::filesystem::path& path) {
  std::string ending = path.extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); });
  return ending;
}

bool is_binary_control(char c) {
  constexpr std::string_view kOfTexts = "\a\b\t\n\v\f\r\x1a\x1b";
  return static_cast<unsigned char>(c) < ' ' && kOfTexts.find(c) == std::string_view::npos;
}

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
                                      Beginning{"\x02\x21\x4c\x18"sv, "lz4", "lz4cat"},
                                      Beginning{"\x5d\0\0"sv, "lzma", "lzcat"},
                                      Beginning{"LZIP\x01"sv, "lzip", "lzip -dk"},
                                      Beginning{"\x89LZO\0\r\n"sv, "lzop", "lzop -d"},
                                      Beginning{"!<arch>\n"sv, "ar", "ar x"},
                                      Beginning{"7z\xbc\xaf\x27\x1c"sv, "7z", "7z x"},
                                      Beginning{"MSCF\0\0\0\0"sv, "a cabinet", "cabextract"},
                                      Beginning{"\xed\xab\xee\xdb"sv, "RPM", "rpm2archive"},
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
      Beginning{"8BPS\0"sv, "Photoshop image", kImage},
      Beginning{"\0\0\0\x0cjP  \r\n"sv, "JPEG 2000 image", kImage},
      Beginning{"\0\0\0\x0cJXL \r\n"sv, "JPEG XL image", kImage},
      Beginning{"\x76\x2f\x31\x01"sv, "OpenEXR image", kImage},
      Beginning{"AT&TFORM"sv, "DjVu", "take out its text: djvutxt"},
      Beginning{"fLaC\0"sv, "FLAC", kNoText},
      Beginning{"OggS\0"sv, "Ogg", kNoText},
      Beginning{"ID3\x02\0"sv, "MP3", kNoText},
      Beginning{"ID3\x03\0"sv, "MP3", kNoText},
      Beginning{"ID3\x04\0"sv, "MP3", kNoText},
      Beginning{"\xff\xfb\x90"sv, "MP3", kNoText},
      Beginning{"MThd\0\0\0\x06"sv, "MIDI", kNoText},
      Beginning{"\x1a\x45\xdf\xa3"sv, "Matroska or WebM", kNoText},
      Beginning{"FLV\x01"sv, "Flash video", kNoText},
      Beginning{"\x30\x26\xb2\x75\x8e\x66\xcf\x11"sv, "Windows Media", kNoText},
      Beginning{"\x7f\x45LF"sv, "a program or library (ELF)", kNoText},
      Beginning{"\xcf\xfa\xed\xfe"sv, "a program or library (Mach-O)", kNoText},
      Beginning{"\xca\xfe\xba\xbe\0"sv, "a program or library (Mach-O or Java)", kNoText},
      Beginning{"\0asm"sv, "WebAssembly", kNoText},
      Beginning{"OTTO\0"sv, "a font", kNoText},
      Beginning{"\0\x01\0\0\0"sv, "a font", kNoText},
      Beginning{"wOFF\0"sv, "a font", kNoText},
      Beginning{"wOF2\0"sv, "a font", kNoText},
      Beginning{"ttcf\0"sv, "a font", kNoText},
      Beginning{"PAR1\x15"sv, "Parquet", kTables},
      Beginning{"ARROW1\0\0"sv, "Arrow", kTables},
      Beginning{"FEA1\0"sv, "Feather", kTables},
      Beginning{"Obj\x01"sv, "Avro", kTables},
      Beginning{"SQLite format 3\0"sv, "SQLite", kTables},
      Beginning{"\x89HDF\r\n\x1a\n"sv, "HDF5", kTables},
      Beginning{"CDF\x01"sv, "NetCDF", kTables},
      Beginning{"\0\x01\0\0Standard "sv, "Access", kTables},
      Beginning{"\x93NUMPY"sv, "NumPy", kNumbers},
      Beginning{"MATLAB 5.0 MAT-file"sv, "MATLAB", kNumbers},
      Beginning{"RDX2\n"sv, "R", kNumbers},
      Beginning{"RDX3\n"sv, "R", kNumbers},
      Beginning{"GGUF\x01\0\0\0"sv, "GGUF", kNumbers},
      Beginning{"GGUF\x02\0\0\0"sv, "GGUF", kNumbers},
      Beginning{"GGUF\x03\0\0\0"sv, "GGUF", kNumbers},
      Beginning{"tjgg\x01\0\0\0"sv, "GGML", kNumbers},
      Beginning{"tjgg\x02\0\0\0"sv, "GGML", kNumbers},
      Beginning{"tjgg\x03\0\0\0"sv, "GGML", kNumbers},
      Beginning{"\x08\x01\x12"sv, "TensorFlow (SavedModel)", kNumbers},
      Beginning{"MMIDIDX\0\0"sv, "the index of a file of token numbers", kTokens},
      Beginning{"\n\x0e\n\x05<unk>\x15"sv, "a vocabulary of SentencePiece", "it is for data.tokenizer"},
      Beginning{"\x80\x02\x8a"sv, "PyTorch", kNumbers}};
  for (const Beginning& known : kBeginnings)
    if (head.starts_with(known.bytes)) return NoText{known.kind, known.way_out};
  const auto has_at = [&](std::size_t at, std::string_view bytes) {
    return head.size() >= at && head.substr(at).starts_with(bytes);
  };
  if (head.starts_with("RIFF") && has_at(8, "WEBP")) return NoText{"WebP image", kImage};
  if (head.starts_with("RIFF") && has_at(8, "WAVE")) return NoText{"WAV", kNoText};
  if (head.starts_with("RIFF") && has_at(8, "AVI ")) return NoText{"AVI", kNoText};
  if (head.starts_with("FORM") && has_at(8, "AIF")) return NoText{"AIFF", kNoText};
  if (head.starts_with("BM") && has_at(6, "\0\0\0\0"sv)) return NoText{"BMP image", kImage};
  for (const char* const brand : {"ftypheic", "ftypheix", "ftypmif1", "ftypavif"})
    if (has_at(4, brand) && head[0] == '\0') return NoText{"HEIF image", kImage};
  if (has_at(4, "ftyp") && head[0] == '\0') return NoText{"MP4", kNoText};
  if (has_at(4, "TFL3") && head[2] == '\0') return NoText{"TensorFlow Lite", kNumbers};
  if (has_at(60, "BOOKMOBI")) return NoText{"an e-book of Mobipocket", kSave};
  if (has_at(8, "DUCK") && has_at(13, "\0\0\0\0\0\0\0"sv)) return NoText{"DuckDB", kTables};
  // A stream of Arrow's messages: a mark, the bytes of the first, and where its table begins, some 16 bytes on.
  if (head.starts_with("\xff\xff\xff\xff") && has_at(7, "\0"sv) && has_at(9, "\0\0\0"sv))
    return NoText{"Arrow", kTables};
  // The header's bytes, and the JSON that it is.
  if (has_at(4, "\0\0\0\0{\""sv)) return NoText{"safetensors", kNumbers};
  if (is_onnx(head)) return NoText{"ONNX", kNumbers};
  if (is_flax(head)) return NoText{"MessagePack, as weights of Flax", kNumbers};
  if (is_tfrecord(head)) return NoText{"TFRecord", kRecords};
  if (has_at(16, "\xde\xc0\xef\xbe")) return NoText{"LMDB", kTables};
  if (has_at(1, "\r\r\n\0\0\0\0"sv)) return NoText{"compiled Python", kNoText};
  if (is_pickle(head)) return NoText{"pickle", kNumbers};
  if (std::any_of(head.begin(), head.end(), is_binary_control)) {  // beginnings that a text may have too
    if (head.starts_with("MZ")) return NoText{"a program or library of Windows", kNoText};
    if (head.starts_with("ORC")) return NoText{"ORC", kTables};
    for (const char level : {'\x01', '\x5e', '\x9c', '\xda'})
      if (head.starts_with('x') && has_at(1, {&level, 1})) return NoText{"zlib", kUnpack};
    if (head.starts_with("FWS") || head.starts_with("CWS")) return NoText{"Flash", kNoText};
  }
  if (head.starts_with("PK\x07\x08PK\3\4")) return NoText{"ZIP", unpacked_by("unzip", path)};
  if (head.starts_with("PK\3\4")) return zip_of(head, path);
  if (head.starts_with("PK\5\6")) return NoText{"ZIP (empty)", "it holds no file"};
  if (is_tar(head)) return NoText{"tar", unpacked_by("tar -xf", path)};
  if (is_cpio(head)) return NoText{"cpio", unpacked_by("cpio -idF", path)};
  return tokens_of(head);
}

}  // namespace eddy::training
