// Each instruction of lanes and of warps against values worked out from the PTX ISA's text.
#include <doctest/doctest.h>

#include <bit>
#include <limits>

#include "tests/ptx/interpreter/arithmetic.h"
#include "tests/ptx/kernel_text.h"

using namespace ptx;
using ptx::test::Kernel;
using ptx::test::Outcome;

namespace {

std::string f32(float x) {
  return fmt::format("0f{:08X}", std::bit_cast<std::uint32_t>(x));
}
std::string f64(double x) {
  return fmt::format("0d{:016X}", std::bit_cast<std::uint64_t>(x));
}
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The bits of what an instruction with these operands computes, as a number of 64 bits.
std::uint64_t result_of(const std::string& op, const std::string& operands) {
  const auto found = operations().find(op);
  REQUIRE_MESSAGE(found != operations().end(), op);
  const Type type = found->second.to;
  const bool predicate = type == Type::pred;
  const int bytes = predicate ? 4 : bytes_of(type);
  const std::string prefix = predicate           ? "%p"
                             : bytes <= 2        ? "%rs"
                             : type == Type::f32 ? "%f"
                             : type == Type::f64 ? "%fd"
                             : bytes == 4        ? "%r"
                                                 : "%rd";
  Kernel kernel;
  kernel.body = fmt::format("  {} {}10, {};\n", op, prefix, operands);
  if (predicate) kernel.body += "  selp.b32 %r10, 1, 0, %p10;\n";
  const char* const kind = predicate ? "u32" : bytes == 8 ? "b64" : bytes == 4 ? "b32" : "b16";
  const char* const store = predicate ? "%r" : prefix.c_str();
  kernel.body += fmt::format("  st.global.{} [%rd2], {}10;\n", kind, store);
  kernel.shape = {1, 1, 0};
  const Outcome outcome = kernel.run();
  CHECK_MESSAGE(outcome.error == "", op << ' ' << operands);
  return outcome.at<std::uint64_t>(0);
}

std::uint64_t bits(float x) {
  return std::bit_cast<std::uint32_t>(x);
}
std::uint64_t bits(double x) {
  return std::bit_cast<std::uint64_t>(x);
}

struct Case {
  const char* op;
  std::string operands;
  std::uint64_t want;
};

}  // namespace

TEST_CASE("ptx: instructions of integers compute what the PTX ISA says") {
  const std::vector<Case> cases = {
      {"add.s32", "7, -9", 0xfffffffe},
      {"add.s32", "2147483647, 1", 0x80000000},
      {"add.s64", "-1, 1", 0},
      {"sub.u32", "1, 2", 0xffffffff},
      {"mul.lo.s32", "65536, 65537", 0x10000},
      {"mul.lo.u16", "1000, 1000", 1000000 & 0xffff},
      {"mul.hi.u32", "0xffffffff, 0xffffffff", 0xfffffffe},
      {"mul.hi.s32", "-1, 1", 0xffffffff},
      {"mul.wide.s32", "-3, 5", static_cast<std::uint64_t>(-15)},
      {"mul.wide.u32", "0xffffffff, 2", 0x1fffffffe},
      {"mad.lo.s32", "3, 4, -13", 0xffffffff},
      {"mad.wide.s32", "-3, 5, 16", 1},
      {"div.s32", "-7, 2", 0xfffffffd},
      {"rem.s32", "-7, 2", 0xffffffff},
      {"div.u32", "0xfffffff9, 2", 0x7ffffffc},
      {"div.s64", "-9223372036854775808, -1", 0x8000000000000000},
      {"min.s32", "-1, 1", 0xffffffff},
      {"min.u32", "-1, 1", 1},
      {"max.s64", "-1, 1", 1},
      {"neg.s32", "5", 0xfffffffb},
      {"abs.s32", "-5", 5},
      {"and.b32", "12, 10", 8},
      {"or.b32", "12, 10", 14},
      {"xor.b64", "12, 10", 6},
      {"not.b16", "1", 0xfffe},
      {"shl.b32", "1, 31", 0x80000000},
      {"shl.b32", "1, 32", 0},
      {"shr.u32", "0x80000000, 31", 1},
      {"shr.s32", "0x80000000, 40", 0xffffffff},
      {"shr.u64", "256, 64", 0},
      {"shr.s64", "-256, 4", static_cast<std::uint64_t>(-16)},
      {"popc.b32", "0xf0f0", 8},
      {"clz.b32", "1", 31},
      {"clz.b32", "0", 32},
      {"prmt.b32", "0x33221100, 0x77665544, 0x7531", 0x77553311},
      {"prmt.b32", "0x00000080, 0, 0x8000", 0xff808080},
      {"bfi.b32", "1, 0x0000ffff, 31, 1", 0x8000ffff},
      {"bfi.b32", "0xff, 0, 4, 8", 0xff0},
      {"bfi.b64", "1, 0xffff, 32, 32", 0x10000ffff},
      {"shf.l.wrap.b32", "0x80000000, 1, 1", 3},
      {"shf.r.wrap.b32", "0, 1, 1", 0x80000000},
      {"setp.lt.s32", "-1, 0", 1},
      {"setp.lt.u32", "-1, 0", 0},
      {"setp.ne.b32", "1, 1", 0},
      {"setp.ge.u64", "5, 5", 1},
      {"cvt.s64.s32", "-2", static_cast<std::uint64_t>(-2)},
      {"cvt.u64.u32", "-2", 0xfffffffe},
      {"cvt.u32.u64", "0x123456789a", 0x3456789a},
      {"cvt.u16.u32", "0x12345678", 0x5678},
      {"cvt.s32.s16", "-7", 0xfffffff9},
      {"cvt.u32.u16", "-7", 0xfff9},
  };
  for (const Case& one : cases)
    CHECK_MESSAGE(result_of(one.op, one.operands) == one.want, one.op << ' ' << one.operands);
}

