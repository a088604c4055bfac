// Checkpointing: the same bits with and without, what is kept, nesting, and the errors of functions that
// cheat.
#include <doctest/doctest.h>

#include <functional>

#include "autograd/checkpoint.h"
#include "autograd/seq_buffer.h"
#include "tensor/base/error.h"
#include "tests/autograd/tiny_ops.h"
#include "tests/support/errors.h"

using namespace eddy;
using namespace eddy::test;
using namespace eddy::tiny;

namespace {

using Values = std::vector<double>;
using Inputs = std::vector<Tensor>;
using One = std::function<Tensor(const Inputs&)>;

// Uneven numbers, so that sums in another order have other bits.
Tensor uneven(std::int64_t n, double seed) {
  Values values(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = std::sin(seed + 1.7 * static_cast<double>(i)) / 3;
  return vec(values);
}

Tensor maybe_checkpoint(bool on, const One& fn, const Inputs& inputs) {
  return on ? checkpoint(fn, inputs) : fn(inputs);
}

}  // namespace

TEST_CASE("gradients have the same bits with and without checkpoints") {
  const auto run = [](bool on) {
    const Tensor x = require_grad(uneven(33, 0.3)), w = require_grad(uneven(33, 1.1)),
                 v = require_grad(uneven(33, 2.3));
    // x and w are used several times inside each block and between the blocks.
    const One block = [w](const Inputs& in) { return add(tanh(mul(in[0], w)), mul(in[0], mul(in[1], w))); };
    Tensor h = x;
    for (int layer = 0; layer < 4; ++layer) {
      h = add(mul(h, v), maybe_checkpoint(on, block, {h, x}));
      h = add(h, mul(x, w));
    }
    backward(sum(mul(h, h)));
    return Inputs{h, grad(x), grad(w), grad(v)};
  };
  const Inputs with = run(true), without = run(false);
  for (std::size_t i = 0; i < with.size(); ++i) {
    INFO("tensor " << i);
    CHECK(with[i].to_vector<double>() == without[i].to_vector<double>());
  }
}

TEST_CASE("nested checkpoints give the same bits too") {
  const auto run = [](bool outer_on, bool inner_on) {
    const Tensor x = require_grad(uneven(17, 0.3)), w = require_grad(uneven(17, 1.1));
    const One inner = [w](const Inputs& in) { return tanh(add(mul(in[0], w), mul(in[0], in[0]))); };
    const One outer = [&](const Inputs& in) {
      const Tensor a = maybe_checkpoint(inner_on, inner, {in[0]});
      return add(maybe_checkpoint(inner_on, inner, {add(a, in[0])}), mul(a, w));
    };
    const Tensor y = add(maybe_checkpoint(outer_on, outer, {x}), mul(x, x));
    backward(sum(y));
    return std::pair(grad(x).to_vector<double>(), grad(w).to_vector<double>());
  };
  const auto plain = run(false, false);
  CHECK(run(true, false) == plain);
  CHECK(run(false, true) == plain);
  CHECK(run(true, true) == plain);
}

TEST_CASE("a checkpoint keeps its inputs only and frees them in backward") {
  const Tensor x = require_grad(uneven(100, 0));
  const GraphStats before = graph_stats();
  const One deep = [](const Inputs& in) {
    Tensor h = in[0];
    for (int i = 0; i < 20; ++i) h = tanh(h);
    return h;
  };
  const Tensor y = checkpoint(deep, {x});
  CHECK(graph_stats().nodes - before.nodes == 1);
  CHECK(graph_stats().saved_bytes - before.saved_bytes == x.bytes());
  backward(y, uneven(100, 1));
  CHECK(graph_stats().saved_bytes == before.saved_bytes);
  CHECK(graph_stats().nodes - before.nodes == 1);
  CHECK(contains(error_of<GraphError>([&] { backward(y, uneven(100, 1)); }), "checkpoint was freed"));
}

TEST_CASE("parameters get their gradient when no input is tracked") {
  const Tensor w = leaf({2, 3});
  const Tensor x = vec({5, 7});
  const Tensor y = checkpoint(One([w](const Inputs& in) { return mul(in[0], w); }), {x});
  CHECK(requires_grad(y));
  backward(sum(y));
  CHECK(grad(w).to_vector<double>() == Values{5, 7});
}

TEST_CASE("a checkpoint without anything tracked lets backward pass over it") {
  const Tensor a = leaf({1});
  const Tensor y = checkpoint(One([](const Inputs& in) { return scale(in[0], 2); }), {vec({4})});
  backward(mul(a, y));
  CHECK(grad(a).item() == 8);
}

TEST_CASE("under NoGrad a checkpoint is a plain call") {
  const Tensor w = leaf({2});
  const NoGrad off;
  int calls = 0;
  const Tensor y = checkpoint(One([&](const Inputs& in) {
                                ++calls;
                                return mul(in[0], w);
                              }),
                              {w});
  CHECK(calls == 1);
  CHECK_FALSE(requires_grad(y));
}

TEST_CASE("several results with missing gradients and integers and undefined inputs work") {
  const Tensor x = leaf({1, 2});
  const Tensor ids = Tensor::from(std::vector<std::int64_t>{3}, {1});
  const auto fn = [](const Inputs& in) {
    CHECK_FALSE(in[2].defined());
    return Inputs{scale(in[0], 2), in[1], scale(in[0], 3), in[0]};
  };
  const Inputs ys = checkpoint(std::function<Inputs(const Inputs&)>(fn), {x, ids, Tensor()});
  CHECK(requires_grad(ys[0]));
  CHECK_FALSE(requires_grad(ys[1]));
  CHECK(ys[1].item_int() == 3);
  CHECK(requires_grad(ys[3]));
  backward({sum(ys[2]), sum(ys[3])}, {Tensor(), Tensor()});
  CHECK(grad(x).to_vector<double>() == Values{4, 4});
  CHECK(grad(x).defined());  // x is a leaf still, although fn returned it
}

TEST_CASE("an input that the function does not use gets no gradient") {
  const Tensor x = leaf({1}), unused = leaf({2});
  const Tensor hidden = scale(unused, 2);
  backward(checkpoint(One([](const Inputs& in) { return scale(in[0], 2); }), {x, hidden}));
  CHECK(grad(x).item() == 2);
  CHECK_FALSE(grad(unused).defined());
}

TEST_CASE("gradient storage of inputs and parameters is summed in place") {
  const Tensor x = leaf({1, 2}), w = leaf({3, 4});
  const Tensor dx = vec({99, 99}), dw = vec({99, 99});
  set_grad_storage(x, dx);
  set_grad_storage(w, dw);
  for (int i = 0; i < 2; ++i)
    backward(sum(checkpoint(One([w](const Inputs& in) { return mul(in[0], w); }), {x})));
  CHECK(dx.to_vector<double>() == Values{6, 8});
  CHECK(dw.to_vector<double>() == Values{2, 4});
}

TEST_CASE("the module of the forward pass is restored when recomputing") {
  const Tensor x = leaf({1});
  std::vector<std::string> paths;
  Tensor y;
  {
    const ScopeGuard layer("layers"), number("7");
    y = checkpoint(One([&](const Inputs& in) {
                     const ScopeGuard part("mlp");
                     paths.push_back(current_scope()->path);
                     return scale(in[0], 2);
                   }),
                   {x});
  }
  const ScopeGuard elsewhere("elsewhere");
  backward(y);
  CHECK(paths == std::vector<std::string>{"layers.7.mlp", "layers.7.mlp"});
  CHECK(current_scope()->path == "elsewhere");
}

TEST_CASE("captured results get the gradients that they get without a checkpoint, to the bit") {
  const auto run = [](int nested) {
    const Tensor x = require_grad(uneven(33, 0.3)), w = require_grad(uneven(33, 1.1));
    const Tensor hidden = tanh(mul(x, w));
    Tensor h = x;
    for (int turn = 0; turn < 3; ++turn) {
      const One inner = [hidden](const Inputs& in) { return tanh(mul(in[0], hidden)); };
      const One outer = [hidden, inner, nested](const Inputs& in) {
        const Tensor own = mul(in[0], hidden);
        return add(mul(hidden, maybe_checkpoint(nested > 1, inner, {own})), add(own, hidden));
      };
      h = add(mul(maybe_checkpoint(nested > 0, outer, {h}), hidden), hidden);
    }
    backward(sum(mul(h, h)));
    return Inputs{h, grad(x), grad(w)};
  };
  const Inputs without = run(0);
  for (const int nested : {1, 2}) {
    const Inputs with = run(nested);
    for (std::size_t i = 0; i < with.size(); ++i) {
      INFO("tensor " << i);
      CHECK(with[i].to_vector<double>() == without[i].to_vector<double>());
    }
  }
}

TEST_CASE("a captured result may be returned as it is") {
  const Tensor x = leaf({1, 2});
  const Tensor hidden = scale(x, 2);
  backward(sum(checkpoint(One([hidden](const Inputs&) { return hidden; }), {x})));
  CHECK(grad(x).to_vector<double>() == Values{2, 2});
}

TEST_CASE("a result that did not exist when the function first ran is refused by name") {
  const Tensor x = leaf({1, 2});
  Tensor variable = vec({1, 1});
  const Tensor y = checkpoint(One([&variable](const Inputs& in) { return mul(in[0], variable); }), {x});
  {
    const ScopeGuard module("decoder");
    variable = scale(x, 2);
  }
  const std::string text = error_of<GraphError>([&] { backward(sum(y)); });
  INFO(text);
  CHECK(contains(text, "uses the result [2] of scale in decoder, which was computed after it first ran"));
  backward(sum(variable));  // and nothing of the failed attempt is left in the graph outside
  CHECK(grad(x).to_vector<double>() == Values{2, 2});
}

TEST_CASE("windows of a tracked memory work as inputs and inside, while the memory grows") {
  const auto run = [](int way) {
    const Tensor a = require_grad(uneven(3, 0.7)), w = require_grad(uneven(3, 1.9));
    SeqBuffer memory = SeqBuffer({9}, 0, Dtype::f64);
    Tensor h = a;
    for (int turn = 0; turn < 3; ++turn) {
      memory = memory.append(tanh(h));
      const std::int64_t end = memory.count();
      const One one = [memory, w, end](const Inputs& in) {
        return tanh(mul(mul(in[0], w), memory.window(end - 3, end)));
      };
      const One two = [w](const Inputs& in) { return tanh(mul(mul(in[0], w), in[1])); };
      h = way == 0   ? one({h})
          : way == 1 ? checkpoint(one, {h})
                     : checkpoint(two, {h, memory.window(end - 3, end)});
    }
    backward(sum(h));
    return Inputs{grad(a), grad(w)};
  };
  const Inputs without = run(0);
  for (const int way : {1, 2})
    for (std::size_t i = 0; i < without.size(); ++i)
      CHECK(run(way)[i].to_vector<double>() == without[i].to_vector<double>());
}

TEST_CASE("functions that cannot be computed again are refused") {
  const Tensor x = leaf({1, 2});
  const Tensor plain = vec({3, 4});
  const One overwrites = [](const Inputs& in) {
    wrote_in_place(in[0], "scribble");
    return scale(in[0], 1);
  };
  CHECK(contains(error_of<GraphError>([&] { checkpoint(overwrites, {plain}); }),
                 "overwrote its input 0 (scribble)"));
  CHECK_THROWS_AS(checkpoint(One([](const Inputs&) { return Tensor(); }), {x}), ValueError);

  int calls = 0;
  const One changes = [&calls](const Inputs& in) { return ++calls == 1 ? scale(in[0], 2) : sum(in[0]); };
  const Tensor changed = checkpoint(changes, {x});
  CHECK(contains(error_of<GraphError>([&] {
                   backward(changed, vec({1, 1}));
                 }),
                 "result 0 was [2] and is []"));

  const Tensor late = checkpoint(One([](const Inputs& in) { return mul(in[0], in[1]); }), {x, plain});
  wrote_in_place(plain, "late_write");
  const std::string text = error_of<VersionError>([&] { backward(sum(late)); });
  CHECK(contains(text, "checkpoint: a tensor [2] saved for the backward pass was overwritten by late_write"));
}

TEST_CASE("an error inside the recomputed graph leaves nothing in the graph outside") {
  const Tensor x = leaf({1, 2});
  const Tensor hidden = scale(x, 2), constant = vec({1, 1});
  const Tensor y = checkpoint(One([&](const Inputs& in) {
                                const Tensor a = mul(in[0], constant);
                                if (grad_enabled())
                                  wrote_in_place(constant, "spoiler");  // so the product's save is stale
                                return add(a, in[0]);
                              }),
                              {hidden});
  CHECK_THROWS_AS(backward(sum(y)), VersionError);
  backward(sum(hidden));
  CHECK(grad(x).to_vector<double>() == Values{2, 2});
}

TEST_CASE("anomaly mode looks inside a checkpoint") {
  const Tensor x = leaf({1});
  const One bad = [](const Inputs& in) {
    const ScopeGuard module("inside");
    const Tensor input = in[0];
    return record("bad_root", {input}, raw::copy(input), {}, [](VjpContext& c) {
      c.sink.accumulate(0, map(c.dy(), [](double) { return std::nan(""); }));
    });
  };
  const Tensor y = checkpoint(bad, {x});
  const AnomalyMode anomaly;
  CHECK(contains(error_of<NonFiniteError>([&] { backward(y); }), "bad_root in inside gave a gradient"));
}

TEST_CASE("a long chain of checkpoints neither overflows the stack nor keeps memory") {
  const Tensor x = leaf({1});
  const GraphStats before = graph_stats();
  {
    Tensor h = x;
    for (int i = 0; i < 20000; ++i)
      h = checkpoint(One([](const Inputs& in) { return scale(in[0], 1); }), {h});
    backward(h);
  }
  CHECK(grad(x).item() == 1);
  CHECK(graph_stats().nodes == before.nodes);
  CHECK(graph_stats().saved_bytes == before.saved_bytes);
}
