// mbarriers and copies of boxes: where a box comes, what a phase shows, and each rule broken once.
#include <doctest/doctest.h>

#include <fmt/format.h>

#include <cstring>

#include "tests/emulation/tensor_map.h"
#include "tests/ptx/kernel_text.h"

using namespace ptx;
using ptx::test::Kernel;

namespace {

constexpr std::uint64_t kMatrix = 0x10000, kOut = 0x20000;
constexpr int kRows = 12, kColumns = 64;  // of two bytes; a box has 8 rows

// Warp 1 loads two boxes into one place, and warp 0 writes the fifth row of each, as it lies there.
const std::string kText = R"(
.version 9.0
.target sm_90a
.address_size 64
.extern .shared .align 16 .b8 memory[];
.visible .entry kernel(.param .align 64 .b8 map[128], .param .u64 out)
{
  .reg .pred %p<10>;
  .reg .b32 %r<20>;
  .reg .b64 %rd<10>;
  ld.param.u64 %rd1, [out];
  mov.b64 %rd2, map;
  cvta.param.u64 %rd3, %rd2;
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, memory;
  add.s32 %r3, %r2, 1008;
  and.b32 %r4, %r1, 31;
  mov.u32 %r5, 0;
  mov.u32 %r8, 0;
  setp.ne.s32 %p1, %r1, 0;
  @%p1 bra prepared;
  mbarrier.init.shared::cta.b64 [%r2], 1;
  mbarrier.init.shared::cta.b64 [%r2+8], 1;
  fence.mbarrier_init.release.cluster;
prepared:
  bar.sync 0;
  setp.lt.s32 %p2, %r1, 32;
  setp.ne.s32 %p4, %r4, 0;
  @%p2 bra reads;
loads:
  xor.b32 %r6, %r5, 1;
  mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r2+8], %r6;
  @%p4 bra loaded;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 1024;
  shl.b32 %r7, %r5, 3;
  cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%rd3, {%r8, %r8, %r7, %r8}], [%r2];
loaded:
  add.s32 %r5, %r5, 1;
  setp.lt.s32 %p5, %r5, 2;
  @%p5 bra loads;
  ret;
reads:
  mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r2], %r5;
  shl.b32 %r9, %r4, 2;
  add.s32 %r10, %r3, %r9;
  ld.shared.u32 %r11, [%r10+512];
  shl.b32 %r12, %r5, 5;
  add.s32 %r12, %r12, %r4;
  mul.wide.u32 %rd4, %r12, 4;
  add.s64 %rd5, %rd1, %rd4;
  st.global.u32 [%rd5], %r11;
  bar.warp.sync -1;
  @%p4 bra read;
  mbarrier.arrive.shared::cta.b64 _, [%r2+8];
read:
  add.s32 %r5, %r5, 1;
  setp.lt.s32 %p5, %r5, 2;
  @%p5 bra reads;
  ret;
}
)";

struct Result {
  std::string error;
  std::uint16_t rows[2][kColumns] = {};
};

// Runs the kernel with one text replaced by another.
Result run(const std::string& from = "", const std::string& to = "") {
  std::string text = kText;
  if (!from.empty()) {
    const std::size_t at = text.find(from);
    REQUIRE(at != text.npos);
    text.replace(at, from.size(), to);
  }
  std::uint16_t matrix[kRows][kColumns];
  for (int i = 0; i < kRows * kColumns; ++i)
    matrix[i / kColumns][i % kColumns] = static_cast<std::uint16_t>(i);
  GlobalMemory memory;
  const auto* const start = reinterpret_cast<const unsigned char*>(matrix);
  memory.add(kMatrix, {start, start + sizeof matrix});
  memory.add(kOut, std::vector<unsigned char>(sizeof Result::rows));
  emulation::EncodedMap map;
  map.start = kMatrix;
  const std::uint32_t sizes[] = {kColumns, 1, kRows, 1}, box[] = {kColumns, 1, 8, 1};
  std::memcpy(map.sizes, sizes, sizeof sizes);
  std::memcpy(map.box, box, sizeof box);
  map.strides[0] = map.strides[1] = map.strides[2] = 2 * kColumns;
  std::vector<unsigned char> arguments(128 + 8);
  std::memcpy(arguments.data(), &map, sizeof map);
  std::memcpy(arguments.data() + 128, &kOut, 8);
  Result result;
  try {
    const Module module = parse_module("test", text);
    const auto program = translate(module, module.function("kernel"));
    Grid grid(*program, memory, {1, 64, 2048 + 16}, arguments);
    grid.most_instructions = 100'000;
    grid.run();
  } catch (const Fault& fault) {
    result.error = fault.what();
  }
  std::memcpy(result.rows, memory.find(kOut, sizeof result.rows)->bytes.data(), sizeof result.rows);
  return result;
}

