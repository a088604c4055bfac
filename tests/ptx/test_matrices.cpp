// ldmatrix, mma and wgmma against plain loops, with the PTX ISA's figures of their operands written out again.
#include <doctest/doctest.h>

#include <cstring>

#include "tests/ptx/interpreter/rounded.h"
#include "tests/ptx/kernel_text.h"

using namespace ptx;
using ptx::test::Kernel;
using ptx::test::Outcome;

namespace {

// Small integers, so that every product and sum is exact.
float element(int row, int column, int salt) {
  return static_cast<float>((row * 7 + column * 3 + salt) % 9 - 4);
}
void put_half(std::vector<unsigned char>& bytes, std::size_t at, float x) {
  const std::uint16_t half = to_bf16(x);
  std::memcpy(bytes.data() + at, &half, 2);
}

std::string list(const std::string& prefix, int first, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += fmt::format("{}{}{}", i == 0 ? "" : ", ", prefix, first + i);
  return text;
}

}  // namespace

TEST_CASE("ptx: ldmatrix and mma multiply a 16 x 16 and a 16 x 8 matrix") {
  Kernel kernel;
  // A row by row, then B column by column, both from ldmatrix: its four matrices of A are the quarters, by columns.
  for (int row = 0; row < 16; ++row)
    for (int k = 0; k < 16; ++k)
      put_half(kernel.input, static_cast<std::size_t>(2 * (16 * row + k)), element(row, k, 1));
  for (int k = 0; k < 16; ++k)
    for (int column = 0; column < 8; ++column)
      put_half(kernel.input, static_cast<std::size_t>(512 + 2 * (8 * k + column)), element(k, column, 5));
  kernel.shared = ".shared .align 16 .b8 tile[1024];";
  kernel.body = R"(
  mul.wide.u32 %rd6, %r1, 16;
  add.s64 %rd7, %rd1, %rd6;
  mov.u32 %r2, tile;
  shl.b32 %r3, %r1, 4;
  add.s32 %r4, %r2, %r3;
  mov.u32 %r5, 16;
  cp.async.cg.shared.global [%r4], [%rd7], 16, %r5;
  cp.async.cg.shared.global [%r4+512], [%rd7+512], 16, %r5;
  cp.async.wait_all;
  bar.warp.sync -1;
  and.b32 %r6, %r1, 15;
  shr.u32 %r7, %r1, 4;
  shl.b32 %r8, %r6, 5;
  shl.b32 %r9, %r7, 4;
  add.s32 %r10, %r2, %r8;
  add.s32 %r10, %r10, %r9;
  ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r11, %r12, %r13, %r14}, [%r10];
  shl.b32 %r15, %r6, 4;
  add.s32 %r16, %r2, %r15;
  ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r17, %r18, %r19, %r20}, [%r16+512];
  mov.f32 %f1, 0f3F800000;
  mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f2, %f3, %f4, %f5}, {%r11, %r12, %r13, %r14}, {%r17, %r18}, {%f1, %f1, %f1, %f1};
  st.global.f32 [%rd4], %f2;
  st.global.f32 [%rd4+128], %f3;
  st.global.f32 [%rd4+256], %f4;
  st.global.f32 [%rd4+384], %f5;)";
  const Outcome outcome = kernel.run();
  CHECK(outcome.error == "");
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + (i >= 2 ? 8 : 0), column = lane % 4 * 2 + (i & 1);
      float want = 1;
      for (int k = 0; k < 16; ++k) want += element(row, k, 1) * element(k, column, 5);
      CHECK(outcome.at<float>(static_cast<std::size_t>(32 * i + lane)) == want);
    }
}

