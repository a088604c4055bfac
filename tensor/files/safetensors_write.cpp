// Writing safetensors files: checks first, then one pass through an AtomicFile.
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "tensor/base/format.h"
#include "tensor/files/atomic_file.h"
#include "tensor/files/json_text.h"
#include "tensor/files/safetensors.h"
#include "tensor/files/safetensors_layout.h"
#include "tensor/shape.h"

namespace eddy {
namespace {

struct Placed {
  const SafetensorsItem* item;
  std::int64_t bytes;
  std::int64_t begin = 0;
};

std::int64_t checked_bytes(const SafetensorsItem& item) {
  if (item.name == kSafetensorsMetadataKey)
    fail<ValueError>("write_safetensors: a tensor cannot be named {} (the format reserves it)",
                     kSafetensorsMetadataKey);
  if (item.shape.size() > kMaxRank)
    fail<ValueError>("write_safetensors: tensor {}: rank {} (at most {})", quote_text(item.name),
                     item.shape.size(), kMaxRank);
  const auto bytes = safetensors_bytes(item.shape, safetensors_type(item.dtype));
  if (!bytes)
    fail<ValueError>(
        "write_safetensors: tensor {}: shape [{}] (sizes must be >= 0 and their bytes fit 64 bits)",
        quote_text(item.name), fmt::join(item.shape, ", "));
  if (*bytes > 0 && item.data == nullptr)
    fail<ValueError>("write_safetensors: tensor {}: no data", quote_text(item.name));
  return *bytes;
}

// All items sorted by name.
std::vector<Placed> sorted_by_name(std::span<const SafetensorsItem> items) {
  std::vector<Placed> placed;
  placed.reserve(items.size());
  for (const SafetensorsItem& item : items) placed.push_back({&item, checked_bytes(item)});
  std::sort(placed.begin(), placed.end(),
            [](const Placed& a, const Placed& b) { return a.item->name < b.item->name; });
  for (std::size_t i = 1; i < placed.size(); ++i)
    if (placed[i].item->name == placed[i - 1].item->name)
      fail<ValueError>("write_safetensors: two tensors are named {}", quote_text(placed[i].item->name));
  return placed;
}

// Indices in the order of the data: wide elements first, so that every tensor starts at a multiple of its
// element size.
std::vector<std::size_t> data_order(const std::vector<Placed>& placed) {
  std::vector<std::size_t> order(placed.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return dtype_bytes(placed[a].item->dtype) > dtype_bytes(placed[b].item->dtype);
  });
  return order;
}

std::string quoted(const std::string& text, const char* what) {
  if (std::optional<std::string> quoted_text = json_string(text)) return *std::move(quoted_text);
  fail<ValueError>("write_safetensors: {} is not UTF-8: {}", what, quote_text(text));
}

std::string header_text(const std::vector<Placed>& placed, const SafetensorsMetadata& metadata) {
  std::vector<std::string> members;
  members.reserve(placed.size() + 1);
  if (!metadata.empty()) {
    std::vector<std::string> pairs;
    for (const auto& [key, value] : metadata)
      pairs.push_back(quoted(key, "a metadata key") + ":" + quoted(value, "a metadata text"));
    members.push_back(fmt::format("\"{}\":{{{}}}", kSafetensorsMetadataKey, fmt::join(pairs, ",")));
  }
  for (const Placed& tensor : placed)
    members.push_back(
        fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                    quoted(tensor.item->name, "a name"), safetensors_type(tensor.item->dtype).name,
                    fmt::join(tensor.item->shape, ","), tensor.begin, tensor.begin + tensor.bytes));
  std::string text = fmt::format("{{{}}}", fmt::join(members, ","));
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > static_cast<std::size_t>(kSafetensorsMaxHeaderBytes))
    fail<ValueError>("write_safetensors: the header takes {} bytes (at most {})", text.size(),
                     kSafetensorsMaxHeaderBytes);
  return text;
}

}  // namespace

void write_safetensors(const std::string& path, std::span<const SafetensorsItem> items,
                       const SafetensorsMetadata& metadata) {
  std::vector<Placed> placed = sorted_by_name(items);
  const std::vector<std::size_t> order = data_order(placed);
  std::int64_t end = 0;
  for (const std::size_t i : order) {
    placed[i].begin = end;
    if (__builtin_add_overflow(end, placed[i].bytes, &end))
      fail<ValueError>("write_safetensors: the tensors together take more bytes than 64 bits can count");
  }
  const std::string header = header_text(placed, metadata);

  AtomicFile file(path);
  const std::uint64_t length = header.size();
  file.write(&length, sizeof length);
  file.write(header.data(), std::ssize(header));
  for (const std::size_t i : order) file.write(placed[i].item->data, placed[i].bytes);
  file.commit();
}

}  // namespace eddy
