// Reading safetensors files. The header is untrusted: each rule is checked and has its own message.
#include "tensor/files/safetensors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "tensor/base/format.h"
#include "tensor/files/json_text.h"
#include "tensor/files/safetensors_layout.h"
#include "tensor/files/strict_json.h"

namespace eddy {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little,
              "safetensors data are used as they are: little-endian only");

// Files that hold weights in another format, or none at all, by how they begin.
struct ForeignFormat {
  std::string_view begin, what;
};
constexpr std::string_view kPickle =
    "a PyTorch pickle: save it with safetensors (in Python: from safetensors.torch import save_file; "
    "save_file(model.state_dict(), \"model.safetensors\"))";
constexpr std::string_view kArrays =
    "of NumPy's arrays: save them with safetensors (in Python: from safetensors.numpy import save_file; "
    "save_file(dict(numpy.load(...)), \"model.safetensors\"))";
constexpr ForeignFormat kForeignFormats[] = {
    {"GGUF", "a GGUF file, whose weights are often quantised: take the safetensors that it was made of"},
    {"\x89HDF\r\n\x1a\n",
     "an HDF5 file: save its arrays with safetensors (in Python, of a Keras model: from safetensors.numpy import "
     "save_file; save_file({w.path: w.numpy() for w in model.weights}, \"model.safetensors\"))"},
    {"\x93NUMPY", kArrays},
    {"version https://git-lfs", "a pointer of Git LFS, not the file: git lfs pull fetches it"},
    {"<!", "a web page: download the file itself"},
    {"<html", "a web page: download the file itself"},
    {"{\"", "JSON: where it is the index of several files, name those"},
    {"{\n", "JSON: where it is the index of several files, name those"}};

// What a file is that holds no tensors for this reader; empty where its first bytes tell nothing. `head`: those.
std::string_view foreign_format(const std::string& path, std::string_view head) {
  for (const ForeignFormat& format : kForeignFormats)
    if (head.starts_with(format.begin)) return format.what;
  // What torch.save writes is a zip archive, or in old versions a pickle, which begins with its protocol. The name of
  // an archive's first file stands behind 30 bytes.
  if (head.starts_with("PK\x03\x04")) return head.find(".npy") != std::string_view::npos ? kArrays : kPickle;
  if (path.ends_with(".msgpack"))
    return "MessagePack, as Flax writes weights: save them with safetensors (in Python: safetensors.flax)";
  const bool is_pickle = head[0] == '\x80' && static_cast<unsigned char>(head[1]) <= 5;
  return is_pickle || path.ends_with(".pt") || path.ends_with(".pth") ? kPickle : "";
}

// The JSON text between the length and the data.
std::string header_text(const InputFile& file) {
  if (file.bytes() < 8)
    fail<FormatError>("safetensors: {}: the file is too short: {} bytes (the header length alone takes 8)",
                      file.path(), file.bytes());
  std::string head(static_cast<std::size_t>(std::min<std::int64_t>(file.bytes(), 128)), '\0');
  file.read(0, head.data(), std::ssize(head));
  std::uint64_t length;
  std::memcpy(&length, head.data(), sizeof length);
  const bool is_long = length > static_cast<std::uint64_t>(kSafetensorsMaxHeaderBytes);
  // A good length may begin as another format does, but is followed by the header's brace.
  if (is_long || head.size() < 9 || head[8] != '{')
    if (const std::string_view what = foreign_format(file.path(), head); !what.empty())
      fail<FormatError>("safetensors: {}: this is {}", file.path(), what);
  if (is_long)
    fail<FormatError>("safetensors: {}: the header length is too large: {} bytes (at most {})", file.path(),
                      length, kSafetensorsMaxHeaderBytes);
  if (length > static_cast<std::uint64_t>(file.bytes() - 8))
    fail<FormatError>("safetensors: {}: the header goes beyond the file: header of {} bytes, file of {}",
                      file.path(), length, file.bytes());
  std::string text(static_cast<std::size_t>(length), '\0');
  file.read(8, text.data(), std::ssize(text));
  return text;
}

