// Messages as plain bytes: all ranks run one program on machines of one byte order.
#include "train/ranks/message.h"

#include <cstdint>

#include "tensor/base/format.h"

namespace eddy::training {

void Message::append(const void* data, std::size_t bytes) {
  if (bytes == 0) return;
  const auto* from = static_cast<const std::byte*>(data);
  bytes_.insert(bytes_.end(), from, from + bytes);
}

const std::byte* Message::take(std::size_t bytes) {
  if (bytes > bytes_.size() - read_)
    fail<IoError>(
        "ranks: a message of {} bytes ends before its part of {} bytes at {} (one program on all ranks)",
        bytes_.size(), bytes, read_);
  read_ += bytes;
  return bytes_.data() + (read_ - bytes);
}

void Message::put(const std::string& text) {
  put(static_cast<std::uint64_t>(text.size()));
  append(text.data(), text.size());
}

std::string Message::get_text() {
  const auto size = static_cast<std::size_t>(get<std::uint64_t>());
  const auto* data = reinterpret_cast<const char*>(take(size));
  return {data, size};
}

void Message::put(const std::vector<std::string>& texts) {
  put(static_cast<std::uint64_t>(texts.size()));
  for (const std::string& text : texts) put(text);
}

std::vector<std::string> Message::get_texts() {
  std::vector<std::string> texts;
  for (auto left = get<std::uint64_t>(); left > 0; --left) texts.push_back(get_text());
  return texts;
}

void Message::put(const std::vector<std::int64_t>& numbers) {
  put(static_cast<std::uint64_t>(numbers.size()));
  append(numbers.data(), numbers.size() * sizeof(std::int64_t));
}

std::vector<std::int64_t> Message::get_numbers() {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(get<std::uint64_t>()));
  const std::size_t bytes = numbers.size() * sizeof(std::int64_t);
  if (const std::byte* const data = take(bytes); bytes > 0) std::memcpy(numbers.data(), data, bytes);
  return numbers;
}

void Message::put(const Tensor& x) {
  put(x.defined());
  if (!x.defined()) return;
  const Tensor packed = raw::contiguous(raw::to_device(x, kCpu));
  put(packed.dtype());
  put(static_cast<std::int32_t>(packed.rank()));
  for (int axis = 0; axis < packed.rank(); ++axis) put(packed.dim(axis));
  append(packed.raw_data(), static_cast<std::size_t>(packed.bytes()));
}

Tensor Message::get_tensor() {
  if (!get<bool>()) return {};
  const auto dtype = get<Dtype>();
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(get<std::int32_t>()));
  for (std::int64_t& size : sizes) size = get<std::int64_t>();
  const Tensor x = Tensor::empty(Shape(sizes), dtype, kCpu);
  const auto bytes = static_cast<std::size_t>(x.bytes());
  if (const std::byte* const data = take(bytes); bytes > 0) std::memcpy(x.raw_data(), data, bytes);
  return x;
}

void Message::put(const std::map<std::string, Tensor>& tensors) {
  put(static_cast<std::uint64_t>(tensors.size()));
  for (const auto& [name, tensor] : tensors) {
    put(name);
    put(tensor);
  }
}

std::map<std::string, Tensor> Message::get_tensors() {
  std::map<std::string, Tensor> tensors;
  for (auto left = get<std::uint64_t>(); left > 0; --left) {
    std::string name = get_text();
    tensors.emplace(std::move(name), get_tensor());
  }
  return tensors;
}

void Message::send(Ranks& ranks, int to) const {
  const auto size = static_cast<std::uint64_t>(bytes_.size());
  ranks.send(to, std::as_bytes(std::span(&size, 1)));
  ranks.send(to, bytes_);
}

Message Message::receive(Ranks& ranks, int from, Patience patience) {
  std::uint64_t size = 0;
  ranks.receive(from, std::as_writable_bytes(std::span(&size, 1)), patience);
  Message message;
  message.bytes_.resize(static_cast<std::size_t>(size));
  ranks.receive(from, message.bytes_);
  return message;
}

}  // namespace eddy::training
