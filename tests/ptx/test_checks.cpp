// What the interpreter must find: each case breaks one rule, beside the right kernel that passes.
#include <doctest/doctest.h>

#include "tests/ptx/kernel_text.h"

using namespace ptx;
using ptx::test::Kernel;
using ptx::test::Outcome;

namespace {

std::string error_of(const std::string& body, const Shape& shape = {1, 64, 0}) {
  Kernel kernel;
  kernel.body = body;
  kernel.shape = shape;
  kernel.shared = ".shared .align 16 .b8 row[1024];\n.shared .align 4 .u32 count;";
  return kernel.run().error;
}
bool says(const std::string& error, const char* what) {
  INFO(error);
  return error.find(what) != std::string::npos;
}

const std::string kRow = R"(
  mov.u32 %r2, row;
  shl.b32 %r3, %r1, 2;
  add.s32 %r4, %r2, %r3;
  xor.b32 %r5, %r3, 4;
  add.s32 %r6, %r2, %r5;
  xor.b32 %r7, %r3, 128;
  add.s32 %r8, %r2, %r7;
  mul.wide.u32 %rd6, %r1, 16;
  add.s64 %rd7, %rd1, %rd6;
  shl.b32 %r20, %r1, 4;
  add.s32 %r21, %r2, %r20;
  mov.u32 %r22, 16;
  mov.u64 %rd9, 65536;
)";

}  // namespace

TEST_CASE("ptx: accesses must be aligned and in bounds") {
  CHECK(error_of("  ld.global.u32 %r2, [%rd3];\n") == "");
  CHECK(says(error_of("  ld.global.u32 %r2, [%rd3+2];\n"), "misaligned"));
  CHECK(says(error_of("  ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1+8];\n"), "misaligned"));
  CHECK(says(error_of("  ld.global.u32 %r2, [%rd3+4096];\n"), "out of bounds"));
  CHECK(says(error_of("  st.global.u32 [%rd1+-4], %r1;\n"), "out of bounds"));
  CHECK(error_of(kRow + "  st.shared.u32 [%r4], %r1;\n") == "");
  CHECK(says(error_of(kRow + "  st.shared.u32 [%r4+1020], %r1;\n"), "out of bounds"));
  CHECK(says(error_of(kRow + "  st.shared.v2.u32 [%r4], {%r1, %r1};\n"), "misaligned"));
}

TEST_CASE("ptx: threads of different warps need a barrier between a write and a read") {
  const std::string write = kRow + "  st.shared.u32 [%r4], %r1;\n", read = "  ld.shared.u32 %r9, [%r8];\n";
  CHECK(error_of(write + "  bar.sync 0;\n" + read) == "");
  // Without it the interpreter meets the read before the write or after it.
  const std::string error = error_of(write + "  bar.warp.sync -1;\n" + read);
  CHECK((says(error, "nobody wrote") || says(error, "a race")));
  CHECK(says(error_of(write + "  bar.sync 0;\n" + read + "  st.shared.u32 [%r4], %r9;\n"), "a race"));
  CHECK(says(error_of(kRow + "  st.shared.u32 [%r2], %r1;\n"), "a race"));
}

TEST_CASE("ptx: lanes of one warp need bar.warp.sync between a write and a read") {
  const std::string write = kRow + "  st.shared.u32 [%r4], %r1;\n", read = "  ld.shared.u32 %r9, [%r6];\n";
  CHECK(error_of(write + "  bar.warp.sync -1;\n" + read) == "");
  CHECK(says(error_of(write + read), "a race"));
  const std::string again = "  st.shared.u32 [%r4], %r9;\n";
  CHECK(error_of(write + "  bar.warp.sync -1;\n" + read + "  bar.warp.sync -1;\n" + again) == "");
  CHECK(says(error_of(write + "  bar.warp.sync -1;\n" + read + again), "a race"));
}

TEST_CASE("ptx: shared memory must be written before it is read") {
  CHECK(says(error_of(kRow + "  ld.shared.u32 %r9, [%r4];\n"), "nobody wrote"));
}