TEST_CASE("ptx: mma of TF32 multiplies a 16 x 8 and an 8 x 8 matrix, and refuses what was not rounded") {
  // Each lane finds its registers of A, then those of B, one after the other in the input.
  for (const float addend : {0.0f, 0x1p-11f}) {
    Kernel kernel;
    kernel.input.assign(6 * 32 * 4, 0);
    const auto put = [&](int i, int lane, float x) {
      std::memcpy(kernel.input.data() + 4 * (32 * i + lane), &x, 4);
    };
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 4; ++i)
        put(i, lane, element(lane / 4 + (i % 2 == 1 ? 8 : 0), lane % 4 + (i >= 2 ? 4 : 0), 1) + addend);
      for (int i = 0; i < 2; ++i) put(4 + i, lane, element(lane % 4 + 4 * i, lane / 4, 5));
    }
    kernel.body = R"(
  mul.wide.u32 %rd6, %r1, 4;
  add.s64 %rd7, %rd1, %rd6;
  ld.global.u32 %r11, [%rd7];
  ld.global.u32 %r12, [%rd7+128];
  ld.global.u32 %r13, [%rd7+256];
  ld.global.u32 %r14, [%rd7+384];
  ld.global.u32 %r17, [%rd7+512];
  ld.global.u32 %r18, [%rd7+640];
  mov.f32 %f1, 0f3F800000;
  mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f2, %f3, %f4, %f5}, {%r11, %r12, %r13, %r14}, {%r17, %r18}, {%f1, %f1, %f1, %f1};
  st.global.f32 [%rd4], %f2;
  st.global.f32 [%rd4+128], %f3;
  st.global.f32 [%rd4+256], %f4;
  st.global.f32 [%rd4+384], %f5;)";
    const Outcome outcome = kernel.run();
    if (addend != 0) {
      CHECK(outcome.error.find("was not rounded") != std::string::npos);
      continue;
    }
    CHECK(outcome.error == "");
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < 4; ++i) {
        const int row = lane / 4 + (i >= 2 ? 8 : 0), column = lane % 4 * 2 + (i & 1);
        float want = 1;
        for (int k = 0; k < 8; ++k) want += element(row, k, 1) * element(k, column, 5);
        CHECK(outcome.at<float>(static_cast<std::size_t>(32 * i + lane)) == want);
      }
  }
}

namespace {

// A product of a warpgroup: A [64, 16] and B [32, 16], rows of 64 bytes with the swizzle of 64, at the first
// multiple of 1024 of shared memory. B lies 4096 bytes after A; with `across` it is stored [16, 32]. With `a_across` A
// is stored in two panels [16, 32], of 1024 bytes.
struct Product {
  bool across = false, a_across = false, a_in_registers = false;
  std::string before_product, after_product = "  wgmma.wait_group.sync.aligned 0;\n";
  std::string fence = "  wgmma.fence.sync.aligned;\n", publish = "  fence.proxy.async.shared::cta;\n";
  std::string barrier = "  bar.sync 0;\n";

  Kernel kernel() const {
    Kernel made;
    made.shape = {1, 128, 6144 + 1024};
    made.input.assign(6144, 0);
    made.output_bytes = 8192;
    // The pattern of 8 rows of 64 bytes: pieces of 16 bytes, of which piece p of row r lies at p ^ r / 2 % 4.
    const auto place = [](int row, int column) {
      return static_cast<std::size_t>(64 * row + ((column / 8) ^ (row / 2 % 4)) * 16 + column % 8 * 2);
    };
    for (int row = 0; row < 64; ++row)
      for (int k = 0; k < 16; ++k)
        put_half(made.input,
                 a_across ? place(k, row % 32) + static_cast<std::size_t>(row / 32 * 1024) : place(row, k),
                 element(row, k, 2));
    for (int column = 0; column < 32; ++column)
      for (int k = 0; k < 16; ++k)
        put_half(made.input, 4096 + (across ? place(k, column) : place(column, k)), element(k, column, 3));
    // Each thread copies 48 bytes; the descriptors have strides of 512 bytes.
    made.body = R"(
  mov.u32 %r2, all;
  add.s32 %r2, %r2, 1023;
  and.b32 %r2, %r2, -1024;
  mul.lo.s32 %r3, %r1, 16;
  add.s32 %r4, %r2, %r3;
  mul.wide.u32 %rd6, %r3, 1;
  add.s64 %rd7, %rd1, %rd6;
  ld.global.v4.u32 {%r5, %r6, %r7, %r8}, [%rd7];
  st.shared.v4.u32 [%r4], {%r5, %r6, %r7, %r8};
  ld.global.v4.u32 {%r5, %r6, %r7, %r8}, [%rd7+2048];
  st.shared.v4.u32 [%r4+2048], {%r5, %r6, %r7, %r8};
  ld.global.v4.u32 {%r5, %r6, %r7, %r8}, [%rd7+4096];
  st.shared.v4.u32 [%r4+4096], {%r5, %r6, %r7, %r8};
)" + publish + barrier +
                R"(
  cvt.u64.u32 %rd8, %r2;
  shr.u64 %rd8, %rd8, 4;
  or.b64 %rd9, %rd8, )" +
                (a_across ? "0x8000002000400000" : "0x8000002000010000") +
                R"(;
  add.s64 %rd10, %rd9, 256;
  setp.ne.b32 %p1, %r2, %r2;
)";
    // Registers of A by the figure: rows q and q + 8, columns 2 t and 2 t + 8, read from global memory.
    if (a_in_registers)
      made.body += R"(
  shr.u32 %r30, %r1, 2;
  and.b32 %r31, %r30, 7;
  shr.u32 %r32, %r1, 5;
  mad.lo.s32 %r31, %r32, 16, %r31;
  and.b32 %r33, %r1, 3;
  shl.b32 %r34, %r33, 2;
  shr.u32 %r35, %r31, 1;
  and.b32 %r35, %r35, 3;
  shl.b32 %r36, %r35, 4;
  xor.b32 %r37, %r36, 16;
  mad.lo.s32 %r38, %r31, 64, %r34;
  add.s32 %r39, %r38, %r36;
  add.s32 %r40, %r38, %r37;
  cvt.u64.u32 %rd12, %r39;
  add.s64 %rd12, %rd12, %rd1;
  cvt.u64.u32 %rd13, %r40;
  add.s64 %rd13, %rd13, %rd1;
  ld.global.u32 %r41, [%rd12];
  ld.global.u32 %r42, [%rd12+512];
  ld.global.u32 %r43, [%rd13];
  ld.global.u32 %r44, [%rd13+512];
)";
    made.body +=
        fence + before_product +
        fmt::format(
            "  wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {{{}}}, {}, %rd10, %p1, 1, 1{}, {};\n",
            list("%f", 10, 16), a_in_registers ? "{%r41, %r42, %r43, %r44}" : "%rd9",
            a_in_registers ? ""
            : a_across     ? ", 1"
                           : ", 0",
            across ? 1 : 0) +
        "  wgmma.commit_group.sync.aligned;\n" + after_product;
    for (int i = 0; i < 16; ++i)
      made.body += fmt::format("  st.global.f32 [%rd4+{}], %f{};\n", 512 * i, 10 + i);
    made.shared = ".extern .shared .align 16 .b8 all[];";
    return made;
  }
};

