// The descriptors of operands in shared memory against the canonical layouts of the PTX ISA: each number of an operand
// must be where the kernels' own functions store it.
//
// The layouts are written down here as the PTX ISA writes them, shapes and strides of coordinates (mn, k) in numbers,
// T = 8 of which fill 128 bits. A swizzle of b bits exchanges bits 4 .. 3 + b of an address by bits 7 .. 6 + b.
//
//   bytes     K-major                              MN-major                                  b
//   none      ((8, m), (T, 2)) : ((T, S), (1, L))    ((T, 1, m), (8, 2)) : ((1, T, S), (T, L))     0
//   32        ((8, m), (T, 2)) : ((2 T, S), (1, T))  ((T, 2, m), (8, 2)) : ((1, T, L), (2 T, S))   1
//   64        ((8, m), (T, 2)) : ((4 T, S), (1, T))  ((T, 4, m), (8, 2)) : ((1, T, L), (4 T, S))   2
//   128       ((8, m), (T, 2)) : ((8 T, S), (1, T))  ((T, 8, m), (8, 2)) : ((1, T, L), (8 T, S))   3
//
//   L, S      the leading and the stride offset of the descriptor
//
// source: PTX ISA 9.0, "Asynchronous Warpgroup Level Matrix Instructions": "Canonical Layouts", "Matrix Descriptor
// Format", "Strides".
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "cuda/attention/attention_wgmma.cuh"
#include "cuda/product/gelu_product.h"
#include "tests/gpu/support/attention_case.h"

using namespace eddy;
using namespace eddy::cuda;
using namespace eddy::gpu_test;

namespace {

constexpr std::uint64_t T = 8;

// One mode of a coordinate: its values go `stride` numbers apart. The last mode of a coordinate has any size: 0.
struct Mode {
  std::uint64_t size, stride;
};
std::uint64_t offset_of(std::uint64_t coordinate, const std::vector<Mode>& modes) {
  std::uint64_t offset = 0;
  for (const Mode& mode : modes) {
    offset += (mode.size == 0 ? coordinate : coordinate % mode.size) * mode.stride;
    coordinate = mode.size == 0 ? 0 : coordinate / mode.size;
  }
  return offset;
}

// The fields of a descriptor; offsets in bytes.
struct Fields {
  std::uint64_t start, leading, stride, base, swizzle, unused;
};
Fields fields_of(std::uint64_t bits) {
  const auto field = [bits](int first, int last) { return bits << (63 - last) >> (63 - last + first); };
  return {16 * field(0, 13),  16 * field(16, 29),
          16 * field(32, 45), field(49, 51),
          field(62, 63),      field(14, 15) | field(30, 31) | field(46, 48) | field(52, 61)};
}

class Canonical {
 public:
  Canonical(const Fields& fields, bool k_major) : start_(fields.start) {
    constexpr int kBits[] = {0, 3, 2, 1};  // of the field's values: none, 128, 64, 32 bytes
    bits_ = kBits[fields.swizzle];
    const std::uint64_t l = fields.leading / 2, s = fields.stride / 2, wide = std::uint64_t{1} << bits_;
    if (k_major) {
      mn_ = {{8, wide * T}, {0, s}};
      k_ = {{T, 1}, {0, bits_ == 0 ? l : T}};
    } else {
      mn_ = {{T, 1}, {wide, T}, {0, bits_ == 0 ? s : l}};
      k_ = {{8, wide * T}, {0, bits_ == 0 ? l : s}};
    }
  }
  std::uint64_t address(std::uint64_t mn, std::uint64_t k) const {
    const std::uint64_t plain = start_ + 2 * (offset_of(mn, mn_) + offset_of(k, k_));
    const std::uint64_t low = ((std::uint64_t{1} << bits_) - 1) << 4;
    return plain ^ (plain >> 3 & low);
  }

 private:
  std::uint64_t start_;
  int bits_;
  std::vector<Mode> mn_, k_;
};

// ---- what a kernel's functions make, collected while the emulated kernel runs

// An operand of `extent` rows or columns by 16, and where its numbers are stored: [extent][16].
struct Operand {
  std::string name;
  std::uint64_t descriptor, tile;  // the tile's address
  bool k_major;
  std::vector<std::uint64_t> stored;
};
std::vector<Operand> operands;

template <int H, int Count>
std::uint64_t place(bf16* tile, int row, int column) {
  return shared_address(piece_of<H, Count>(tile, row, column / 8) + column % 8);
}

// The operands in a tile of Count rows of H numbers: rows of A or columns of B, and, of the tiles of the other side and
// of single panels, rows of B or columns of A.
template <int H, int Count>
void operands_kernel(int) {
  if (threadIdx.x != 0) return;
  bf16* const tile = first_tile() + kGroupRows * H;  // as behind another tile
  for (int first = 0; first < Count; first += kGroupRows)
    for (int k = 0; k < H / 16; ++k) {
      Operand made{fmt::format("columns {} of rows {} of {} x {}", 16 * k, first, Count, H),
                   RowsOperand<H, Count>(tile, first).columns(k),
                   shared_address(tile),
                   true,
                   {}};
      for (int row = 0; row < kGroupRows; ++row)
        for (int column = 0; column < 16; ++column)
          made.stored.push_back(place<H, Count>(tile, first + row, 16 * k + column));
      operands.push_back(made);
    }
  if (Count > 128 || (Count != kOtherRows && H > 64)) return;
  for (int k = 0; k < Count / 16; ++k) {
    Operand made{fmt::format("rows {} across of {} x {}", 16 * k, Count, H),
                 AcrossOperand<H, Count>(tile).rows(k),
                 shared_address(tile),
                 false,
                 {}};
    for (int column = 0; column < H; ++column)
      for (int row = 0; row < 16; ++row) made.stored.push_back(place<H, Count>(tile, 16 * k + row, column));
    operands.push_back(made);
  }
}

std::vector<Operand> all_operands() {
  operands.clear();
  for (void (*const kernel)(int) :
       {operands_kernel<32, 64>, operands_kernel<32, 128>, operands_kernel<64, 64>, operands_kernel<64, 128>,
        operands_kernel<128, 64>, operands_kernel<128, 128>, operands_kernel<64, 256>,
        operands_kernel<256, 64>})
    launch_shared("test_descriptors", kernel, 1, 128, 160 << 10, 0);
  cuda::synchronize();
  return operands;
}

// How many numbers of an operand are not where a descriptor with these fields looks for them.
int misplaced(const Operand& operand, const Fields& fields) {
  const Canonical layout(fields, operand.k_major);
  int count = 0;
  for (std::size_t i = 0; i < operand.stored.size(); ++i)
    count += layout.address(i / 16, i % 16) != operand.stored[i];
  return count;
}

using Kind = emulated::OperandKind;

}  // namespace

