// Reading safetensors files. The header is untrusted: each rule is checked and has its own message.
#include "tensor/files/safetensors.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "tensor/base/format.h"
#include "tensor/files/descriptor.h"
#include "tensor/files/json_text.h"
#include "tensor/files/safetensors_layout.h"
#include "tensor/files/strict_json.h"

namespace eddy {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little,
              "safetensors data are used in place: little-endian only");

struct Mapping {
  std::shared_ptr<const std::byte> data;
  std::int64_t bytes = 0;
};

[[noreturn]] void refuse_system(const std::string& path, const char* action) {
  fail<IoError>("safetensors: cannot {} {}: {}", action, path, std::generic_category().message(errno));
}

Mapping map_file(const std::string& path) {
  if (path.find('\0') != std::string::npos) fail<IoError>("safetensors: the path holds a NUL byte");
  // O_NONBLOCK: opening a named pipe must not wait for a writer.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) refuse_system(path, "open");
  struct stat status {};
  if (fstat(file.get(), &status) != 0) refuse_system(path, "examine");
  if (!S_ISREG(status.st_mode)) fail<IoError>("safetensors: {} is not a regular file", path);
  const auto bytes = static_cast<std::int64_t>(status.st_size);
  if (bytes < 8)
    fail<FormatError>("safetensors: {}: the file is too short: {} bytes (the header length alone takes 8)",
                      path, bytes);
  const auto length = static_cast<std::size_t>(bytes);
  void* address = mmap(nullptr, length, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (address == MAP_FAILED) refuse_system(path, "map");
  return {std::shared_ptr<const std::byte>(static_cast<const std::byte*>(address),
                                           [address, length](const std::byte*) { munmap(address, length); }),
          bytes};
}

// Whether a file is what torch.save writes: a zip archive, or in old versions a pickle, which begins with its
// protocol. A header length may begin with the same bytes, but is followed by the header's brace.
bool is_pickle(const std::string& path, const Mapping& file) {
  const std::string_view text(reinterpret_cast<const char*>(file.data.get()),
                              static_cast<std::size_t>(file.bytes));
  if (text.size() > 8 && text[8] == '{') return false;
  return text.starts_with("PK\x03\x04") || (text[0] == '\x80' && static_cast<unsigned char>(text[1]) <= 5) ||
         path.ends_with(".pt") || path.ends_with(".pth");
}

// The JSON text between the length and the data.
std::string_view header_text(const std::string& path, const Mapping& file) {
  std::uint64_t length;
  std::memcpy(&length, file.data.get(), sizeof length);
  if (length > static_cast<std::uint64_t>(kSafetensorsMaxHeaderBytes))
    fail<FormatError>("safetensors: {}: the header length is too large: {} bytes (at most {})", path, length,
                      kSafetensorsMaxHeaderBytes);
  if (length > static_cast<std::uint64_t>(file.bytes - 8))
    fail<FormatError>("safetensors: {}: the header goes beyond the file: header of {} bytes, file of {}",
                      path, length, file.bytes);
  return {reinterpret_cast<const char*>(file.data.get()) + 8, static_cast<std::size_t>(length)};
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

  SafetensorsEntry read(const std::byte* data, std::int64_t data_bytes) const {
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
    entry.data = data + begin;
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
                  const std::byte* data, std::int64_t data_bytes) {
  std::vector<const SafetensorsEntry*> in_order;
  in_order.reserve(entries.size());
  for (const SafetensorsEntry& entry : entries) in_order.push_back(&entry);
  std::sort(in_order.begin(), in_order.end(), [](const SafetensorsEntry* a, const SafetensorsEntry* b) {
    return std::pair(a->data, a->bytes) < std::pair(b->data, b->bytes);
  });
  std::int64_t covered = 0;
  for (const SafetensorsEntry* entry : in_order) {
    const std::int64_t begin = entry->data - data;
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
  Mapping mapping = map_file(path);
  if (is_pickle(path, mapping))
    fail<FormatError>(
        "safetensors: {}: this is a PyTorch pickle: save it with safetensors (in Python: from "
        "safetensors.torch import save_file; save_file(model.state_dict(), \"model.safetensors\"))",
        path);
  const std::string_view text = header_text(path, mapping);
  const json header = parse_header(path, text);
  const std::int64_t data_begin = 8 + std::ssize(text);
  const std::int64_t data_bytes = mapping.bytes - data_begin;
  const std::byte* data = mapping.data.get() + data_begin;

  SafetensorsFile file;
  file.path_ = path;
  for (const auto& [name, value] : header.items()) {  // a JSON object iterates in the order of its names
    if (name == kSafetensorsMetadataKey)
      file.metadata_ = metadata_from_json(path, value);
    else
      file.entries_.push_back(EntryReader(path, name, value).read(data, data_bytes));
  }
  check_layout(path, file.entries_, data, data_bytes);
  file.mapping_ = std::move(mapping.data);
  file.size_ = static_cast<std::size_t>(mapping.bytes);
  return file;
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const {
  const auto place =
      std::lower_bound(entries_.begin(), entries_.end(), name,
                       [](const SafetensorsEntry& entry, std::string_view key) { return entry.name < key; });
  return place != entries_.end() && place->name == name ? &*place : nullptr;
}

}  // namespace eddy
