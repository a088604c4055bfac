// The safetensors reader against hand-made bytes, the writer against the reader and against failing disks.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tensor/base/error.h"
#include "tensor/files/safetensors.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/tensor/safetensors_bytes.h"

using namespace eddy;
using namespace eddy::test;

namespace {

// What open() throws for these bytes, or "accepted".
std::string refusal(const std::string& bytes) {
  const TempFolder folder;
  const std::string path = folder.path("given.safetensors");
  write_bytes(path, bytes);
  try {
    (void)SafetensorsFile::open(path);
  } catch (const FormatError& error) {
    return error.what();
  }
  return "accepted";
}

// The file's name and a part of the text.
void check_refused(const std::string& bytes, const std::string& part) {
  const std::string got = refusal(bytes);
  INFO(got);
  CHECK(got.find("given.safetensors") != std::string::npos);
  CHECK(got.find(part) != std::string::npos);
}

// A file with one tensor "a" described by `fields` and `bytes` zero bytes of data.
std::string one_tensor(const std::string& fields, std::size_t bytes) {
  return safetensors_bytes_of("{\"a\":{" + fields + "}}", std::string(bytes, '\0'));
}

template <class T>
std::vector<T> values_of(const SafetensorsFile& file, const SafetensorsEntry& entry) {
  std::vector<T> values(static_cast<std::size_t>(entry.bytes) / sizeof(T));
  file.read(entry, values.data());
  return values;
}

}  // namespace

TEST_CASE("safetensors reads a file made by hand") {
  const TempFolder folder;
  const std::string path = folder.path("hand.safetensors");
  // 1.5f = 3fc00000 and -2.0f = c0000000, little-endian; the second tensor lies first and is one byte long.
  write_bytes(path, safetensors_bytes_of(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[1,9]},)"
                                         R"("b":{"dtype":"U8","shape":[],"data_offsets":[0,1]},)"
                                         R"("__metadata__":{"step":"7"}}   )",
                                         std::string("\x2a\x00\x00\xc0\x3f\x00\x00\x00\xc0", 9)));
  const SafetensorsFile file = SafetensorsFile::open(path);
  REQUIRE(file.entries().size() == 2);
  CHECK(file.entries()[0].name == "b");
  CHECK(file.entries()[0].dtype == Dtype::u8);
  CHECK(file.entries()[0].shape.empty());
  CHECK(values_of<std::uint8_t>(file, file.entries()[0]) == std::vector<std::uint8_t>{42});
  const SafetensorsEntry* w = file.find("w");
  REQUIRE(w != nullptr);
  CHECK(w->shape == std::vector<std::int64_t>{2});
  CHECK(values_of<float>(file, *w) == std::vector<float>{1.5f, -2.0f});
  CHECK(file.find("c") == nullptr);
  CHECK(file.metadata() == SafetensorsMetadata{{"step", "7"}});
}

TEST_CASE("safetensors accepts a file without tensors") {
  CHECK(refusal(safetensors_bytes_of("{}")) == "accepted");
  CHECK(refusal(safetensors_bytes_of(R"({"__metadata__":{}})")) == "accepted");
}