TEST_SUITE("device") {
  TEST_CASE("each number of an operand is where its descriptor's canonical layout has it") {
    const std::vector<Operand> made = all_operands();
    CHECK(made.size() == 106);
    for (const Operand& operand : made) {
      CAPTURE(operand.name);
      const Fields fields = fields_of(operand.descriptor);
      CHECK(misplaced(operand, fields) == 0);
      // A base offset of 0: the pattern of 8 rows begins where its size says.
      CHECK(fields.base == 0);
      CHECK(operand.tile % (fields.swizzle == 1 ? 1024 : 512) == 0);
      CHECK(fields.unused == 0);
    }
  }

  TEST_CASE("a descriptor with another field addresses other numbers") {
    for (const Operand& operand : all_operands()) {
      CAPTURE(operand.name);
      const Fields good = fields_of(operand.descriptor);
      Fields bad = good;
      bad.start += 16;
      CHECK(misplaced(operand, bad) > 0);
      bad = good;
      bad.swizzle = 3 - good.swizzle;
      CHECK(misplaced(operand, bad) > 0);
      bad.swizzle = 0;
      CHECK(misplaced(operand, bad) > 0);
      bad = good;
      bad.stride *= 2;
      CHECK(misplaced(operand, bad) > 0);
      // Which is the distance of panels, where an operand has more than one.
      bad = good;
      bad.leading *= 2;
      CHECK((misplaced(operand, bad) > 0) == (!operand.k_major && operand.stored.size() > 16 * 64));
    }
  }

  TEST_CASE("no canonical layout has two numbers in one place") {
    for (const std::uint64_t swizzle : {0, 1, 2, 3})
      for (const bool k_major : {false, true}) {
        CAPTURE(swizzle);
        CAPTURE(k_major);
        const std::uint64_t wide = swizzle == 0 ? 16 : 256 >> swizzle, across = k_major ? 16 : 128;
        // Without a swizzle neighbours of 8 x 16 bytes follow each other along k, or along mn.
        const Fields fields = swizzle != 0 ? Fields{2048, 16 * wide, 8 * wide, 0, swizzle, 0}
                              : k_major    ? Fields{2048, 128, 256, 0, 0, 0}
                                           : Fields{2048, 128 * 16, 128, 0, 0, 0};
        const Canonical layout(fields, k_major);
        std::set<std::uint64_t> places;
        for (std::uint64_t mn = 0; mn < (k_major ? 64 : across); ++mn)
          for (std::uint64_t k = 0; k < 16; ++k) places.insert(layout.address(mn, k));
        CHECK(places.size() == (k_major ? 64 : across) * 16);
      }
  }

  TEST_CASE(
      "the products of attention and of layers have no other kinds of operands than those that are checked") {
    std::set<Kind> checked;
    for (const Operand& operand : all_operands())
      checked.insert(Kind::of(operand.descriptor, operand.k_major));
    emulated::operand_kinds().clear();
    for (const std::int64_t head_size : {32, 64, 128})
      for (const bool positions : {false, true}) {
        set_gpu_kernels(positions ? "attention=wgmma" : "attention=wgmma,attention_backward=fused");
        const AttentionCase c{1, 20, 35, 1, 1, head_size, 0, 20, true, true, positions, false};
        Tensors inputs;
        for (const Tensor& x : attention_inputs(c, Dtype::bf16))
          inputs.push_back(x.defined() ? to_gpu(raw::cast(x, x.rank() == 4 ? Dtype::bf16 : Dtype::f32)) : x);
        run_attention(attention_bthd, c, inputs,
                      to_gpu(raw::cast(attention_cotangent(c, Dtype::bf16), Dtype::bf16)));
      }
    // Both products with GELU, by tiles of 256 and of 128 columns.
    const auto matrix = [](std::int64_t rows, std::int64_t columns) {
      return to_gpu(raw::cast(sample_normal({rows, columns}, "matrix"), Dtype::bf16));
    };
    const Tensor left = matrix(20, 24), up = matrix(136, 24), down = matrix(24, 136), z = matrix(20, 136),
                 result = matrix(20, 136);
    for (const bool backward : {false, true})
      for (const int blocks : {1, 2}) {
        GeluProductArgs args{
            Dtype::bf16,        20, 136, 24, left.raw_data(), 24, (backward ? down : up).raw_data(),
            backward ? 136 : 24};
        args.z = z.raw_data();
        args.result = result.raw_data();
        REQUIRE(wgmma_gelu_product(args, backward, blocks));
      }
    cuda::synchronize();
    CHECK(emulated::operand_kinds() == checked);
  }
}