void check_product(const Product& product) {
  const Outcome outcome = product.kernel().run();
  CHECK(outcome.error == "");
  for (int thread = 0; thread < 128; ++thread)
    for (int i = 0; i < 16; ++i) {
      const int row = thread / 32 * 16 + thread % 32 / 4 + (i % 4 >= 2 ? 8 : 0);
      const int column = i / 4 * 8 + thread % 4 * 2 + i % 2;
      float want = 0;
      for (int k = 0; k < 16; ++k) want += element(row, k, 2) * element(k, column, 3);
      CHECK(outcome.at<float>(static_cast<std::size_t>(128 * i + thread)) == want);
    }
}

std::string error_of(const Product& product) {
  return product.kernel().run().error;
}
bool says(const std::string& error, const char* what) {
  INFO(error);
  return error.find(what) != std::string::npos;
}

}  // namespace

TEST_CASE("ptx: wgmma multiplies operands of shared memory by their descriptors") {
  check_product({});
}
TEST_CASE("ptx: wgmma reads a transposed operand") {
  Product product;
  product.across = true;
  check_product(product);
}
TEST_CASE("ptx: wgmma reads a transposed left operand") {
  Product product;
  product.a_across = product.across = true;
  check_product(product);
}
TEST_CASE("ptx: wgmma takes its left operand from registers") {
  Product product;
  product.a_in_registers = true;
  check_product(product);
}

TEST_CASE("ptx: a product of a warpgroup needs its fences, its barrier and its wait") {
  Product product;
  product.fence = "";
  CHECK(says(error_of(product), "without wgmma.fence"));
  product = {};
  product.publish = "";
  CHECK(says(error_of(product), "without fence.proxy.async"));
  product = {};
  product.barrier = "";
  CHECK(says(error_of(product), "no barrier followed"));
  product = {};
  product.after_product = "";
  CHECK(says(error_of(product), "no wgmma.wait_group"));
  product = {};
  product.after_product = "  mov.f32 %f11, 0f00000000;\n  wgmma.wait_group.sync.aligned 0;\n";
  CHECK(says(error_of(product), "written while a product"));
  product = {};
  product.after_product = "  st.shared.u32 [%r4], %r5;\n  wgmma.wait_group.sync.aligned 0;\n";
  CHECK(says(error_of(product), "written while a product"));
  product = {};
  product.a_in_registers = true;
  product.before_product = "  mov.b32 %r42, 0;\n";
  CHECK(says(error_of(product), "after the last wgmma.fence"));
  product = {};
  product.before_product = "  mov.b64 %rd10, 0x8000002000014001;\n  add.s64 %rd10, %rd10, %rd8;\n";
  CHECK(says(error_of(product), "bits that must be 0"));
}
