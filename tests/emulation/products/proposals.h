// What tests of timed products share.
#pragma once

#include <utility>
#include <vector>

#include "cuda/runtime/gemm.h"
#include "ops/backends.h"
#include "ops/core/product_algorithms.h"
#include "tests/emulation/emulation.h"

namespace eddy::test {

// The first takes a millisecond. One is quicker and fails, one is quicker and has other bits, one is hardly quicker.
inline std::vector<emulation::Proposal> four_proposals() {
  return {{.ms = 1}, {.ms = 0.1, .fails = true}, {.ms = 0.5, .splits = true}, {.ms = 0.995}};
}

// cuBLASLt proposes these while alive, and no product was timed yet.
class Proposed {
 public:
  explicit Proposed(std::vector<emulation::Proposal> proposals = four_proposals()) {
    start(std::move(proposals), kVersion);
  }
  ~Proposed() {
    start({}, kVersion);
    set_gpu_kernels("auto");
  }
  Proposed(const Proposed&) = delete;
  Proposed& operator=(const Proposed&) = delete;

  // From here on the library is another one, 13.1.0.
  static void change_library() { start(four_proposals(), 130100); }

 private:
  static constexpr std::size_t kVersion = 130000;

  static void start(std::vector<emulation::Proposal> proposals, std::size_t version) {
    set_product_algorithms({});
    cuda::forget_product_plans();  // they have the former proposals
    emulation::propose(std::move(proposals));
    emulation::set_library_version(version);
  }
};

}  // namespace eddy::test
