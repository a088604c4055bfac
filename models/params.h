// Parameters: declared by name in a model's constructor, stored in one flat arena, initialised from (seed,
// name).
//
// A model is constructed twice: first with a store that only counts (`eddy models` stops there and allocates
// nothing), then with a store that returns views of an arena of the counted size.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "ops/core/parameter_cache.h"
#include "tensor/tensor.h"

namespace eddy {

// The initial values of a parameter.
struct Init {
  // Their distribution.
  enum class Kind { zeros, ones, normal, truncated_normal, uniform };
  Kind kind = Kind::zeros;
  double deviation = 0;  // standard deviation; for uniform: the limit
  double mean = 0;       // of normal

  // All 0, all 1, and normal numbers.
  static Init zeros() { return {Kind::zeros, 0}; }
  static Init ones() { return {Kind::ones, 0}; }
  static Init normal(double deviation, double mean = 0) { return {Kind::normal, deviation, mean}; }
  // Truncated at two standard deviations, then scaled so that the standard deviation is the given one.
  static Init truncated_normal(double deviation) { return {Kind::truncated_normal, deviation}; }
  // Between -limit and limit.
  static Init uniform(double limit) { return {Kind::uniform, limit}; }
};

// One parameter of a store.
struct Parameter {
  std::string name;         // "layers.0.attn.wq.weight"
  Shape shape;              // of its value
  Init init;                // its initial values
  std::int64_t offset = 0;  // of its first element in both arenas
  Tensor value;             // a leaf: a view of the value arena; undefined in a store that only counts

  // A view of the parameter's elements of an arena.
  Tensor part_of(const Tensor& arena) const {
    return raw::reshape(raw::narrow(arena, 0, offset, shape.elements()), shape);
  }
};

class ParamStore;

// A prefix of parameter names: scope("layers").scope("0").param("weight", ...) declares "layers.0.weight".
class ParamScope {
 public:
  // Names that begin with `prefix`, which ends with a point.
  ParamScope(ParamStore& store, std::string prefix) : store_(store), prefix_(std::move(prefix)) {}
  // The scope of a part: of that name, or number.
  ParamScope scope(const std::string& name) const { return {store_, prefix_ + name + "."}; }
  ParamScope scope(std::int64_t index) const { return scope(std::to_string(index)); }
  // Declares a parameter and returns its tensor (undefined while counting).
  Tensor param(const std::string& name, const Shape& shape, Init init) const;
  // Records that the configuration removes this parameter, and returns an undefined tensor. `why` names the
  // setting and says what to do with a file that contains the parameter; errors for such files end with it.
  Tensor omitted(const std::string& name, const std::string& why) const;

 private:
  ParamStore& store_;
  std::string prefix_;
};

// The parameters of a model, their gradients and their names.
class ParamStore {
 public:
  // A store that counts.
  ParamStore() = default;
  // A store with arenas for the parameters that `counted` has. Values are zeros until initialize().
  // dtypes: with bf16 the arenas are f32, and products read a rounded bf16 copy of the values.
  // precision: of the f32 products with these parameters.
  ParamStore(const ParamStore& counted, Dtype dtype, Device device,
             MatmulPrecision precision = MatmulPrecision::f32);
  ParamStore(ParamStore&&) = default;
  ParamStore& operator=(ParamStore&&) = default;

  // The scope of the whole.
  ParamScope root() { return {*this, ""}; }
  // All parameters, in the order in which they were declared.
  const std::vector<Parameter>& parameters() const { return parameters_; }
  // The parameter of that name.
  // errors: ValueError when there is none.
  const Parameter& get(const std::string& name) const;
  // The same, or null when there is none.
  const Parameter* find(const std::string& name) const;
  // The parameters that the configuration removes, each with the reason.
  const std::map<std::string, std::string>& omitted() const { return omitted_; }
  // The number of parameters, in elements, without padding.
  std::int64_t count() const;

  // Sets the initial values. Those of parameter `name` depend only on (seed, name).
  void initialize(std::uint64_t seed);
  // The dtype of activations: that of the values, or bf16 with f32 values.
  Dtype activations() const { return keeps_bf16_copy(values_) ? Dtype::bf16 : values_.dtype(); }
  MatmulPrecision matmul_precision() const { return eddy::matmul_precision(values_); }
  // The flat arenas. A parameter has the same offset in both; the padding between parameters is 0. Backward
  // accumulates gradients into the gradient arena.
  const Tensor& values() const { return values_; }
  const Tensor& gradients() const { return gradients_; }
  // With bf16 activations, makes the rounded copy of the values if there is none or they changed since. On a
  // GPU Adam's kernel has renewed it; after other optimizers a captured step contains the cast.
  void renew_bf16_copy() const;
  // Marks all gradients as absent; it writes nothing.
  void zero_gradients();
  // Writes zeros for parameters without a gradient, so that the whole gradient arena is defined.
  void zero_missing_gradients();
  // Marks the gradients of these parameters as present, after something wrote sums of gradients into the arena, and all
  // others as absent. `present` has one entry for each parameter, in their order.
  // errors: ValueError for another number of entries.
  void mark_gradients(const std::vector<bool>& present);

 private:
  friend class ParamScope;
  Tensor declare(const std::string& name, const Shape& shape, Init init);

  std::vector<Parameter> parameters_;
  std::unordered_map<std::string, std::size_t> index_;  // name -> place in parameters_
  std::map<std::string, std::string> omitted_;
  std::int64_t arena_elements_ = 0;
  std::size_t next_ = 0;  // second construction: the parameter that must be declared next
  Tensor values_, gradients_;
};

}  // namespace eddy
