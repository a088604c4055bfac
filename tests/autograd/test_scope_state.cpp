// Module paths and recurrent state.
#include <doctest/doctest.h>

#include "autograd/scope.h"
#include "autograd/state.h"
#include "tensor/base/error.h"
#include "tensor/memory/allocator.h"
#include "tests/autograd/tiny_ops.h"
#include "tests/support/errors.h"
#include "tests/support/failing_new.h"

using namespace eddy;
using namespace eddy::test;
using namespace eddy::tiny;

namespace {

std::vector<std::string> names(const State& state) {
  std::vector<std::string> result;
  for (const auto& [name, tensor] : state) result.push_back(name);
  return result;
}

}  // namespace

TEST_CASE("scopes nest by guards and are interned") {
  CHECK(current_scope()->path.empty());
  const Scope* inner = nullptr;
  {
    const ScopeGuard layer("layers.0");
    const ScopeGuard part("attn");
    inner = current_scope();
    CHECK(inner->path == "layers.0.attn");
    const ScopeGuard back(*current_scope()->child("deep"));
    CHECK(current_scope()->path == "layers.0.attn.deep");
  }
  CHECK(current_scope()->path.empty());
  const ScopeGuard again("layers.0"), part("attn");
  CHECK(current_scope() == inner);
  CHECK(describe(*detail::variable_of(scale(leaf({1}), 1))->node) == "scale in layers.0.attn");
}

TEST_CASE("a state keeps the order of its names and replaces in place") {
  State state;
  CHECK(state.empty());
  state.set("h", vec({1}));
  state.set("c", vec({2, 3}));
  state.set("a", vec({4}));
  state.set("h", vec({5, 6}));
  CHECK(names(state) == std::vector<std::string>{"h", "c", "a"});
  CHECK(state.get("h").to_vector<double>() == std::vector<double>{5, 6});
  CHECK(state.find("nothing") == nullptr);
  CHECK(state.find("a")->item() == 4);
  CHECK(state.bytes() == 5 * 8);
  CHECK(state.erase("c"));
  CHECK_FALSE(state.erase("c"));
  CHECK(names(state) == std::vector<std::string>{"h", "a"});
  CHECK(state.size() == 2);
}

TEST_CASE("a missing name is a ValueError that lists what there is") {
  State state;
  CHECK(contains(error_of<ValueError>([&] { state.get("h"); }), "there is no 'h' (it has: nothing)"));
  state.set("c", vec({1}));
  state.set("memory", vec({1}));
  CHECK(contains(error_of<ValueError>([&] { state.get("h"); }), "(it has: c, memory)"));
  CHECK_THROWS_AS(state.set("", vec({1})), ValueError);
  CHECK_THROWS_AS(state.set("h", Tensor()), ValueError);
}

TEST_CASE("a state goes through a map and back") {
  State state;
  state.set("z", vec({1}));
  state.set("b", vec({2}));
  const State back = State::from_map(state.to_map());
  CHECK(names(back) == std::vector<std::string>{"b", "z"});
  CHECK(back.get("z").same(state.get("z")));
}

TEST_CASE("detaching a state stops gradients and lets numbers go on") {
  const Tensor w = leaf({2, 3});
  State state;
  state.set("h", scale(w, 2));
  const State plain = state.detach();
  CHECK(requires_grad(state.get("h")));
  CHECK_FALSE(requires_grad(plain.get("h")));
  CHECK(plain.get("h").to_vector<double>() == std::vector<double>{4, 6});
  CHECK(plain.get("h").buffer() == state.get("h").buffer());
}

TEST_CASE("a state of many tensors keeps their order and finds each, also after some are gone") {
  State state;
  for (int i = 0; i < 200; ++i) state.set("t" + std::to_string(i), Tensor::full({1}, i, Dtype::f64));
  state.set("t7", Tensor::full({1}, -7, Dtype::f64));
  for (int i = 0; i < 200; i += 2) CHECK(state.erase("t" + std::to_string(i)));
  CHECK_FALSE(state.erase("t0"));
  const State copy = state.detach();
  CHECK(copy.size() == 100);
  CHECK(copy.find("t198") == nullptr);
  for (int i = 1; i < 200; i += 2) {
    CAPTURE(i);
    CHECK(names(copy)[static_cast<std::size_t>(i / 2)] == "t" + std::to_string(i));
    CHECK(copy.get("t" + std::to_string(i)).item() == (i == 7 ? -7 : i));
  }
}

TEST_CASE("detaching copies small views so that they do not keep large buffers alive") {
  const std::int64_t before = allocator(kCpu).stats().live_bytes;
  State state;
  {
    const Tensor large = Tensor::full({1000, 10}, 7, Dtype::f64);
    state.set("last", raw::narrow(large, 0, 999, 1));
    state.set("half", raw::narrow(large, 0, 500, 500));
    CHECK(state.detach().get("half").buffer() == large.buffer());
    CHECK(state.detach().get("last").buffer()->bytes() == 80);
    state.erase("half");
    state = state.detach();
  }
  CHECK(allocator(kCpu).stats().live_bytes - before <= 128);
  CHECK(state.get("last").to_vector<double>() == std::vector<double>(10, 7.0));
}

TEST_CASE("a state to which no entry can be added for want of memory is as before") {
  const Tensor one = vec({1});
  for (const int many : {0, 64, 65, 80}) {
    CAPTURE(many);
    State state;
    const auto name_of = [](int i) { return "a rather long name of an entry " + std::to_string(i); };
    for (int i = 0; i < many; ++i) state.set(name_of(i), one);
    const std::string added = name_of(many);
    CHECK(fail_each_allocation([&] { state.set(added, one); },
                               [&] {
                                 CHECK(state.size() == static_cast<std::size_t>(many));
                                 CHECK(state.find(added) == nullptr);
                                 for (int i = 0; i < many; ++i) CHECK(state.find(name_of(i)) != nullptr);
                               }) > 0);
    CHECK(state.find(added) != nullptr);
    CHECK(state.size() == static_cast<std::size_t>(many) + 1);
  }
}
