// Small kernels written as PTX, for the tests of the interpreter.
#pragma once

#include <fmt/format.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/ptx/interpreter/machine.h"

namespace ptx::test {

constexpr std::uint64_t kInput = 0x10000, kOutput = 0x20000;

struct Outcome {
  std::string error;                  // of a Fault, or ""
  std::vector<unsigned char> output;  // the bytes at kOutput

  template <class T>
  T at(std::size_t index) const {
    T value;
    std::memcpy(&value, output.data() + index * sizeof value, sizeof value);
    return value;
  }
};

struct Kernel {
  std::string body;    // %rd1 is kInput, %rd2 kOutput, %r1 %tid.x, %rd3 and %rd4 those of the thread's word
  std::string shared;  // declarations of shared memory
  Shape shape;
  std::vector<unsigned char> input = std::vector<unsigned char>(4096);
  std::uint64_t ahead_start = 0, ahead_bytes = 0;  // what the launch ahead wrote
  std::size_t output_bytes = 4096;

  std::string text() const {
    return fmt::format(R"(
.version 9.0
.target sm_90a
.address_size 64
{}
.visible .entry kernel(.param .u64 in, .param .u64 out)
{{
  .reg .pred %p<20>;
  .reg .b16 %rs<20>;
  .reg .b32 %r<200>;
  .reg .f32 %f<200>;
  .reg .b64 %rd<40>;
  .reg .f64 %fd<20>;
  ld.param.u64 %rd1, [in];
  ld.param.u64 %rd2, [out];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd5, %r1, 4;
  add.s64 %rd3, %rd1, %rd5;
  add.s64 %rd4, %rd2, %rd5;
{}
  ret;
}}
)",
                       shared, body);
  }

  Outcome run() const {
    Outcome outcome;
    GlobalMemory memory;
    memory.add(kInput, input);
    memory.add(kOutput, std::vector<unsigned char>(output_bytes));
    memory.add_written_ahead(ahead_start, ahead_bytes);
    const std::uint64_t arguments[] = {kInput, kOutput};
    std::vector<unsigned char> bytes(sizeof arguments);
    std::memcpy(bytes.data(), arguments, sizeof arguments);
    try {
      const Module module = parse_module("test", text());
      const auto program = translate(module, module.function("kernel"));
      Grid(*program, memory, shape, bytes).run();
    } catch (const Fault& fault) {
      outcome.error = fault.what();
    }
    outcome.output = memory.find(kOutput, output_bytes)->bytes;
    return outcome;
  }
};

}  // namespace ptx::test