TEST_CASE("ptx: instructions of floats round as IEEE 754 and the PTX ISA say") {
  const float tiny = std::numeric_limits<float>::denorm_min();
  const float third = 1.0f / 3.0f;
  const std::vector<Case> cases = {
      {"add.f32", f32(1) + ", " + f32(0x1p-24f), bits(1.0f)},
      {"sub.f32", f32(1) + ", " + f32(0x1p-24f), bits(0x1.fffffep-1f)},
      {"mul.f32", f32(3) + ", " + f32(tiny), bits(3 * tiny)},
      {"fma.rn.f32", f32(0x1.000002p0f) + ", " + f32(0x1.000002p0f) + ", " + f32(-0x1.000004p0f),
       bits(0x1p-46f)},
      {"fma.rm.f32", f32(1) + ", " + f32(1) + ", " + f32(-0x1p-30f), bits(0x1.fffffep-1f)},
      {"add.rz.f32", f32(1) + ", " + f32(-0x1p-30f), bits(0x1.fffffep-1f)},
      {"add.rz.f32", f32(1) + ", " + f32(0x1.8p-24f), bits(1.0f)},
      {"add.rz.f32", f32(1) + ", " + f32(2), bits(3.0f)},
      {"fma.rn.f32", f32(1) + ", " + f32(1) + ", " + f32(-0x1p-30f), bits(1.0f)},
      {"div.rn.f32", f32(1) + ", " + f32(3), bits(third)},
      {"rcp.rn.f32", f32(3), bits(third)},
      {"sqrt.rn.f32", f32(2), bits(0x1.6a09e6p0f)},
      {"neg.f32", f32(0), 0x80000000},
      {"abs.f32", f32(-2), bits(2.0f)},
      {"copysign.f32", f32(-1) + ", " + f32(3), bits(-3.0f)},
      {"max.f32", f32(kNan) + ", " + f32(1), bits(1.0f)},
      {"max.f32", f32(-0.0f) + ", " + f32(0), bits(0.0f)},
      {"min.f32", f32(0) + ", " + f32(-0.0f), bits(-0.0f)},
      {"ex2.approx.ftz.f32", f32(3), bits(8.0f)},
      {"ex2.approx.ftz.f32", f32(-140), 0},
      {"rcp.approx.ftz.f32", f32(tiny), bits(kInfinity)},
      {"setp.lt.f32", f32(kNan) + ", " + f32(1), 0},
      {"setp.ltu.f32", f32(kNan) + ", " + f32(1), 1},
      {"setp.ne.f32", f32(kNan) + ", " + f32(1), 0},
      {"setp.neu.f32", f32(kNan) + ", " + f32(1), 1},
      {"setp.nan.f32", f32(kNan) + ", " + f32(1), 1},
      {"setp.num.f32", f32(2) + ", " + f32(1), 1},
      {"cvt.rn.f32.s32", "16777217", bits(16777216.0f)},
      {"cvt.rn.f32.f64", f64(1 + 0x1p-24 + 0x1p-40), bits(0x1.000002p0f)},
      {"cvt.f64.f32", f32(0.5f), bits(0.5)},
      {"cvt.rzi.s32.f32", f32(-2.7f), 0xfffffffe},
      {"cvt.rzi.s32.f32", f32(kNan), 0},
      {"cvt.rzi.s32.f32", f32(1e20f), 0x7fffffff},
      {"cvt.rzi.u32.f32", f32(-1), 0},
      {"cvt.rni.f32.f32", f32(2.5f), bits(2.0f)},
      {"cvt.rpi.f64.f64", f64(2.1), bits(3.0)},
      {"cvt.sat.f32.f32", f32(1.5f), bits(1.0f)},
      {"cvt.sat.f32.f32", f32(kNan), 0},
      {"cvt.f32.bf16", "0x3f80", bits(1.0f)},
      {"cvt.rn.bf16.f32", f32(1 + 0x1p-8f), 0x3f80},
      {"cvt.rn.bf16.f32", f32(1 + 0x3p-8f), 0x3f82},
      {"cvt.rn.bf16.f32", f32(kNan), 0x7fff},
      {"cvt.rna.tf32.f32", f32(1 + 0x1p-11f), bits(1 + 0x1p-10f)},
      {"cvt.rna.tf32.f32", f32(-1 - 0x3p-12f), bits(-1 - 0x1p-10f)},
      {"cvt.rna.tf32.f32", f32(1 + 0x1.fp-12f), bits(1.0f)},
      {"cvt.rna.tf32.f32", f32(kNan), 0x7fffffff},
      {"cvt.rn.bf16x2.f32", f32(2) + ", " + f32(1), 0x40003f80},
      {"fma.rn.f64", f64(3) + ", " + f64(4) + ", " + f64(-12), 0},
      {"add.f64", f64(1) + ", " + f64(0x1p-60), bits(1.0)},
  };
  for (const Case& one : cases)
    CHECK_MESSAGE(result_of(one.op, one.operands) == one.want, one.op << ' ' << one.operands);
}