TEST_CASE("ptx: what cp.async brings is touched after its wait alone") {
  const std::string copy = kRow + "  cp.async.cg.shared.global [%r21], [%rd7], 16, %r22;\n";
  const std::string read = "  ld.shared.u32 %r9, [%r21];\n";
  CHECK(error_of(copy + "  cp.async.wait_all;\n" + read) == "");
  CHECK(says(error_of(copy + read + "  cp.async.wait_all;\n"), "no wait before it"));
  CHECK(says(error_of(copy + "  st.shared.u32 [%r21], %r1;\n  cp.async.wait_all;\n"), "no wait before it"));
  CHECK(says(error_of(copy), "nobody waited"));
  CHECK(says(error_of(kRow + "  cp.async.cg.shared.global [%r21], [%rd7+4], 16, %r22;\n"), "misaligned"));
}

TEST_CASE("ptx: atomic operations in shared memory do not race with each other, and do with others") {
  const std::string zero = R"(
  mov.u32 %r2, count;
  mov.u32 %r3, 0;
  setp.eq.s32 %p1, %r1, 0;
  @%p1 st.shared.u32 [%r2], %r3;
)";
  const std::string add = "  atom.shared.add.u32 %r4, [%r2], 1;\n";
  CHECK(error_of(zero + "  bar.sync 0;\n" + add + "  bar.sync 0;\n  ld.shared.u32 %r5, [%r2];\n") == "");
  CHECK(says(error_of(zero + "  bar.sync 0;\n" + add + "  ld.shared.u32 %r5, [%r2];\n"), "a race"));
}

TEST_CASE("ptx: all lanes must reach an instruction of the warp, and all threads a barrier") {
  const std::string part = "  setp.lt.s32 %p1, %r1, 40;\n  @%p1 bra $skip;\n";
  CHECK(says(error_of(part + "  shfl.sync.bfly.b32 %r2|%p2, %r1, 1, 31, -1;\n$skip:\n"), "divergence"));
  CHECK(says(error_of(part + "  bar.sync 0;\n$skip:\n"), "have ended"));
  CHECK(says(error_of("  shfl.sync.bfly.b32 %r2|%p2, %r1, 1, 31, 255;\n"), "leaves out lanes"));
}

TEST_CASE("ptx: a reducing barrier tells every thread whether one said yes") {
  Kernel kernel;
  kernel.shape = {1, 64, 0};
  kernel.body = R"(
  setp.eq.s32 %p1, %r1, 63;
  bar.red.or.pred %p2, 0, %p1;
  setp.gt.s32 %p1, %r1, 63;
  bar.red.or.pred %p3, 0, %p1;
  selp.b32 %r2, 1, 0, %p2;
  selp.b32 %r3, 2, %r2, %p3;
  st.global.u32 [%rd4], %r3;)";
  const Outcome outcome = kernel.run();
  CHECK(outcome.error == "");
  for (std::size_t i = 0; i < 64; ++i) CHECK(outcome.at<std::uint32_t>(i) == 1);
}

namespace {

// Each of four resident blocks writes a number and reads its neighbour's after a barrier of the grid.
std::string neighbours(const std::string& arrive, const std::string& look) {
  return R"(
  mov.u32 %r2, %ctaid.x;
  mul.wide.u32 %rd6, %r2, 4;
  add.s64 %rd7, %rd2, %rd6;
  setp.ne.s32 %p1, %r1, 0;
  @%p1 bra $wait;
  st.global.u32 [%rd7+256], %r2;
$wait:
  bar.sync 0;
  @%p1 bra $on;
)" + arrive +
         R"(
$poll:
)" + look +
         R"(
  setp.lt.u32 %p2, %r4, 4;
  @%p2 bra $poll;