bool says(const std::string& error, const char* what) {
  INFO(error);
  return error.find(what) != std::string::npos;
}

const std::string kFull = "mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r2], %r5;",
                  kEmpty = "mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r2+8], %r6;",
                  kArrival = "mbarrier.arrive.shared::cta.b64 _, [%r2+8];";

}  // namespace

TEST_CASE("ptx: a box comes with the swizzle of 128 bytes, and zeros for what lies outside of the tensor") {
  const Result result = run();
  CHECK(result.error == "");
  for (int column = 0; column < kColumns; ++column) {
    // Piece c of 8 numbers of row 4 lies at place c XOR 4; row 12 does not exist.
    CHECK(result.rows[0][(column / 8 ^ 4) * 8 + column % 8] == 4 * kColumns + column);
    CHECK(result.rows[1][column] == 0);
  }
}

TEST_CASE("ptx: what a copy of a box brings is touched behind a wait for its phase alone") {
  const std::string error = run(kFull).error;
  CHECK((says(error, "nobody wrote it") || says(error, "a copy writes it") ||
         says(error, "no wait for the phase")));
  CHECK(run(kFull, "mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r2], 1;").error != "");
}

TEST_CASE("ptx: a place is overwritten behind the arrival of those that read it alone") {
  CHECK(run(kEmpty).error != "");
  CHECK(says(run("  bar.warp.sync -1;\n").error, "was read by thread"));
  CHECK(says(run(kArrival).error, "the phase does not end"));
  CHECK(run(kArrival, kArrival + "\n  " + kArrival).error != "");  // of one that the phase waits for
}

TEST_CASE("ptx: bytes are counted, and mbarriers are published") {
  CHECK(says(run("_, [%r2], 1024;", "_, [%r2], 1040;").error, "the phase does not end"));
  CHECK(run("_, [%r2], 1024;", "_, [%r2], 1008;").error != "");
  CHECK(says(run("  fence.mbarrier_init.release.cluster;\n").error, "without fence.mbarrier_init"));
  CHECK(says(run("  mbarrier.init.shared::cta.b64 [%r2+8], 1;\n").error, "nobody prepared"));
  CHECK(says(run("add.s32 %r3, %r2, 1008;", "add.s32 %r3, %r2, 1024;").error, "multiple of 1,024"));
  CHECK(says(run("mov.b64 %rd2, map;", "mov.b64 %rd2, out;").error, "map of a tensor"));
}

TEST_CASE("ptx: an arrival shows what its warp stored before its last bar.warp.sync") {
  Kernel kernel;
  kernel.shape = {1, 64, 0};
  kernel.shared = ".shared .align 16 .b8 row[256];\n.shared .align 8 .b64 phase;";
  const std::string head = R"(
  mov.u32 %r2, row;
  mov.u32 %r3, phase;
  and.b32 %r4, %r1, 31;
  shl.b32 %r5, %r4, 2;
  add.s32 %r6, %r2, %r5;
  setp.ne.s32 %p1, %r1, 0;
  @%p1 bra prepared;
  mbarrier.init.shared::cta.b64 [%r3], 1;
prepared:
  bar.sync 0;
  setp.lt.s32 %p2, %r1, 32;
  @%p2 bra reads;
  st.shared.u32 [%r6], %r1;
)",
                    sync = "  bar.warp.sync -1;\n", arrival = R"(
  setp.ne.s32 %p3, %r4, 0;
  @%p3 bra done;
  mbarrier.arrive.shared::cta.b64 _, [%r3];
done:
  ret;
reads:
)",
                    wait = "  mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r3], 0;\n",
                    read = "  ld.shared.u32 %r7, [%r6];\n  st.global.u32 [%rd4], %r7;\n";
  kernel.body = head + sync + arrival + wait + read;
  const test::Outcome outcome = kernel.run();
  CHECK(outcome.error == "");
  for (std::uint32_t lane = 0; lane < 32; ++lane) CHECK(outcome.at<std::uint32_t>(lane) == 32 + lane);
  kernel.body = head + arrival + wait + read;
  CHECK(says(kernel.run().error, "a race"));
  kernel.body = head + sync + arrival + read;
  const std::string error = kernel.run().error;
  CHECK((says(error, "a race") || says(error, "nobody wrote")));
}
