// The processors of this machine, and which of them this process may use.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace eddy {

// A set of processors by their numbers, as bytes that can be sent to another process.
class ProcessorSet {
 public:
  static constexpr int kMost = 1024;

  void add(int number);
  int count() const;
  // Returns whether a processor is in both sets.
  bool meets(const ProcessorSet& other) const;

 private:
  std::array<std::uint64_t, kMost / 64> words_{};
};

// Returns the processors that this process may run on; all of the machine where the system tells no more.
ProcessorSet allowed_processors();

// Returns what the maker calls the processor; "unknown" where the system does not tell.
std::string processor_name();

// Asks the system to let this process use the tiles of Intel's AMX. Returns whether it does.
bool allow_amx_tiles();

// Returns whether the system says that the processor has ARM64's products of matrices of bf16 (FEAT_BF16: BFMMLA).
bool has_bf16_matrices();

}  // namespace eddy
