// Stream names to Philox keys.
#include "tensor/random/philox.h"

namespace eddy {
namespace {

std::uint64_t mix(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ull;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

std::uint64_t name_hash(const char* name) {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (; *name != '\0'; ++name) hash = (hash ^ static_cast<unsigned char>(*name)) * 0x100000001b3ull;
  return hash;
}

RandomKey from_bits(std::uint64_t bits, std::uint64_t step) {
  return {static_cast<std::uint32_t>(bits), static_cast<std::uint32_t>(bits >> 32), step, nullptr};
}

}  // namespace

RandomKey random_key(std::uint64_t seed, const char* stream, std::uint64_t step) {
  return from_bits(mix(mix(seed + 0x9e3779b97f4a7c15ull) ^ name_hash(stream)), step);
}

RandomKey random_key(std::uint64_t seed, const char* stream, std::uint64_t index, std::uint64_t step) {
  const std::uint64_t named = mix(mix(seed + 0x9e3779b97f4a7c15ull) ^ name_hash(stream));
  return from_bits(mix(named + (index + 1) * 0x9e3779b97f4a7c15ull), step);
}

}  // namespace eddy
