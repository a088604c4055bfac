// Parameters: declared by name in a model's constructor, held in one flat arena, initialised from (seed,
// name).
//
// A model is constructed twice: once against a store that only counts (this is how `eddy models` counts
// without allocating), once against a store that hands out views of the arena made from that count.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "tensor/tensor.h"

namespace eddy {

struct Init {
  enum class Kind { zeros, ones, normal, truncated_normal, uniform } kind = Kind::zeros;
  double deviation = 0;  // of a uniform one: its limit

  static Init zeros() { return {Kind::zeros, 0}; }
  static Init ones() { return {Kind::ones, 0}; }
  static Init normal(double deviation) { return {Kind::normal, deviation}; }
  // Cut off at two standard deviations, then widened so that its standard deviation is the one given.
  static Init truncated_normal(double deviation) { return {Kind::truncated_normal, deviation}; }
  // Between -limit and limit.
  static Init uniform(double limit) { return {Kind::uniform, limit}; }
};

struct Parameter {
  std::string name;
  Shape shape;
  Init init;
  std::int64_t offset = 0;  // of its first element in the arenas
  Tensor value;             // a leaf, a view of the value arena; undefined in a store that only counts
};

class ParamStore;

// A place in the tree of names: scope("layers").scope("0").param("weight", …) is "layers.0.weight".
class ParamScope {
 public:
  ParamScope(ParamStore& store, std::string prefix) : store_(store), prefix_(std::move(prefix)) {}
  ParamScope scope(const std::string& name) const { return {store_, prefix_ + name + "."}; }
  ParamScope scope(std::int64_t index) const { return scope(std::to_string(index)); }
  // Declares a parameter and returns its tensor (undefined while counting).
  Tensor param(const std::string& name, const Shape& shape, Init init) const;

 private:
  ParamStore& store_;
  std::string prefix_;
};

class ParamStore {
 public:
  // A store that counts.
  ParamStore() = default;
  // A store with arenas for the parameters that `counted` saw. Values are uninitialised until initialize().
  // bf16: the arenas are f32, and products read a rounded copy of the values.
  ParamStore(const ParamStore& counted, Dtype dtype, Device device);
  ParamStore(ParamStore&&) = default;
  ParamStore& operator=(ParamStore&&) = default;

  ParamScope root() { return {*this, ""}; }
  const std::vector<Parameter>& parameters() const { return parameters_; }
  // errors: ValueError naming the nearest names when there is no such parameter.
  const Parameter& get(const std::string& name) const;
  const Parameter* find(const std::string& name) const;
  // The number of numbers, padding excluded.
  std::int64_t count() const;

  // Fills the values: parameter `name` depends on (seed, name) alone.
  void initialize(std::uint64_t seed);
  // What activations are computed in: the values' dtype, or bf16 beside values of f32.
  Dtype activations() const { return values_.buffer()->keeps_bf16_copy() ? Dtype::bf16 : values_.dtype(); }
  // The flat arenas: equal offsets, zeros between parameters. The gradient arena is where leaves sum their
  // gradients.
  const Tensor& values() const { return values_; }
  const Tensor& gradients() const { return gradients_; }
  // Says that `writer` wrote to the values. Beside bf16 activations the rounded copy is made anew at once: a
  // step ends with the copy of what it wrote, be it run or replayed.
  void wrote_values(const char* writer);
  // Forgets all gradients; nothing is written.
  void zero_gradients();
  // Writes zeros for parameters no gradient reached, so that the whole gradient arena holds numbers.
  void settle_gradients();

 private:
  friend class ParamScope;
  Tensor declare(const std::string& name, const Shape& shape, Init init);

  std::vector<Parameter> parameters_;
  std::unordered_map<std::string, std::size_t> index_;  // of each name in parameters_
  std::int64_t arena_elements_ = 0;
  std::size_t next_ = 0;  // while building: the parameter that must be declared next
  Tensor values_, gradients_;
};

}  // namespace eddy
