// Dropout of the kernels of recurrences, and a step of the unit recurrence.
#pragma once

#include "cuda/core/team.cuh"
#include "ops/cpu/vec_math.h"
#include "ops/recurrence/unit_recurrence.h"

namespace eddy::cuda {

// Dropout by the words of a key. Kernels that have no dropout set `on` to a constant, so that they contain no
// random numbers.
struct Dropout {
  bool on = false;
  std::uint32_t drop_below = 0;  // an element is dropped if the upper 24 bits of its word are below this
  float scale = 1;               // of what is kept

  // Sets the factors of `Count` neighbours from an element on whose number is a multiple of Count (of 4 if
  // Count is larger): 1 / (1 - rate) or 0.
  template <int Count>
  __device__ void get(float (&factors)[Count], const RandomKey& key, std::int64_t element) const {
#pragma unroll
    for (int i = 0; i < Count; i += 4) {
      Philox4 words = on ? key.words(static_cast<std::uint64_t>(element + i) / 4) : Philox4{};
      // The words of the element first: an index into them would make a table in local memory.
      if (Count < 4 && (element & 2) != 0) {
        words.word[0] = words.word[2];
        words.word[1] = words.word[3];
      }
      if (Count < 2 && (element & 1) != 0) words.word[0] = words.word[1];
#pragma unroll
      for (int j = 0; j < Count - i && j < 4; ++j)
        factors[i + j] = !on ? 1.0f : (words.word[j] >> 8) >= drop_below ? scale : 0.0f;
    }
  }
};
__host__ __device__ inline Dropout dropout_of(bool on, double rate) {
  return {on, static_cast<std::uint32_t>(ceil(rate * 0x1p24)), static_cast<float>(1 / (1 - rate))};
}

// The same key without a base in memory, which would be read for every word.
__device__ inline RandomKey resolved(RandomKey key) {
  key.step = key.current_step();
  key.step_base = nullptr;
  return key;
}

// Step t of the chain.
struct Step {
  const RecurrenceArgs& args;  // a reference: a copy would be stored in local memory
  std::int64_t t;
  Dropout dropout = {};

  // Returns row `row` of this step of an array [time, batch, width]; of T if it is stored as args.kept.
  template <class T = float>
  __device__ const T* at(const void* base, std::int64_t row, std::int64_t width) const {
    return static_cast<const T*>(base) + entries(first_row() + row, width);
  }
  template <class T = float>
  __device__ T* at(void* base, std::int64_t row, std::int64_t width) const {
    return static_cast<T*>(base) + entries(first_row() + row, width);
  }
  __device__ std::int64_t first_row() const { return entries(t, args.batch); }
  // Returns the dropout factor of an element.
  __device__ float keep(const RandomKey& key, std::int64_t element) const {
    float factor[1];
    dropout.get(factor, key, element);
    return factor[0];
  }
  // Returns the key or value of the state before this step; null at the first step of a sequence.
  __device__ const float* previous(const void* array, const void* carried, std::int64_t row) const {
    if (t > 0) return static_cast<const float*>(array) + entries(entries(t - 1, args.batch) + row, args.dim);
    return carried == nullptr ? nullptr : static_cast<const float*>(carried) + entries(row, args.dim);
  }

 private:
  // The entries of so many rows. A width fits 32 bits, and a product by 32 bits takes half the instructions.
  __device__ static std::int64_t entries(std::int64_t rows, std::int64_t width) {
    return rows * static_cast<std::uint32_t>(width);
  }
};

}  // namespace eddy::cuda