json parse_header(const std::string& path, std::string_view text) {
  constexpr JsonLimits kLimits{.depth = 8, .values = 4'000'000};  // good headers have depth 3
  JsonResult result = parse_strict_json(text, kLimits);
  if (!result.ok()) {
    const std::string place = result.position < 0 ? "" : fmt::format(" at byte {}", 8 + result.position);
    fail<FormatError>("safetensors: {}: the header is not valid JSON: {}{}", path, result.problem, place);
  }
  if (!result.value.is_object())
    fail<FormatError>("safetensors: {}: the header is not a JSON object but {}", path,
                      result.value.type_name());
  if (text.front() != '{') fail<FormatError>("safetensors: {}: the header does not begin with '{{'", path);
  return std::move(result.value);
}

SafetensorsMetadata metadata_from_json(const std::string& path, const json& value) {
  if (!value.is_object()) fail<FormatError>("safetensors: {}: __metadata__ is not an object", path);
  SafetensorsMetadata metadata;
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string())
      fail<FormatError>("safetensors: {}: __metadata__ {} is not a string", path, quote_text(key));
    metadata.emplace(key, text.get<std::string>());
  }
  return metadata;
}

// Reads one tensor's description; the messages name file and tensor.
class EntryReader {
 public:
  EntryReader(const std::string& path, const std::string& name, const json& fields)
      : path_(path), name_(name), fields_(fields) {}

  SafetensorsEntry read(std::int64_t data_begin, std::int64_t data_bytes) const {
    check_fields();
    SafetensorsEntry entry;
    const SafetensorsType& type = element_type();
    entry.name = name_;
    entry.type = type.name;
    entry.dtype = type.dtype;
    entry.shape = shape();
    const auto [begin, end] = offsets();
    if (end > data_bytes)
      refuse(fmt::format("data_offsets go out of the file: [{}, {}] of {} bytes of data", begin, end,
                         data_bytes));
    const auto wanted = safetensors_bytes(entry.shape, type);
    if (!wanted)
      refuse(fmt::format("the shape [{}] overflows 64 bits, or its {} end inside a byte",
                         fmt::join(entry.shape, ", "), type.name));
    if (*wanted != end - begin)
      refuse(fmt::format("data_offsets hold {} bytes, but {} of shape [{}] takes {}", end - begin, type.name,
                         fmt::join(entry.shape, ", "), *wanted));
    entry.offset = data_begin + begin;
    entry.bytes = end - begin;
    return entry;
  }

 private:
  [[noreturn]] void refuse(const std::string& problem) const {
    fail<FormatError>("safetensors: {}: tensor {}: {}", path_, quote_text(name_), problem);
  }
  void check_fields() const {
    if (!fields_.is_object()) refuse(fmt::format("is not an object but {}", fields_.type_name()));
    for (const auto& [key, value] : fields_.items())
      if (key != "dtype" && key != "shape" && key != "data_offsets")
        refuse(fmt::format("unknown field {} (the fields are dtype, shape, data_offsets)", quote_text(key)));
    for (const char* key : {"dtype", "shape", "data_offsets"})
      if (!fields_.contains(key)) refuse(fmt::format("missing field {}", key));
  }
  const SafetensorsType& element_type() const {
    const json& field = fields_["dtype"];
    if (!field.is_string()) refuse(fmt::format("dtype is not a string but {}", field.type_name()));
    const auto& text = field.get_ref<const std::string&>();
    if (const SafetensorsType* const known = find_safetensors_type(text)) return *known;
    refuse(fmt::format("unknown dtype {}", quote_text(text)));
  }
  std::vector<std::int64_t> shape() const {
    const json& field = fields_["shape"];
    if (!field.is_array()) refuse(fmt::format("shape is not an array but {}", field.type_name()));
    if (field.size() > kMaxRank)
      refuse(fmt::format("the shape has rank {} (at most {})", field.size(), kMaxRank));
    std::vector<std::int64_t> sizes;
    for (const json& size : field) sizes.push_back(size_from(size, "shape"));
    return sizes;
  }
  std::pair<std::int64_t, std::int64_t> offsets() const {
    const json& field = fields_["data_offsets"];
    if (!field.is_array()) refuse(fmt::format("data_offsets is not an array but {}", field.type_name()));
    if (field.size() != 2) refuse(fmt::format("data_offsets has {} numbers (needs 2)", field.size()));
    const std::int64_t begin = size_from(field[0], "data_offsets");
    const std::int64_t end = size_from(field[1], "data_offsets");
    if (begin > end) refuse(fmt::format("data_offsets are reversed: [{}, {}]", begin, end));
    return {begin, end};
  }
  std::int64_t size_from(const json& value, const char* field) const {
    if (!value.is_number_integer()) {
      const std::string shown = value.is_number() ? value.dump() : std::string(value.type_name());
      refuse(fmt::format("{} holds {}, not an integer of 64 bits", field, shown));
    }
    if (value.is_number_unsigned()) {
      const auto number = value.get<std::uint64_t>();
      if (number > static_cast<std::uint64_t>(INT64_MAX))
        refuse(fmt::format("{} holds {} (at most {})", field, number, INT64_MAX));
      return static_cast<std::int64_t>(number);
    }
    const auto number = value.get<std::int64_t>();
    if (number < 0) refuse(fmt::format("{} holds the negative number {}", field, number));
    return number;
  }

