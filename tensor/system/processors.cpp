// Sets as bits of words.
#include "tensor/system/processors.h"

#include <bit>
#include <cstddef>

namespace eddy {

void ProcessorSet::add(int number) {
  if (number >= 0 && number < kMost)
    words_[static_cast<std::size_t>(number / 64)] |= std::uint64_t{1} << (number % 64);
}

int ProcessorSet::count() const {
  int count = 0;
  for (const std::uint64_t word : words_) count += std::popcount(word);
  return count;
}

bool ProcessorSet::meets(const ProcessorSet& other) const {
  for (std::size_t i = 0; i < words_.size(); ++i)
    if ((words_[i] & other.words_[i]) != 0) return true;
  return false;
}

}  // namespace eddy