TEST_CASE("ptx: loads extend, vectors keep their order, and moves pack and take apart") {
  Kernel kernel;
  kernel.shape = {1, 1, 0};
  kernel.input = {0xfe, 0xff, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  kernel.body = R"(
  ld.global.s8 %r2, [%rd1];
  st.global.u32 [%rd2], %r2;
  ld.global.u8 %rs1, [%rd1];
  st.global.u16 [%rd2+4], %rs1;
  ld.global.s16 %rd7, [%rd1];
  st.global.u64 [%rd2+8], %rd7;
  ld.global.v4.u32 {%r3, %r4, %r5, %r6}, [%rd1];
  st.global.v2.u32 [%rd2+16], {%r6, %r5};
  mov.b64 %rd8, {%r3, %r4};
  mov.b64 {%r7, %r8}, %rd8;
  st.global.v2.u32 [%rd2+24], {%r7, %r8};
  mov.b32 {%rs2, %rs3}, %r5;
  mov.b32 %r9, {%rs3, %rs2};
  st.global.u32 [%rd2+32], %r9;)";
  const Outcome outcome = kernel.run();
  CHECK(outcome.error == "");
  CHECK(outcome.at<std::uint32_t>(0) == 0xfffffffe);
  CHECK(outcome.at<std::uint32_t>(1) == 0xfe);
  CHECK(outcome.at<std::uint64_t>(1) == 0xfffffffffffffffe);
  CHECK(outcome.at<std::uint32_t>(4) == 0x100f0e0d);
  CHECK(outcome.at<std::uint32_t>(5) == 0x0c0b0a09);
  CHECK(outcome.at<std::uint32_t>(6) == 0x0403fffe);
  CHECK(outcome.at<std::uint32_t>(7) == 0x08070605);
  CHECK(outcome.at<std::uint32_t>(8) == 0x0a090c0b);
}

TEST_CASE("ptx: lanes that part run both ways and meet again before an exchange") {
  Kernel kernel;
  kernel.body = R"(
  and.b32 %r2, %r1, 1;
  setp.eq.s32 %p1, %r2, 0;
  @%p1 bra $even;
  mul.lo.s32 %r3, %r1, 10;
  bra.uni $both;
$even:
  mul.lo.s32 %r3, %r1, 100;
$both:
  shfl.sync.bfly.b32 %r4|%p2, %r3, 1, 31, -1;
  st.global.u32 [%rd4], %r4;)";
  const Outcome outcome = kernel.run();
  CHECK(outcome.error == "");
  for (unsigned lane = 0; lane < 32; ++lane) {
    const unsigned other = lane ^ 1;
    CHECK(outcome.at<std::uint32_t>(lane) == other * (other % 2 == 0 ? 100 : 10));
  }
}