TEST_CASE("safetensors round trips every dtype with rank 0 and size 0") {
  const TempFolder folder;
  const std::string path = folder.path("all.safetensors");
  const std::vector<float> f32 = {0.1f, -0.0f, std::numeric_limits<float>::infinity(), 1e-42f};
  const std::vector<double> f64 = {std::nan(""), 1e300};
  const std::vector<bf16> half = {bf16(1.0f), bf16(-3.5f), bf16(0.0f)};
  const std::vector<std::int32_t> i32 = {INT32_MIN, INT32_MAX};
  const std::vector<std::int64_t> i64 = {INT64_MIN};
  const std::vector<std::uint8_t> u8 = {0, 255, 7};
  const std::vector<SafetensorsItem> items = {
      {"u8", Dtype::u8, {3}, u8.data()},       {"f32", Dtype::f32, {2, 1, 2}, f32.data()},
      {"f64", Dtype::f64, {2}, f64.data()},    {"i64.scalar", Dtype::i64, {}, i64.data()},
      {"i32", Dtype::i32, {1, 2}, i32.data()}, {"bf16", Dtype::bf16, {3, 1, 1, 1, 1, 1}, half.data()},
      {"empty", Dtype::f32, {0, 5}, nullptr},  {"name with \" and \xc3\xa9", Dtype::u8, {0}, nullptr},
  };
  const SafetensorsMetadata metadata = {{"format", "eddy"}, {"quote", "\"\n"}};
  write_safetensors(path, items, metadata);

  const SafetensorsFile file = SafetensorsFile::open(path);
  CHECK(file.metadata() == metadata);
  REQUIRE(file.entries().size() == items.size());
  for (const SafetensorsItem& item : items) {
    INFO(item.name);
    const SafetensorsEntry* entry = file.find(item.name);
    REQUIRE(entry != nullptr);
    CHECK(entry->dtype == item.dtype);
    CHECK(entry->shape == item.shape);
    const std::vector<char> data = values_of<char>(file, *entry);
    const bool same = data.empty() || std::memcmp(data.data(), item.data, data.size()) == 0;
    CHECK(same);
    CHECK(entry->offset % static_cast<std::int64_t>(dtype_bytes(item.dtype)) == 0);
  }
  CHECK(file.find("empty")->bytes == 0);
  CHECK(file.find("i64.scalar")->bytes == 8);
}

TEST_CASE("safetensors writes the same bytes twice and for any order of the items") {
  const TempFolder folder;
  const std::vector<float> x = {1, 2};
  const std::vector<std::uint8_t> y = {3};
  const std::vector<SafetensorsItem> items = {{"y", Dtype::u8, {1}, y.data()},
                                              {"x", Dtype::f32, {2}, x.data()}};
  const std::vector<SafetensorsItem> turned = {items[1], items[0]};
  write_safetensors(folder.path("1"), items, {{"b", "2"}, {"a", "1"}});
  write_safetensors(folder.path("2"), items, {{"b", "2"}, {"a", "1"}});
  write_safetensors(folder.path("3"), turned, {{"b", "2"}, {"a", "1"}});
  const std::string first = read_bytes(folder.path("1"));
  CHECK(first == read_bytes(folder.path("2")));
  CHECK(first == read_bytes(folder.path("3")));
  CHECK(folder.entries() == 3);
  std::uint64_t length;
  std::memcpy(&length, first.data(), sizeof length);
  CHECK(length % 8 == 0);
  CHECK(first[8] == '{');
  CHECK(first.find("\"x\"") < first.find("\"y\""));
}

TEST_CASE("safetensors copies of an open file share the data and outlive the first") {
  const TempFolder folder;
  const std::vector<std::int32_t> values = {5, 6};
  write_safetensors(folder.path("f"), std::vector<SafetensorsItem>{{"v", Dtype::i32, {2}, values.data()}});
  const SafetensorsFile copy = [&] {
    SafetensorsFile file = SafetensorsFile::open(folder.path("f"));
    SafetensorsFile moved = std::move(file);
    return moved;
  }();
  CHECK(values_of<std::int32_t>(copy, copy.entries().at(0)) == values);
}

TEST_CASE("safetensors reports files that cannot be read") {
  const TempFolder folder;
  const auto open = [](const std::string& path) { (void)SafetensorsFile::open(path); };
  CHECK(contains(error_of<IoError>([&] { open(folder.path("none")); }), "cannot open"));
  CHECK(contains(error_of<IoError>([&] { open(folder.path("")); }), "not a regular file"));
  REQUIRE(mkfifo(folder.path("pipe").c_str(), 0600) == 0);
  CHECK(contains(error_of<IoError>([&] { open(folder.path("pipe")); }), "not a regular file"));
}

