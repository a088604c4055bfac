// The least work that a call must do, as kernel_costs.h states it for each kernel.
#pragma once

namespace eddy {

// Operations and bytes of a call, or of several.
struct Cost {
  double flops = 0;   // of products alone, 2 for each multiply-add
  double bytes = 0;   // read and written, each once
  bool half = false;  // the products are in bf16

  // Adds those of another call.
  Cost& operator+=(const Cost& more) {
    flops += more.flops;
    bytes += more.bytes;
    return *this;
  }
};

}  // namespace eddy
