// The DOT text of the tape.
#include <doctest/doctest.h>

#include <algorithm>

#include "autograd/graph_export.h"
#include "autograd/scope.h"
#include "tensor/base/error.h"
#include "tests/autograd/tiny_ops.h"
#include "tests/support/errors.h"

using namespace eddy;
using namespace eddy::test;
using namespace eddy::tiny;

namespace {

std::string small_graph() {
  const Tensor x = leaf({1, 2}), w = leaf({3, 4});
  Tensor h;
  {
    const ScopeGuard layers("layers.0");
    h = scale(x, 2);
    const ScopeGuard gate("gate");
    h = mul(h, w);
  }
  const ScopeGuard other("layers.1");
  return graph_to_dot(sum(h), {{"x", x}, {"gate.weight", w}});
}

}  // namespace

TEST_CASE("the graph text holds leaves and operations and shapes and saved bytes in creation order") {
  const std::string wanted = R"(digraph tape {
  rankdir=TB;
  node [fontname="Helvetica"];
  edge [fontname="Helvetica"];
  n1 [shape=box, label="x\n[2] f64"];
  n2 [shape=box, label="gate.weight\n[2] f64"];
  subgraph cluster_1 {
    label="layers";
    subgraph cluster_2 {
      label="0";
      n3 [shape=ellipse, label="scale\nsaved 0 bytes"];
      subgraph cluster_3 {
        label="gate";
        n4 [shape=ellipse, label="mul\nsaved 32 bytes"];
      }
    }
    subgraph cluster_4 {
      label="1";
      n5 [shape=ellipse, label="sum\nsaved 0 bytes"];
    }
  }
  result [shape=plaintext, label="result\n[] f64"];
  n1 -> n3 [label="[2] f64"];
  n3 -> n4 [label="[2] f64"];
  n2 -> n4 [label="[2] f64"];
  n4 -> n5 [label="[2] f64"];
  n5 -> result [label="[] f64"];
}
)";
  CHECK(small_graph() == wanted);
  CHECK(small_graph() == small_graph());
}

TEST_CASE("names are escaped and outputs of several are numbered and freed nodes say so") {
  const Tensor x = leaf({1});
  const Tensor twice = once_and_twice(x).second;
  const std::string text = graph_to_dot(twice, {{"a \"quoted\" \\ name\nline", x}});
  CHECK(contains(text, R"(label="a \"quoted\" \\ name\nline\n[1] f64")"));
  CHECK(contains(text, "n2 -> result [label=\"output 1: [1] f64\"]"));
  backward(twice);
  CHECK(contains(graph_to_dot(twice), "freed by backward"));
}

TEST_CASE("a long chain is drawn without recursion and unnamed leaves are leaves") {
  Tensor y = leaf({1});
  for (int i = 0; i < 100000; ++i) y = scale(y, 1);
  const std::string text = graph_to_dot(y);
  CHECK(contains(text, "label=\"leaf\\n[1] f64\""));
  CHECK(std::count(text.begin(), text.end(), '\n') == 4 + 100001 + 1 + 100001 + 1);
}

TEST_CASE("an untracked tensor has no graph and only leaves have names") {
  const Tensor x = leaf({1});
  CHECK_THROWS_AS(graph_to_dot(vec({1})), GraphError);
  CHECK_THROWS_AS(graph_to_dot(Tensor()), GraphError);
  CHECK(contains(error_of<ValueError>([&] {
                   graph_to_dot(scale(x, 1), {{"h", scale(x, 2)}});
                 }),
                 "'h' names a tensor"));
}