TEST_CASE("safetensors refuses a file shorter than its header length") {
  check_refused("", "too short: 0 bytes");
  check_refused("1234567", "too short: 7 bytes");
}
TEST_CASE("safetensors refuses a header beyond the file") {
  check_refused(safetensors_with_length(3, "{}"), "beyond the file");
}
TEST_CASE("safetensors refuses a header above 100 MB") {
  check_refused(safetensors_with_length(100'000'001, "{}"), "header length is too large");
  check_refused(safetensors_with_length(UINT64_MAX, "{}"), "header length is too large");
}
TEST_CASE("safetensors refuses a header that is not JSON") {
  check_refused(safetensors_bytes_of(""), "not valid JSON");
  check_refused(safetensors_bytes_of("{\"a\":"), "not valid JSON");
  check_refused(safetensors_bytes_of("{'a':1}"), "at byte 10");
}
TEST_CASE("safetensors refuses a header that is not an object") {
  check_refused(safetensors_bytes_of("[]"), "not a JSON object but array");
  check_refused(safetensors_bytes_of("7"), "not a JSON object but number");
}
TEST_CASE("safetensors refuses a header that does not begin with a brace") {
  check_refused(safetensors_bytes_of(" {}"), "does not begin with '{'");
  check_refused(safetensors_bytes_of("\xEF\xBB\xBF{}"), "byte order mark");
}
TEST_CASE("safetensors refuses invalid UTF-8 in the header") {
  check_refused(safetensors_bytes_of("{\"\xff\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}"),
                "UTF-8");
}
TEST_CASE("safetensors refuses text after the header's object") {
  check_refused(safetensors_bytes_of("{} x"), "not valid JSON");
  check_refused(safetensors_bytes_of("{}{}"), "not valid JSON");
  check_refused(safetensors_bytes_of(std::string("{}\0garbage", 10)), "NUL byte");
}
TEST_CASE("safetensors refuses deep nesting without a deep stack") {
  const std::string deep(2'000'000, '[');
  check_refused(safetensors_bytes_of("{\"a\":" + deep), "nested deeper than 8");
  std::string objects;
  for (int i = 0; i < 200'000; ++i) objects += "{\"a\":";
  check_refused(safetensors_bytes_of(objects), "nested deeper than 8");
}
TEST_CASE("safetensors refuses duplicate names") {
  const std::string a = R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  check_refused(safetensors_bytes_of("{" + a + "," + a + "}", "x"), "duplicate key \"a\"");
  // The same name written with an escape.
  const std::string escaped = R"("\u0061":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  check_refused(safetensors_bytes_of("{" + a + "," + escaped + "}", "x"), "duplicate key \"a\"");
}
TEST_CASE("safetensors refuses duplicate keys inside a tensor and inside the metadata") {
  check_refused(one_tensor(R"("dtype":"U8","shape":[1],"shape":[1],"data_offsets":[0,1])", 1),
                "duplicate key \"shape\"");
  check_refused(safetensors_bytes_of(R"({"__metadata__":{"k":"1","k":"2"}})"), "duplicate key \"k\"");
}
TEST_CASE("safetensors refuses metadata that are not texts") {
  check_refused(safetensors_bytes_of(R"({"__metadata__":[]})"), "__metadata__ is not an object");
  check_refused(safetensors_bytes_of(R"({"__metadata__":{"k":1}})"), "__metadata__ \"k\" is not a string");
}
TEST_CASE("safetensors refuses a tensor that is not an object") {
  check_refused(safetensors_bytes_of(R"({"a":3})"), "tensor \"a\": is not an object");
}
TEST_CASE("safetensors refuses missing fields") {
  check_refused(one_tensor(R"("shape":[1],"data_offsets":[0,1])", 1), "missing field dtype");
  check_refused(one_tensor(R"("dtype":"U8","data_offsets":[0,1])", 1), "missing field shape");
  check_refused(one_tensor(R"("dtype":"U8","shape":[1])", 1), "missing field data_offsets");
}
TEST_CASE("safetensors refuses unknown fields") {
  check_refused(one_tensor(R"("dtype":"U8","shape":[1],"data_offsets":[0,1],"stride":[1])", 1),
                "unknown field \"stride\"");
}
TEST_CASE("safetensors refuses fields of the wrong type") {
  check_refused(one_tensor(R"("dtype":5,"shape":[1],"data_offsets":[0,1])", 1),
                "dtype is not a string but number");
  check_refused(one_tensor(R"("dtype":"U8","shape":1,"data_offsets":[0,1])", 1),
                "shape is not an array but number");
  check_refused(one_tensor(R"("dtype":"U8","shape":[1],"data_offsets":{})", 1),
                "data_offsets is not an array but object");
  check_refused(one_tensor(R"("dtype":"U8","shape":["1"],"data_offsets":[0,1])", 1), "shape holds string");
  check_refused(one_tensor(R"("dtype":"U8","shape":[1],"data_offsets":[null,1])", 1),
                "data_offsets holds null");
  check_refused(one_tensor(R"("dtype":"U8","shape":[true],"data_offsets":[0,1])", 1), "shape holds boolean");
}
TEST_CASE("safetensors refuses a wrong number of offsets") {
  check_refused(one_tensor(R"("dtype":"U8","shape":[1],"data_offsets":[1])", 1),
                "data_offsets has 1 numbers");
  check_refused(one_tensor(R"("dtype":"U8","shape":[1],"data_offsets":[0,1,1])", 1),
                "data_offsets has 3 numbers");
}
TEST_CASE("safetensors refuses unknown dtypes") {
  check_refused(one_tensor(R"("dtype":"F33","shape":[1],"data_offsets":[0,1])", 1), "unknown dtype \"F33\"");
  check_refused(one_tensor(R"("dtype":"f32","shape":[1],"data_offsets":[0,4])", 4), "unknown dtype \"f32\"");
}
TEST_CASE("safetensors: a tensor of a dtype that Eddy does not have is in the way only of who reads it") {
  const TempFolder folder;
  const std::string path = folder.path("mixed.safetensors");
  const std::vector<std::pair<std::string, std::size_t>> types{
      {"I8", 4},      {"I16", 8},     {"U16", 8},     {"U32", 16},    {"U64", 32},        {"C64", 32},
      {"F8_E4M3", 4}, {"F8_E5M2", 4}, {"F8_E8M0", 4}, {"F6_E2M3", 3}, {"F8_E4M3FNUZ", 4}, {"F4", 2}};
  for (const auto& [type, bytes] : types) {
    CAPTURE(type);
    const std::string end = std::to_string(bytes);
    write_bytes(path,
                safetensors_bytes_of(R"({"mask":{"dtype":")" + type + R"(","shape":[4],"data_offsets":[0,)" +
                                         end + R"(]},"w":{"dtype":"U8","shape":[1],"data_offsets":[)" + end +
                                         "," + std::to_string(bytes + 1) + "]}}",
                                     std::string(bytes, '\1') + "\7"));
    const SafetensorsFile file = SafetensorsFile::open(path);
    CHECK(file.find("mask")->type == type);
    CHECK(!file.find("mask")->dtype.has_value());
    const auto read = load_safetensors(path, [](const std::string& name) { return name == "w"; });
    CHECK(read.size() == 1);
    CHECK(read.at("w").item() == 7);
    const std::string problem = error_of<DtypeError>([&] { static_cast<void>(load_safetensors(path)); });
    CHECK(contains(problem, path + ": tensor \"mask\": dtype " + type + " is not supported"));
  }
  check_refused(one_tensor(R"("dtype":"F4","shape":[3],"data_offsets":[0,1])", 1), "end inside a byte");
  check_refused(one_tensor(R"("dtype":"I16","shape":[3],"data_offsets":[0,3])", 3), "takes 6");
}
TEST_CASE("safetensors: PyTorch's masks, BOOL, are u8 here, and u8 is written as U8") {
  const TempFolder folder;
  const std::string path = folder.path("mask.safetensors");
  write_bytes(path, one_tensor(R"("dtype":"BOOL","shape":[3],"data_offsets":[0,3])", 3));
  const auto read = load_safetensors(path);
  CHECK(read.begin()->second.dtype() == Dtype::u8);
  save_safetensors(path, read);
  CHECK(SafetensorsFile::open(path).find(read.begin()->first)->type == "U8");
}
TEST_CASE("safetensors: every f16 is read as the f32 of the same number") {
  const TempFolder folder;
  const std::string path = folder.path("half.safetensors");
  std::string data;
  for (int bits = 0; bits < 1 << 16; ++bits) {
    data += static_cast<char>(bits & 0xff);
    data += static_cast<char>(bits >> 8);
  }
  // One byte before it, so that its numbers lie at odd addresses.
  write_bytes(path,
              safetensors_bytes_of(R"({"byte":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                   R"("half":{"dtype":"F16","shape":[256,256],"data_offsets":[1,131073]}})",
                                   "x" + data));
  const Tensor half = load_safetensors(path).at("half");
  CHECK(half.dtype() == Dtype::f32);
  CHECK(half.shape() == Shape{256, 256});
  const std::vector<float> read = half.to_vector<float>();
  int wrong = 0;
  for (int bits = 0; bits < 1 << 16; ++bits) {
    const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    const double sign = bits >> 15 != 0 ? -1 : 1;
    const double expected = exponent == 31  ? (mantissa == 0 ? INFINITY : NAN)
                            : exponent == 0 ? std::ldexp(mantissa, -24)
                                            : std::ldexp(1024 + mantissa, exponent - 25);
    const auto got = static_cast<double>(read[static_cast<std::size_t>(bits)]);
    const bool right = std::isnan(expected)
                           ? std::isnan(got)
                           : got == sign * expected && std::signbit(got) == std::signbit(sign);
    wrong += right ? 0 : 1;
  }
  CHECK(wrong == 0);
}
TEST_CASE("safetensors: what torch.save writes is named, with the way out") {
  const TempFolder folder;
  const std::string zip = std::string("PK\x03\x04\0\0\x08\x08\0\0", 10) + std::string(40, 'a'),
                    pickle = std::string("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19.", 15),
                    text = "neither of both";
  const std::vector<std::pair<std::string, std::string>> files{
      {"model.pt", zip}, {"model.bin", zip}, {"old.pth", pickle}, {"old", pickle}, {"text.pt", text}};
  for (const auto& [name, bytes] : files) {
    CAPTURE(name);
    write_bytes(folder.path(name), bytes);
    const std::string problem =
        error_of<FormatError>([&] { static_cast<void>(load_safetensors(folder.path(name))); });
    CHECK(contains(problem, name + ": this is a PyTorch pickle: save it with safetensors"));
    CHECK(contains(problem, "save_file(model.state_dict()"));
  }
  check_refused(text, "header length is too large");
  // A header of 640 bytes begins like a pickle, and a file may have any name.
  const std::string long_header = "{}" + std::string(638, ' ');
  for (const char* name : {"fine.safetensors", "fine.pt"}) {
    write_bytes(folder.path(name), safetensors_bytes_of(long_header));
    CHECK(load_safetensors(folder.path(name)).empty());
  }
}
TEST_CASE("safetensors: files of other formats are named for what they are") {
  const TempFolder folder;
  const std::string arrays =
      std::string("PK\x03\x04", 4) + std::string(26, 'b') + "weight.npy" + std::string(40, 'a');
  const std::vector<std::pair<std::string, std::string>> files{
      {std::string("GGUF\3\0\0\0{ 9 bytes", 17), "this is a GGUF file"},
      {"\x89HDF\r\n\x1a\n and more", "this is an HDF5 file"},
      {arrays, "numpy.load"},
      {"\x93NUMPY and more", "numpy.load"},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "git lfs pull"},
      {"<!DOCTYPE html>\n<title>Not found</title>", "download the file itself"},
      {"{\n \"metadata\": {\"total_size\": 1}}", "the index of several files"}};
  for (const auto& [bytes, what] : files) {
    CAPTURE(what);
    write_bytes(folder.path("weights"), bytes);
    const std::string problem =
        error_of<FormatError>([&] { static_cast<void>(load_safetensors(folder.path("weights"))); });
    CHECK_MESSAGE(contains(problem, what), problem);
    CHECK(contains(problem, folder.path("weights")));
  }
}
TEST_CASE("safetensors refuses negative sizes and offsets") {
  check_refused(one_tensor(R"("dtype":"U8","shape":[-1],"data_offsets":[0,1])", 1),
                "shape holds the negative number -1");
  check_refused(one_tensor(R"("dtype":"U8","shape":[1],"data_offsets":[-1,0])", 1),
                "data_offsets holds the negative number -1");
}
TEST_CASE("safetensors refuses sizes and offsets that are not integers") {
  check_refused(one_tensor(R"("dtype":"U8","shape":[1.0],"data_offsets":[0,1])", 1), "shape holds 1.0");
  check_refused(one_tensor(R"("dtype":"U8","shape":[1],"data_offsets":[0,1e0])", 1),
                "data_offsets holds 1.0");
}
TEST_CASE("safetensors refuses sizes that overflow") {
  check_refused(one_tensor(R"("dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,1])", 1),
                "at most");
  check_refused(one_tensor(R"("dtype":"U8","shape":[18446744073709551616],"data_offsets":[0,1])", 1),
                "not an integer");
  check_refused(one_tensor(R"("dtype":"U8","shape":[1e400],"data_offsets":[0,1])", 1), "not valid JSON");
  check_refused(one_tensor(R"("dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0])", 0),
                "overflows");
  check_refused(one_tensor(R"("dtype":"F64","shape":[1152921504606846976],"data_offsets":[0,0])", 0),
                "overflows");
  // Strides are products of the sizes, so a 0 does not make huge neighbours harmless.
  check_refused(one_tensor(R"("dtype":"U8","shape":[0,4294967296,4294967296],"data_offsets":[0,0])", 0),
                "overflows");
  check_refused(one_tensor(R"("dtype":"U8","shape":[1],"data_offsets":[0,9223372036854775808])", 1),
                "at most");
}
TEST_CASE("safetensors refuses ranks above six") {
  CHECK(refusal(one_tensor(R"("dtype":"U8","shape":[1,1,1,1,1,1],"data_offsets":[0,1])", 1)) == "accepted");
  check_refused(one_tensor(R"("dtype":"U8","shape":[1,1,1,1,1,1,1],"data_offsets":[0,1])", 1),
                "has rank 7 (at most 6)");
}
TEST_CASE("safetensors refuses reversed offsets") {
  check_refused(one_tensor(R"("dtype":"U8","shape":[1],"data_offsets":[1,0])", 1), "reversed: [1, 0]");
}
TEST_CASE("safetensors refuses offsets out of the file") {
  check_refused(one_tensor(R"("dtype":"U8","shape":[2],"data_offsets":[0,2])", 1), "out of the file");
  check_refused(one_tensor(R"("dtype":"U8","shape":[0],"data_offsets":[9,9])", 1), "out of the file");
}
TEST_CASE("safetensors refuses a byte count that is not the shape times the dtype") {
  check_refused(one_tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])", 4),
                "F32 of shape [2] takes 8");
  check_refused(one_tensor(R"("dtype":"F32","shape":[],"data_offsets":[0,0])", 0), "takes 4");
}
TEST_CASE("safetensors refuses overlapping tensors") {
  check_refused(safetensors_bytes_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                                     R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
                                     "xyz"),
                "tensor \"b\": its data overlap");
  check_refused(safetensors_bytes_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                                     R"("b":{"dtype":"U8","shape":[0],"data_offsets":[1,1]}})",
                                     "xy"),
                "tensor \"b\": its data overlap");
}
TEST_CASE("safetensors refuses gaps between tensors") {
  check_refused(safetensors_bytes_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                     R"("b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
                                     "xyz"),
                "tensor \"b\": gap in the data");
  check_refused(one_tensor(R"("dtype":"U8","shape":[1],"data_offsets":[1,2])", 2),
                "tensor \"a\": gap in the data");
}
TEST_CASE("safetensors refuses data that no tensor covers") {
  check_refused(one_tensor(R"("dtype":"U8","shape":[1],"data_offsets":[0,1])", 3), "1 of 3 bytes");
  check_refused(safetensors_bytes_of("{}", "x"), "0 of 1 bytes");
}

