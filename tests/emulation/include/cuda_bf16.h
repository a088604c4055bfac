// Replaces CUDA's header: bf16 as storage, rounded to nearest even, and pairs of it.
#pragma once

#include "tensor/base/dtype.h"
#include "tests/emulation/include/cuda_runtime.h"

struct __nv_bfloat16 {
  eddy::bf16 value;

  __nv_bfloat16() = default;
  __nv_bfloat16(float x) : value(x) {}
  operator float() const { return static_cast<float>(value); }
};
struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;
static_assert(sizeof(__nv_bfloat162) == 4);

inline float __bfloat162float(__nv_bfloat16 x) {
  return x;
}
inline __nv_bfloat16 __float2bfloat16(float x) {
  return x;
}
inline __nv_bfloat16 __float2bfloat16_rn(float x) {
  return x;
}
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
  return {x, y};
}
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) {
  return {x, y};
}
inline float __low2float(__nv_bfloat162 pair) {
  return pair.x;
}
inline float __high2float(__nv_bfloat162 pair) {
  return pair.y;
}
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) {
  return x.value.bits;
}
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) {
  __nv_bfloat16 x;
  x.value.bits = bits;
  return x;
}
