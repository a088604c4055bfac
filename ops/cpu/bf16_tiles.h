// The tile instructions of AMX, and the same in plain C++ for tests on processors without them. A program of tiles
// takes either as a template argument. It uses eight tiles of 16 rows of 64 bytes: 0 to 3 for sums, 4 to 7 for factors
// in pairs (ops/cpu/bf16_pairs.h). Only *.isa.cpp files include this header, and only levels with AVX-512 have the
// instructions: a caller is compiled for amx-tile and amx-bf16, too.
#pragma once

#include "ops/cpu/bf16_pairs.h"

#if defined(__AVX512F__)
EDDY_TARGET_BEGIN("amx-tile,amx-bf16")
namespace eddy::EDDY_ISA::bf16 {

// In assembly, since GCC's functions take no tile number from a template.
struct AmxTiles {
  // What a thread calls before the first and after the last of the others.
  static void begin() {
    struct alignas(64) {
      std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
      std::uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } config;
    // Not _tile_loadconfig: g++ 12 takes it to read the first eight bytes alone, and may leave out the others.
    asm volatile("ldtilecfg (%0)" ::"r"(&config) : "memory");
  }
  static void end() { _tile_release(); }
  template <int Tile>
  EDDY_INLINE static void zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(Tile));
  }
  // Rows lie `bytes` apart.
  template <int Tile>
  EDDY_INLINE static void load(const void* from, std::int64_t bytes) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(bytes), "i"(Tile) : "memory");
  }
  // The same for what is not read again soon: it leaves the first-level cache to the rest.
  template <int Tile>
  EDDY_INLINE static void load_once(const void* from, std::int64_t bytes) {
    asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(bytes), "i"(Tile) : "memory");
  }
  template <int Tile>
  EDDY_INLINE static void store(void* to, std::int64_t bytes) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(bytes), "i"(Tile) : "memory");
  }
  // C += A B: rows of A are rows of C, and row p of B has pair p of each of its columns.
  template <int C, int A, int B>
  EDDY_INLINE static void multiply() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B));
  }
};

// Functions that are called: only tests run them, and inlined they would take 6 s to compile.
struct EmulatedTiles {
  inline static thread_local Pair tiles[8][16][16];
  static void begin() {}
  static void end() {}
  template <int Tile>
  [[gnu::noinline]] static void zero() {
    for (auto& row : tiles[Tile])
      for (Pair& x : row) x = 0;
  }
  template <int Tile>
  [[gnu::noinline]] static void load(const void* from, std::int64_t bytes) {
    for (int r = 0; r < 16; ++r)
      __builtin_memcpy(tiles[Tile][r], static_cast<const char*>(from) + r * bytes, 64);
  }
  template <int Tile>
  static void load_once(const void* from, std::int64_t bytes) {
    load<Tile>(from, bytes);
  }
  template <int Tile>
  [[gnu::noinline]] static void store(void* to, std::int64_t bytes) {
    for (int r = 0; r < 16; ++r) __builtin_memcpy(static_cast<char*>(to) + r * bytes, tiles[Tile][r], 64);
  }
  template <int C, int A, int B>
  [[gnu::noinline]] static void multiply() {
    const auto half = [](Pair pair, bool high) {
      return __builtin_bit_cast(float, high ? pair & 0xffff0000u : pair << 16);
    };
    for (int m = 0; m < 16; ++m)
      for (int k = 0; k < 16; ++k)
        for (int n = 0; n < 16; ++n) {
          float sum = __builtin_bit_cast(float, tiles[C][m][n]);
          for (const bool high : {false, true})
            sum += half(tiles[A][m][k], high) * half(tiles[B][k][n], high);
          tiles[C][m][n] = __builtin_bit_cast(Pair, sum);
        }
  }
};

}  // namespace eddy::EDDY_ISA::bf16
EDDY_TARGET_END
#endif