TEST_CASE("write_safetensors refuses bad items before it touches the file") {
  const TempFolder folder;
  const std::string path = folder.path("old");
  write_bytes(path, "old");
  const std::uint8_t byte = 1;
  const auto text = [&](const std::vector<SafetensorsItem>& items, const SafetensorsMetadata& metadata = {}) {
    return error_of<ValueError>([&] { write_safetensors(path, items, metadata); });
  };
  const SafetensorsItem good{"a", Dtype::u8, {1}, &byte};
  CHECK(contains(text({good, good}), "two tensors are named \"a\""));
  CHECK(contains(text({{"__metadata__", Dtype::u8, {1}, &byte}}), "reserves it"));
  CHECK(contains(text({{"a", Dtype::u8, {-1}, &byte}}), "shape [-1]"));
  CHECK(contains(text({{"a", Dtype::u8, {1, 1, 1, 1, 1, 1, 1}, &byte}}), "rank 7"));
  CHECK(contains(text({{"a", Dtype::u8, {1}, nullptr}}), "no data"));
  CHECK(contains(text({{"a", Dtype::f64, {INT64_MAX}, &byte}}), "fit 64 bits"));
  CHECK(contains(text({{"\xff", Dtype::u8, {1}, &byte}}), "not UTF-8"));
  CHECK(contains(text({good}, {{"k", "\xc3"}}), "not UTF-8"));
  CHECK(read_bytes(path) == "old");
  CHECK(folder.entries() == 1);
}