  const std::string& path_;
  const std::string& name_;
  const json& fields_;
};

// The tensors must lie end to end and fill the data exactly: a hole could hide bytes, an overlap could alias
// tensors.
void check_layout(const std::string& path, const std::vector<SafetensorsEntry>& entries,
                  std::int64_t data_begin, std::int64_t data_bytes) {
  std::vector<const SafetensorsEntry*> in_order;
  in_order.reserve(entries.size());
  for (const SafetensorsEntry& entry : entries) in_order.push_back(&entry);
  std::sort(in_order.begin(), in_order.end(), [](const SafetensorsEntry* a, const SafetensorsEntry* b) {
    return std::pair(a->offset, a->bytes) < std::pair(b->offset, b->bytes);
  });
  std::int64_t covered = 0;
  for (const SafetensorsEntry* entry : in_order) {
    const std::int64_t begin = entry->offset - data_begin;
    if (begin < covered)
      fail<FormatError>(
          "safetensors: {}: tensor {}: its data overlap another tensor's: begin at {}, taken up to {}", path,
          quote_text(entry->name), begin, covered);
    if (begin > covered)
      fail<FormatError>(
          "safetensors: {}: tensor {}: gap in the data before it: bytes {} to {} belong to no tensor", path,
          quote_text(entry->name), covered, begin);
    covered = begin + entry->bytes;
  }
  if (covered != data_bytes)
    fail<FormatError>("safetensors: {}: the tensors do not cover the data: {} of {} bytes (trailing bytes)",
                      path, covered, data_bytes);
}

}  // namespace

SafetensorsFile SafetensorsFile::open(const std::string& path) {
  SafetensorsFile file{InputFile(path)};
  const std::string text = header_text(file.file_);
  const json header = parse_header(path, text);
  const std::int64_t data_begin = 8 + std::ssize(text);
  const std::int64_t data_bytes = file.file_.bytes() - data_begin;
  for (const auto& [name, value] : header.items()) {  // a JSON object iterates in the order of its names
    if (name == kSafetensorsMetadataKey)
      file.metadata_ = metadata_from_json(path, value);
    else
      file.entries_.push_back(EntryReader(path, name, value).read(data_begin, data_bytes));
  }
  check_layout(path, file.entries_, data_begin, data_bytes);
  return file;
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const {
  const auto place =
      std::lower_bound(entries_.begin(), entries_.end(), name,
                       [](const SafetensorsEntry& entry, std::string_view key) { return entry.name < key; });
  return place != entries_.end() && place->name == name ? &*place : nullptr;
}

}  // namespace eddy
