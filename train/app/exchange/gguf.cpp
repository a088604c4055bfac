// Values are gathered in memory; the data of tensors are read and written one by one.
#include "train/app/exchange/gguf.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "tensor/base/format.h"
#include "tensor/files/atomic_file.h"
#include "tensor/files/half.h"
#include "tensor/files/input_file.h"
#include "tensor/files/json_text.h"
#include "train/words/human_text.h"

namespace eddy::app {
using namespace training;
namespace {

constexpr std::uint32_t kVersion = 3;
constexpr std::int64_t kAlignment = 32;
constexpr std::int64_t kMostAxes = 4, kF32Bytes = 4;
constexpr const char* kAlignmentKey = "general.alignment";

// The format's numbers for the types of values.
enum class ValueType : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, text, list, u64, i64, f64 };

// The format's numbers for the types of tensors that are read. All others are quantised, or are whole numbers.
constexpr std::uint32_t kF32 = 0, kF16 = 1, kF64 = 28, kBf16 = 30;

std::string tensor_type_name(std::uint32_t type) {
  constexpr const char* kNames[] = {
      "F32",   "F16",    "Q4_0", "Q4_1", "",     "",        "Q5_0",   "Q5_1",    "Q8_0",  "Q8_1",   "Q2_K",
      "Q3_K",  "Q4_K",   "Q5_K", "Q6_K", "Q8_K", "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S",
      "IQ2_S", "IQ4_XS", "I8",   "I16",  "I32",  "I64",     "F64",    "IQ1_M",   "BF16"};
  const bool known = type < std::size(kNames) && kNames[type][0] != '\0';
  return known ? kNames[type] : fmt::format("type {}", type);
}

// ---- writing

template <class Number>
void append_number(std::string& bytes, Number value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void append_gguf_text(std::string& bytes, const std::string& text) {
  append_number(bytes, static_cast<std::uint64_t>(text.size()));
  bytes += text;
}

template <class T>
constexpr ValueType type_of() {
  if constexpr (std::is_same_v<T, bool>) return ValueType::boolean;
  if constexpr (std::is_same_v<T, std::uint32_t>) return ValueType::u32;
  if constexpr (std::is_same_v<T, std::int32_t>) return ValueType::i32;
  if constexpr (std::is_same_v<T, std::uint8_t>) return ValueType::u8;
  if constexpr (std::is_same_v<T, float>) return ValueType::f32;
  return ValueType::text;
}

template <class T>
void append_element(std::string& bytes, const T& value) {
  if constexpr (std::is_same_v<T, std::string>)
    append_gguf_text(bytes, value);
  else
    append_number(bytes, value);
}

template <class T>
void append_value(std::string& bytes, const T& value) {
  append_number(bytes, static_cast<std::uint32_t>(type_of<T>()));
  append_element(bytes, value);
}
template <class T>
void append_value(std::string& bytes, const std::vector<T>& values) {
  append_number(bytes, static_cast<std::uint32_t>(ValueType::list));
  append_number(bytes, static_cast<std::uint32_t>(type_of<T>()));
  append_number(bytes, static_cast<std::uint64_t>(values.size()));
  for (const T& value : values) append_element(bytes, value);
}

std::int64_t data_bytes(const Tensor& tensor) {
  return tensor.elements() * static_cast<std::int64_t>(dtype_bytes(tensor.dtype()));
}

std::int64_t aligned(std::int64_t offset, std::int64_t alignment) {
  return (offset + alignment - 1) / alignment * alignment;
}

// ---- reading

// The file from its beginning to its tensors' data, read in parts.
class GgufReader {
 public:
  explicit GgufReader(const std::string& path) : file_(path) {}

  const InputFile& file() const { return file_; }
  std::int64_t at() const { return at_; }

  [[noreturn]] void refuse(const std::string& what) const {
    fail<FormatError>("gguf: {}: {} (fetch or write the file again)", file_.path(), what);
  }
  std::string bytes(std::uint64_t count) {
    if (count > static_cast<std::uint64_t>(file_.bytes() - at_)) refuse("the file is cut off or damaged");
    std::string read(static_cast<std::size_t>(count), '\0');
    if (count > 0) file_.read(at_, read.data(), static_cast<std::int64_t>(count));
    at_ += static_cast<std::int64_t>(count);
    return read;
  }
  template <class Number>
  Number number() {
    Number value{};
    const std::string read = bytes(sizeof value);
    std::memcpy(&value, read.data(), sizeof value);
    return value;
  }
  std::string text() { return bytes(number<std::uint64_t>()); }

  // Reads a value, and keeps it if it is one of GgufValue.
  void read_value(const std::string& key, GgufValues& values) {
    const auto type = number<ValueType>();
    switch (type) {
      case ValueType::boolean:
        values[key] = number<std::uint8_t>() != 0;
        return;
      case ValueType::f32:
        values[key] = number<float>();
        return;
      case ValueType::f64:
        values[key] = static_cast<float>(number<double>());
        return;
      case ValueType::text:
        values[key] = text();
        return;
      case ValueType::list:
        read_list(key, values);
        return;
      default:
        break;
    }
    const std::int64_t whole = read_whole(type);
    if (whole >= 0 && whole <= std::numeric_limits<std::uint32_t>::max())
      values[key] = static_cast<std::uint32_t>(whole);
  }

 private:
  std::int64_t read_whole(ValueType type) {
    switch (type) {
      case ValueType::u8:
        return number<std::uint8_t>();
      case ValueType::i8:
        return number<std::int8_t>();
      case ValueType::u16:
        return number<std::uint16_t>();
      case ValueType::i16:
        return number<std::int16_t>();
      case ValueType::u32:
        return number<std::uint32_t>();
      case ValueType::i32:
        return number<std::int32_t>();
      case ValueType::i64:
        return number<std::int64_t>();
      case ValueType::u64:
        return static_cast<std::int64_t>(number<std::uint64_t>());
      default:
        refuse(fmt::format("a value has the unknown type {}", static_cast<std::uint32_t>(type)));
    }
  }
  template <class T, class Read>
  std::vector<T> elements(std::uint64_t count, std::uint64_t least_bytes, const Read& read) {
    if (count > static_cast<std::uint64_t>(file_.bytes() - at_) / least_bytes)
      refuse("the file is cut off or damaged");
    std::vector<T> values;
    values.reserve(static_cast<std::size_t>(count));
    for (std::uint64_t i = 0; i < count; ++i) values.push_back(read());
    return values;
  }
  void read_list(const std::string& key, GgufValues& values) {
    const auto type = number<ValueType>();
    const auto count = number<std::uint64_t>();
    if (type == ValueType::text) {
      values[key] = elements<std::string>(count, 8, [this] { return text(); });
    } else if (type == ValueType::f32) {
      values[key] = elements<float>(count, 4, [this] { return number<float>(); });
    } else if (type == ValueType::i32) {
      values[key] = elements<std::int32_t>(count, 4, [this] { return number<std::int32_t>(); });
    } else if (type == ValueType::boolean) {
      static_cast<void>(bytes(count));
    } else if (type == ValueType::f64) {
      static_cast<void>(elements<double>(count, 8, [this] { return number<double>(); }));
    } else {  // no list of lists is known; read_whole refuses it
      static_cast<void>(elements<std::int64_t>(count, 1, [&] { return read_whole(type); }));
    }
  }

  InputFile file_;
  std::int64_t at_ = 0;
};

// What the file says of a tensor.
struct GgufEntry {
  std::string name;
  std::vector<std::int64_t> shape;
  std::uint32_t type = kF32;
  std::uint64_t offset = 0;  // from the beginning of the data
};

GgufEntry read_entry(GgufReader& reader) {
  GgufEntry entry;
  entry.name = reader.text();
  const auto axes = reader.number<std::uint32_t>();
  if (axes > kMostAxes) reader.refuse(fmt::format("tensor {} has {} axes", quote_text(entry.name), axes));
  double elements = 1;
  for (std::uint32_t i = 0; i < axes; ++i) {
    const auto size = reader.number<std::uint64_t>();
    elements *= std::max(1.0, static_cast<double>(size));
    entry.shape.insert(entry.shape.begin(), static_cast<std::int64_t>(size));
  }
  if (elements >
      16 * static_cast<double>(reader.file().bytes()))  // the coarsest form has some numbers a byte
    reader.refuse(fmt::format("tensor {} has more numbers than the file", quote_text(entry.name)));
  entry.type = reader.number<std::uint32_t>();
  entry.offset = reader.number<std::uint64_t>();
  return entry;
}

Tensor read_tensor(const GgufReader& reader, const GgufEntry& entry, std::int64_t begin) {
  const bool half = entry.type == kF16;
  const Dtype dtype = entry.type == kF64 ? Dtype::f64 : entry.type == kBf16 ? Dtype::bf16 : Dtype::f32;
  Tensor tensor = Tensor::empty(Shape(entry.shape), dtype);
  const std::int64_t bytes = half ? 2 * tensor.elements() : data_bytes(tensor);
  const std::int64_t room = reader.file().bytes() - begin;
  if (room < 0 || bytes > room || entry.offset > static_cast<std::uint64_t>(room - bytes))
    reader.refuse(fmt::format("the numbers of {} are not all there", quote_text(entry.name)));
  const std::int64_t from = begin + static_cast<std::int64_t>(entry.offset);
  if (bytes == 0) return tensor;
  if (half) {
    std::vector<std::uint16_t> bits(static_cast<std::size_t>(tensor.elements()));
    reader.file().read(from, bits.data(), bytes);
    std::transform(bits.begin(), bits.end(), tensor.mutable_data<float>(), from_half);
  } else {
    reader.file().read(from, tensor.raw_data(), bytes);
  }
  return tensor;
}

}  // namespace

void write_gguf(const std::string& path, const GgufFile& file) {
  std::string head = "GGUF";
  append_number(head, kVersion);
  append_number(head, static_cast<std::uint64_t>(file.tensors.size()));
  append_number(head, static_cast<std::uint64_t>(file.values.size()));
  for (const auto& [key, value] : file.values) {
    append_gguf_text(head, key);
    std::visit([&](const auto& one) { append_value(head, one); }, value);
  }
  std::int64_t offset = 0;
  for (const auto& [name, tensor] : file.tensors) {
    append_gguf_text(head, name);
    append_number(head, static_cast<std::uint32_t>(tensor.rank()));
    for (int axis = tensor.rank() - 1; axis >= 0; --axis)
      append_number(head, static_cast<std::uint64_t>(tensor.dim(axis)));
    append_number(head, kF32);
    append_number(head, static_cast<std::uint64_t>(offset));
    offset = aligned(offset + kF32Bytes * tensor.elements(), kAlignment);
  }
  head.resize(static_cast<std::size_t>(aligned(std::ssize(head), kAlignment)), '\0');
  AtomicFile out(path);
  out.write(head.data(), std::ssize(head));
  const std::string padding(static_cast<std::size_t>(kAlignment), '\0');
  for (const auto& [name, tensor] : file.tensors) {
    const Tensor rows = raw::contiguous(raw::cast(raw::to_device(tensor, kCpu), Dtype::f32));
    const std::int64_t bytes = data_bytes(rows);
    if (bytes > 0) out.write(rows.raw_data(), bytes);
    out.write(padding.data(), aligned(bytes, kAlignment) - bytes);
  }
  out.commit();
}

GgufFile read_gguf(const std::string& path) {
  GgufReader reader(path);
  if (reader.file().bytes() < 24 || reader.bytes(4) != "GGUF")
    fail<FormatError>("gguf: {} is no GGUF file (it begins otherwise)", path);
  if (const auto version = reader.number<std::uint32_t>(); version != 2 && version != kVersion)
    fail<FormatError>("gguf: {} has version {} (2 or {}, in little-endian numbers)", path, version, kVersion);
  const auto tensors = reader.number<std::uint64_t>(), values = reader.number<std::uint64_t>();
  GgufFile file;
  for (std::uint64_t i = 0; i < values; ++i) {
    const std::string key = reader.text();
    reader.read_value(key, file.values);
  }
  std::vector<GgufEntry> entries;
  std::vector<std::string> quantised;
  for (std::uint64_t i = 0; i < tensors; ++i) {
    entries.push_back(read_entry(reader));
    const GgufEntry& entry = entries.back();
    if (entry.type != kF32 && entry.type != kF16 && entry.type != kF64 && entry.type != kBf16)
      quantised.push_back(fmt::format("{} ({})", printable(entry.name), tensor_type_name(entry.type)));
  }
  if (!quantised.empty())
    fail<FormatError>(
        "gguf: {}: tensors in a form that is not read: {} (F32, F16, BF16 and F64 are: write the file with "
        "--outtype f16, or take the safetensors that it was made of)",
        path, listed(quantised));
  std::int64_t alignment = kAlignment;
  if (const auto* const given = gguf_value<std::uint32_t>(file.values, kAlignmentKey)) alignment = *given;
  if (alignment < 1) reader.refuse(fmt::format("{} is {}", kAlignmentKey, alignment));
  const std::int64_t begin = aligned(reader.at(), alignment);
  for (const GgufEntry& entry : entries)
    if (!file.tensors.emplace(entry.name, read_tensor(reader, entry, begin)).second)
      reader.refuse(fmt::format("tensor {} is there twice", quote_text(entry.name)));
  return file;
}

}  // namespace eddy::app
