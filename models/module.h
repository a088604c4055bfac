// A module together with its parameters: the one line that builds a model of one's own.
//
//   struct Mlp {
//     Mlp(const ParamScope& scope, std::int64_t width)
//         : up(scope.scope("up"), 2, width, 0.5, true), down(scope.scope("down"), width, 1, 0.5, true) {}
//     Tensor operator()(const Tensor& x) const { return down(tanh(up(x))); }
//     Linear up, down;
//   };
//   auto net = make_module<Mlp>(1, 16);  // seed 1, width 16
//   Tensor y = net(x);
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "autograd/tape.h"
#include "models/params.h"
#include "models/weights.h"

namespace eddy {

// How the parameters of a module are made.
struct ModuleOptions {
  std::uint64_t seed = 0;    // of the initial values
  Dtype dtype = Dtype::f32;  // bf16: values are f32, and products read a rounded copy
  Device device = kCpu;      // where they lie
  MatmulPrecision matmul_precision = MatmulPrecision::f32;  // of the products with the module's parameters
};

// Owns the parameters of an M and the M that uses them. M's constructor takes a ParamScope and then the
// arguments given here. It runs twice, first to count the parameters: it must declare the same ones each time
// and do nothing else with a lasting effect, but for values that it writes into the parameters the second time.
template <class M>
class Module {
 public:
  // Makes an M with these arguments. Initial values by the seed stand before the constructor of M runs for the second
  // time: what it writes stays.
  template <class... Args>
  explicit Module(const ModuleOptions& options, const Args&... args)
      : params_(initialized(counted(args...), options)), net_(params_.root(), args...) {
    wrote_in_place(params_.values(), "constructor");
    params_.renew_bf16_copy();
  }

  // Calls the module.
  template <class... Inputs>
  auto operator()(Inputs&&... inputs) const {
    return net_(std::forward<Inputs>(inputs)...);
  }
  // The module itself: net->up.weight.
  const M* operator->() const { return &net_; }
  const M& operator*() const { return net_; }

  // The parameters, for an optimizer.
  ParamStore& params() { return params_; }
  const ParamStore& params() const { return params_; }

  // Write and read the weights as a safetensors file; see models/weights.h.
  void save(const std::string& path) const { save_weights(params_, path); }
  void load(const std::string& path) { load_weights(params_, path); }

 private:
  template <class... Args>
  static ParamStore counted(const Args&... args) {
    ParamStore store;
    static_cast<void>(M(store.root(), args...));
    return store;
  }
  static ParamStore initialized(const ParamStore& counted, const ModuleOptions& options) {
    ParamStore store(counted, options.dtype, options.device, options.matmul_precision);
    store.initialize(options.seed);
    return store;
  }

  ParamStore params_;
  M net_;
};

// Builds an M with initial values from a seed, in f32 on the CPU.
template <class M, class... Args>
Module<M> make_module(std::uint64_t seed, const Args&... args) {
  return Module<M>(ModuleOptions{.seed = seed}, args...);
}
// The same with a dtype and a device: make_module<Mlp>({.seed = 1, .dtype = Dtype::f64}, 16).
template <class M, class... Args>
Module<M> make_module(const ModuleOptions& options, const Args&... args) {
  return Module<M>(options, args...);
}

}  // namespace eddy
