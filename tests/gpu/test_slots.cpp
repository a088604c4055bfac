// What the installation of the GPU's backend fills. Needs no GPU: installing sets pointers.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "cuda/runtime/allocator.h"
#include "cuda/runtime/device.h"
#include "ops/attention/attention.h"
#include "ops/attention/rotary.h"
#include "ops/backends.h"
#include "ops/index/gather.h"
#include "ops/loss/cross_entropy.h"
#include "ops/memory/memory_search.h"
#include "ops/memory/memory_write.h"
#include "ops/norm/layer_norm.h"
#include "ops/norm/rms_norm.h"
#include "ops/norm/unit_norm.h"
#include "ops/optimizer/adafactor.h"
#include "ops/optimizer/optimizer.h"
#include "ops/pointwise/dropout.h"
#include "ops/pointwise/pointwise.h"
#include "ops/pointwise/where.h"
#include "ops/product/gemm.h"
#include "ops/recurrence/block_accumulate.h"
#include "ops/recurrence/block_forget.h"
#include "ops/recurrence/gates.h"
#include "ops/recurrence/lstm_cell.h"
#include "ops/recurrence/unit_recurrence.h"
#include "ops/reduce/partial_sums.h"
#include "ops/reduce/reduce.h"
#include "ops/reduce/softmax.h"
#include "tensor/base/error.h"
#include "tensor/transfer.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

using namespace eddy;

namespace {

struct Entry {
  std::string name;
  bool filled;
};

template <class... Slots>
std::vector<Entry> entries_of(const Slots&... slots) {
  return {{slots.name, slots.function[static_cast<int>(DeviceType::cuda)] != nullptr}...};
}

// The names of all slots that the sources of ops/ define. A CpuSlot is none of them.
std::vector<std::string> names_in_sources() {
  static const std::regex definition(R"re(constinit\s+Slot<[^>]+>\s+\w+\s*\{\s*"(\w+)")re");
  namespace fs = std::filesystem;
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(EDDY_SOURCE_DIR "/ops")) {
    if (entry.path().extension() != ".cpp") continue;
    const std::string text = test::read_bytes(entry.path());
    for (std::sregex_iterator match(text.begin(), text.end(), definition), end; match != end; ++match)
      names.push_back((*match)[1].str());
  }
  return names;
}

std::vector<Entry> all_entries() {
  return entries_of(
      gemm_slot, product_supports_slot, unary_forward_slot, unary_backward_slot, binary_slot, where_slot,
      sum_slot, partial_sums_slot, max_forward_slot, max_backward_slot, softmax_forward_slot,
      softmax_backward_slot, log_softmax_forward_slot, log_softmax_backward_slot, layer_norm_forward_slot,
      layer_norm_backward_slot, rms_norm_forward_slot, rms_norm_backward_slot, unit_norm_forward_slot,
      unit_norm_backward_slot, cross_entropy_forward_slot, cross_entropy_mean_slot, cross_entropy_rows_slot,
      cross_entropy_backward_slot, embedding_forward_slot, embedding_backward_slot, gather_forward_slot,
      gather_backward_slot, dropout_slot, tiled_dropout_slot, attention_forward_slot, attention_backward_slot,
      rotary_slot, gate_forward_slot, gate_backward_slot, lstm_cell_forward_slot, lstm_cell_backward_slot,
      unit_recurrence_forward_slot, unit_recurrence_backward_slot, unit_recurrence_supports_slot,
      block_forget_supports_slot, block_forget_forward_slot, block_forget_backward_slot,
      block_accumulate_supports_slot, block_accumulate_forward_slot, block_accumulate_backward_slot,
      adam_slot, l2_norm_slot, scale_slot, adafactor_slot, memory_mark_slot, memory_take_slot,
      memory_write_slot);
}

}  // namespace

TEST_CASE("no slot is empty for a GPU in a build with CUDA") {
  install_backends();
  for (const Entry& entry : all_entries()) CHECK_MESSAGE(entry.filled, entry.name);
}

TEST_CASE("every slot that the sources define is looked at above") {
  const std::vector<Entry> entries = all_entries();
  const std::vector<std::string> names = names_in_sources();
  CHECK(names.size() == entries.size());
  for (const std::string& name : names)
    CHECK_MESSAGE(
        std::any_of(entries.begin(), entries.end(), [&](const Entry& entry) { return entry.name == name; }),
        name, " is missing: add it to all_entries, and its kernel to cuda/install.cpp");
}

TEST_CASE("a slot that is empty for a device says so instead of touching its memory") {
  struct Args {};
  const Slot<Args> nothing{"nothing"};
  const std::string text = test::error_of<DeviceError>([&] { nothing({DeviceType::cuda, 0}, Args{}); });
  CHECK(text.find("nothing: this build has no kernel for cuda:0 (it has: cpu, cuda") == 0);
}

TEST_CASE("the allocator and the transfer of the GPU are installed without touching a GPU") {
  const std::int64_t before = cuda::device_allocator().stats().live_bytes;  // what other tests left in caches
  install_backends();
  CHECK(&allocator({DeviceType::cuda, 0}) == &cuda::device_allocator());
  CHECK_NOTHROW(transfer({DeviceType::cuda, 0}));
  CHECK(cuda::device_allocator().stats().live_bytes == before);
}

TEST_CASE("the status of the GPU is one line that names what this build was made for") {
  const std::string text = cuda_status();
  CHECK(text.find("built for ") == 0);
  CHECK(text.find("cuBLASLt ") != std::string::npos);
  CHECK(text.find('\n') == std::string::npos);
}

TEST_CASE("code for an architecture runs on its own generation and intermediate code on all that are newer") {
  const char* const all = "80 86 89 90 100 120";
  for (const auto& [major, minor] : {std::pair{8, 0}, std::pair{8, 7}, std::pair{9, 0}, std::pair{12, 1}})
    CHECK(cuda::runs_on(all, major, minor));
  CHECK(!cuda::runs_on(all, 7, 5));
  CHECK(cuda::runs_on("80-real 90", 10, 0));
  CHECK(cuda::runs_on("80-real", 8, 6));
  CHECK(!cuda::runs_on("80-real", 9, 0));
  CHECK(cuda::runs_on("80-virtual", 9, 0));
  CHECK(cuda::runs_on("90a-real", 9, 0));
  CHECK(!cuda::runs_on("90a", 10, 0));
  CHECK(cuda::runs_on("100f", 10, 3));
  CHECK(!cuda::runs_on("100f", 12, 0));
  CHECK(!cuda::runs_on("", 9, 0));
}
