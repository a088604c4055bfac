// Numbers, texts and tensors as bytes, to be sent from rank to rank. Both read and write in the same order.
#pragma once

#include <cstddef>
#include <cstring>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "tensor/tensor.h"
#include "train/ranks/ranks.h"

namespace eddy::training {

class Message {
 public:
  template <class T>
  requires std::is_trivially_copyable_v<T>
  void put(const T& value) { append(&value, sizeof value); }
  void put(const std::string& text);
  void put(const std::vector<std::string>& texts);
  void put(const std::vector<std::int64_t>& numbers);
  // A tensor, which may be undefined, of any strides and device.
  void put(const Tensor& x);
  void put(const std::map<std::string, Tensor>& tensors);

  // Each returns what was put next.
  // errors: IoError when the message ends before.
  template <class T>
  requires std::is_trivially_copyable_v<T> T get() {
    T value;
    std::memcpy(&value, take(sizeof value), sizeof value);
    return value;
  }
  std::string get_text();
  std::vector<std::string> get_texts();
  std::vector<std::int64_t> get_numbers();
  Tensor get_tensor();  // on the CPU
  std::map<std::string, Tensor> get_tensors();

  // Sends the message with its length; receives one.
  // errors: those of Ranks::exchange.
  void send(Ranks& ranks, int to) const;
  static Message receive(Ranks& ranks, int from, Patience patience = Patience::limited);

 private:
  void append(const void* data, std::size_t bytes);
  const std::byte* take(std::size_t bytes);

  std::vector<std::byte> bytes_;
  std::size_t read_ = 0;
};

}  // namespace eddy::training