TEST_CASE("write_safetensors reports a missing folder and a target that is a folder") {
  const TempFolder folder;
  const std::vector<SafetensorsItem> none;
  CHECK(contains(error_of<IoError>([&] { write_safetensors(folder.path("no/such"), none); }),
                 "is not a folder (make it first)"));
  REQUIRE(mkdir(folder.path("target").c_str(), 0700) == 0);
  CHECK(
      contains(error_of<IoError>([&] { write_safetensors(folder.path("target"), none); }), "it is a folder"));
  CHECK(folder.entries() == 1);
}

// A write that fails part way leaves the old file whole and no temporary file, whether or not the program
// ignores the signal that a file size limit raises. In a child process, because limits and signals belong to
// the process.
TEST_CASE("write_safetensors leaves the old file whole when the disk refuses part way") {
  for (const bool ignore_signal : {true, false}) {
    CAPTURE(ignore_signal);
    const TempFolder folder;
    const std::string path = folder.path("target");
    write_bytes(path, "the old file");
    const std::vector<std::uint8_t> data(100'000, 7);
    const std::vector<SafetensorsItem> items = {
        {"a", Dtype::u8, {static_cast<std::int64_t>(data.size())}, data.data()}};
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      signal(SIGXFSZ, ignore_signal ? SIG_IGN : SIG_DFL);
      const rlimit limit{50'000, 50'000};
      setrlimit(RLIMIT_FSIZE, &limit);
      try {
        write_safetensors(path, items);
      } catch (const IoError& error) {
        const std::string text = error.what();
        _exit(contains(text, path) && contains(text, "after 50000 bytes") && contains(text, "too large") ? 17
                                                                                                         : 2);
      } catch (...) {
        _exit(3);
      }
      _exit(4);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 17);
    CHECK(read_bytes(path) == "the old file");
    CHECK(folder.entries() == 1);
  }
}