TEST_CASE("ptx: exchanges and votes of a warp") {
  Kernel kernel;
  kernel.body = R"(
  shfl.sync.up.b32 %r2|%p1, %r1, 3, 0, -1;
  shfl.sync.down.b32 %r3|%p2, %r1, 5, 31, -1;
  shfl.sync.idx.b32 %r4|%p3, %r1, 7, 0x181f, -1;
  setp.lt.s32 %p4, %r1, 4;
  vote.sync.ballot.b32 %r5, %p4, -1;
  vote.sync.any.pred %p5, %p4, -1;
  vote.sync.all.pred %p6, %p4, -1;
  selp.b32 %r6, 1, 0, %p1;
  selp.b32 %r7, 1, 0, %p5;
  selp.b32 %r8, 1, 0, %p6;
  st.global.u32 [%rd4], %r2;
  st.global.u32 [%rd4+128], %r3;
  st.global.u32 [%rd4+256], %r4;
  st.global.u32 [%rd4+384], %r5;
  st.global.u32 [%rd4+512], %r6;
  st.global.u32 [%rd4+640], %r7;
  st.global.u32 [%rd4+768], %r8;)";
  const Outcome outcome = kernel.run();
  CHECK(outcome.error == "");
  for (unsigned lane = 0; lane < 32; ++lane) {
    CHECK(outcome.at<std::uint32_t>(lane) == (lane < 3 ? lane : lane - 3));
    CHECK(outcome.at<std::uint32_t>(lane + 32) == (lane + 5 > 31 ? lane : lane + 5));
    CHECK(outcome.at<std::uint32_t>(lane + 64) == lane / 8 * 8 + 7);
    CHECK(outcome.at<std::uint32_t>(lane + 96) == 15);
    CHECK(outcome.at<std::uint32_t>(lane + 128) == (lane >= 3));
    CHECK(outcome.at<std::uint32_t>(lane + 160) == 1);
    CHECK(outcome.at<std::uint32_t>(lane + 192) == 0);
  }
}

TEST_CASE("ptx: a call runs the function's statements") {
  Kernel kernel;
  kernel.shared = R"(
.func (.param .b64 result) twice_and(.param .b64 twice_and_param_0, .param .b64 twice_and_param_1)
{
  .reg .f64 %fd<9>;
  .reg .pred %p<3>;
  ld.param.f64 %fd1, [twice_and_param_0];
  ld.param.f64 %fd2, [twice_and_param_1];
  setp.gt.f64 %p1, %fd2, 0d0000000000000000;
  @%p1 bra $positive;
  mov.f64 %fd2, 0d3FF0000000000000;
$positive:
  fma.rn.f64 %fd3, %fd1, 0d4000000000000000, %fd2;
  st.param.f64 [result+0], %fd3;
  ret;
})";
  kernel.shape = {1, 1, 0};
  kernel.body = R"(
  mov.f64 %fd1, 0d4008000000000000;
  mov.f64 %fd2, 0d4014000000000000;
  {
  .param .b64 param0;
  st.param.f64 [param0+0], %fd1;
  .param .b64 param1;
  st.param.f64 [param1+0], %fd2;
  .param .b64 retval0;
  call.uni (retval0), twice_and, (param0, param1);
  ld.param.f64 %fd3, [retval0+0];
  }
  st.global.f64 [%rd2], %fd3;
  st.global.f64 [%rd2+8], %fd2;)";
  const Outcome outcome = kernel.run();
  CHECK(outcome.error == "");
  CHECK(outcome.at<double>(0) == 11);
  CHECK(outcome.at<double>(1) == 5);  // the caller's %fd2 is another register
}

TEST_CASE("ptx: registers that share a place keep their values around loops") {
  Kernel kernel;
  kernel.body = R"(
  mov.u32 %r2, 0;
  mov.u32 %r3, 0;
  mov.u32 %r9, 1000;
$loop:
  mul.lo.s32 %r4, %r2, %r2;
  add.s32 %r3, %r3, %r4;
  mov.u32 %r5, 77;
  add.s32 %r6, %r5, %r1;
  add.s32 %r2, %r2, 1;
  setp.le.s32 %p1, %r2, %r1;
  @%p1 bra $loop;
  add.s32 %r7, %r3, %r9;
  add.s32 %r8, %r7, %r6;
  st.global.u32 [%rd4], %r8;)";
  const Outcome outcome = kernel.run();
  CHECK(outcome.error == "");
  for (unsigned lane = 0; lane < 32; ++lane) {
    unsigned sum = 1000 + 77 + lane;
    for (unsigned i = 0; i <= lane; ++i) sum += i * i;
    CHECK(outcome.at<std::uint32_t>(lane) == sum);
  }
}