$on:
  bar.sync 0;
  xor.b32 %r5, %r2, 1;
  mul.wide.u32 %rd8, %r5, 4;
  add.s64 %rd9, %rd2, %rd8;
  ld.global.u32 %r6, [%rd9+256];
  add.s64 %rd10, %rd4, 512;
  mul.wide.u32 %rd11, %r2, 256;
  add.s64 %rd10, %rd10, %rd11;
  st.global.u32 [%rd10], %r6;)";
}

}  // namespace

TEST_CASE("ptx: blocks read each other's numbers after a release and an acquire alone") {
  const Shape shape{4, 32, 0, true};
  const std::string release = "  atom.add.release.gpu.u32 %r3, [%rd2], 1;\n";
  const std::string relaxed = "  atom.add.relaxed.gpu.u32 %r3, [%rd2], 1;\n";
  const std::string acquire = "  ld.acquire.gpu.u32 %r4, [%rd2];\n";
  const std::string plain = "  ld.relaxed.gpu.u32 %r4, [%rd2];\n";
  CHECK(error_of(neighbours(release, acquire), shape) == "");
  CHECK(says(error_of(neighbours(relaxed, acquire), shape), "no barrier of the grid"));
  CHECK(says(error_of(neighbours(release, plain), shape), "no barrier of the grid"));
  CHECK(says(error_of("  st.global.u32 [%rd2], %r1;\n", {2, 1, 0}), "no barrier of the grid"));
  CHECK(says(error_of(neighbours("", acquire), shape), "none comes on"));
}

TEST_CASE(
    "ptx: a dependent launch waits for the one ahead before it reads what that wrote, stores, goes on or ends") {
  const auto error = [](const std::string& body, bool dependent = true) {
    Kernel kernel;
    kernel.body = body;
    kernel.shape = {1, 64, 0, false, dependent};
    kernel.ahead_start = ptx::test::kInput + 2048;
    kernel.ahead_bytes = 100;
    kernel.shared = ".shared .align 16 .b8 row[1024];";
    return kernel.run().error;
  };
  const std::string wait = "  griddepcontrol.wait;\n", next = "  griddepcontrol.launch_dependents;\n",
                    weight = "  ld.global.u32 %r40, [%rd3];\n", row = "  ld.global.u32 %r41, [%rd3+2048];\n",
                    store = "  st.global.u32 [%rd4], %r1;\n",
                    copy = kRow.substr(0, kRow.find("  mov.u64 %rd9")) +
                           "  cp.async.cg.shared.global [%r21], [%rd7+2048], 16, %r22;\n";
  CHECK(error(weight + wait + row + next + store) == "");
  CHECK(error(weight + row + store, false) == "");
  CHECK(error("  ld.global.u32 %r41, [%rd3+2148];\n" + wait) == "");
  CHECK(says(error(weight + row + wait + next + store), "is read before griddepcontrol.wait"));
  CHECK(says(error(copy + wait + "  cp.async.wait_all;\n"), "is read before griddepcontrol.wait"));
  CHECK(says(error(weight + store + wait + row), "a store before griddepcontrol.wait"));
  CHECK(says(error(weight + next + wait + row), "may begin before"));
  CHECK(says(error(weight), "ends without griddepcontrol.wait"));
  CHECK(says(error("  setp.lt.u32 %p1, %r1, 40;\n  @%p1 griddepcontrol.wait;\n"), "thread 40"));
  CHECK(says(error("  griddepcontrol.other;\n"), "unknown form"));
}

TEST_CASE("ptx: unknown instructions, names and forms are refused with the line") {
  CHECK(says(error_of("  add.f16 %rs1, %rs2, %rs3;\n"), "does not know"));
  CHECK(says(error_of("  mov.u32 %r2, nothing;\n"), "an unknown name"));
  CHECK(says(error_of("  add.s32 %rd7, %r1, 1;\n  add.s64 %r2, %rd1, %rd1;\n"), "another size"));
  CHECK(says(error_of("  ld.weird.u32 %r2, [%rd1];\n"), "unknown modifier"));
  CHECK(says(error_of("  div.s32 %r2, %r1, 0;\n"), "a division by 0"));
  CHECK(says(error_of("  trap;\n"), "a trap"));
}