TEST_CASE("save_safetensors and load_safetensors carry tensors of any strides") {
  const TempFolder folder;
  const std::string path = folder.path("tensors");
  const Tensor x = Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  save_safetensors(path,
                   {{"x", x},
                    {"x.t", raw::transpose(x, 0, 1)},
                    {"tail", raw::narrow(x, 0, 1, 1)},
                    {"empty", Tensor::empty({0, 4}, Dtype::i64)},
                    {"scalar", Tensor::from<double>({2.5}, Shape{})}},
                   {{"note", "text"}});
  const std::map<std::string, Tensor> back = load_safetensors(path);
  REQUIRE(back.size() == 5);
  CHECK(back.at("x").to_vector<float>() == std::vector<float>{1, 2, 3, 4, 5, 6});
  CHECK(back.at("x.t").shape() == Shape{3, 2});
  CHECK(back.at("x.t").to_vector<float>() == std::vector<float>{1, 4, 2, 5, 3, 6});
  CHECK(back.at("tail").to_vector<float>() == std::vector<float>{4, 5, 6});
  CHECK(back.at("empty").shape() == Shape{0, 4});
  CHECK(back.at("empty").dtype() == Dtype::i64);
  CHECK(back.at("scalar").item() == 2.5);
  CHECK(SafetensorsFile::open(path).metadata().at("note") == "text");
  CHECK(contains(error_of<ValueError>([&] { save_safetensors(path, {{"u", Tensor()}}); }), "undefined"));
}
