// The contract of every op, from the one list of OpSpecs: gradients, values on each instruction set, and bits
// that depend on nothing but the inputs.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <utility>

#include "autograd/gradcheck.h"
#include "ops/core/parameter_cache.h"
#include "ops/cpu/isa.h"
#include "tensor/threads/thread_pool.h"
#include "tensor/transfer.h"
#include "tests/support/bf16_check.h"
#include "tests/support/files.h"
#include "tests/support/isa_levels.h"
#include "tests/support/spec_check.h"
#include "tests/support/threads.h"

using namespace eddy;
using namespace eddy::test;
using namespace eddy::spec_check;

namespace {

// Calls check(spec, sample, "op/label") for every sample, in one subcase for each op.
template <class Check>
void for_each_sample(Check&& check) {
  static const std::vector<OpSpec> specs = op_specs();
  REQUIRE(!specs.empty());
  for (const OpSpec& spec : specs) {
    SUBCASE(spec.name.c_str()) {
      CHECK(!spec.samples.empty());
      for (const OpSample& sample : spec.samples) check(spec, sample, spec.name + "/" + sample.label);
    }
  }
}

// The page with the tables that follow from ops/op_list.h and the names and formulas of the specs, one in each
// section. The sections stand in the order of the list.
std::string with_tables(const std::string& page) {
  const std::string head = "| op | formula |\n| --- | --- |\n";
  std::string made;
  std::size_t at = 0;
  for (const OpGroup& group : op_groups()) {
    const std::size_t section = page.find(fmt::format("\n\nIn `{}`.", group.header), at),
                      table = page.find(head, section);
    REQUIRE_MESSAGE(table != std::string::npos, "no section of ", group.header, ", or not in its place");
    made += page.substr(at, table + head.size() - at);
    for (const OpSpec& spec : group.specs) {
      std::string formula = spec.formula;
      for (std::size_t bar = formula.find('|'); bar != std::string::npos; bar = formula.find('|', bar + 2))
        formula.insert(bar, "\\");
      made += fmt::format("| `{}` | {} |\n", spec.name, formula);
    }
    for (at = table + head.size(); page.compare(at, 1, "|") == 0;) at = page.find('\n', at) + 1;
  }
  return made + page.substr(at);
}

}  // namespace

TEST_CASE("the page of ops follows from their list") {
  const char* const path = EDDY_SOURCE_DIR "/docs/ops.md";
  const std::string page = read_bytes(path), made = with_tables(page);
  if (std::getenv("EDDY_UPDATE_DOCS") != nullptr) std::ofstream(path) << made;
  CHECK_MESSAGE((page == made), "docs/ops.md differs: run this test with EDDY_UPDATE_DOCS=1 to write it");
  std::size_t sections = 0;
  for (std::size_t at = page.find("\n## "), next; at != std::string::npos; at = next) {
    next = page.find("\n## ", at + 1);
    const std::string section = page.substr(at + 1, next - at - 1);
    const bool has_shapes =
        section.find("\nShapes: ") != std::string::npos || section.find("| shapes |") != std::string::npos;
    CHECK_MESSAGE(has_shapes, "no shapes in ", section.substr(0, section.find('\n')));
    ++sections;
  }
  CHECK(sections == op_groups().size());
}

TEST_CASE("the gradients of every op agree with finite differences") {
  for_each_sample([](const OpSpec& spec, const OpSample& sample, const std::string& name) {
    if (!sample.gradcheck) return;
    const GradcheckResult result = gradcheck(spec.run, sample.inputs);
    CHECK_MESSAGE(result.ok, name, ": ", result.describe());
  });
}

TEST_CASE("the results of every op agree with its reference on every instruction set") {
  for_each_sample([](const OpSpec& spec, const OpSample& sample, const std::string& name) {
    if (!spec.reference) return;
    const Tensors want = spec.reference(sample.inputs);
    on_every_isa_level([&] {
      for (const Dtype dtype : {Dtype::f64, Dtype::f32}) {
        const Tensors got = spec.run(inputs_as(sample.inputs, dtype));
        REQUIRE_MESSAGE(got.size() == want.size(), name);
        // In f64 the reference rounds as much as the op does.
        const double roundings = dtype == Dtype::f64 ? 2 * spec.roundings : spec.roundings;
        for (std::size_t i = 0; i < want.size(); ++i)
          expect_none(
              difference(fmt::format("{} {} {} result {}", name, isa_name(isa_level()), dtype_name(dtype), i),
                         got[i], want[i], roundings, epsilon(dtype), sample.own_size));
      }
    });
  });
}

TEST_CASE("the f32 gradients of every op agree with its f64 gradients on every instruction set") {
  for_each_sample([](const OpSpec& spec, const OpSample& sample, const std::string& name) {
    // The derivatives of these are computed from results, which are 1 where they are saturated.
    const bool from_result = spec.name == "tanh" || spec.name == "sigmoid";
    if (!sample.gradcheck && (!sample.own_size || from_result)) return;
    const Tensors f32 = inputs_as(sample.inputs, Dtype::f32);
    const Outcome want = evaluate(spec, inputs_as(sample.inputs, Dtype::f64));
    on_every_isa_level([&] {
      expect_none(gradient_difference(fmt::format("{} {}", name, isa_name(isa_level())),
                                      evaluate(spec, f32).gradients, want.gradients, gradient_roundings(spec),
                                      epsilon(Dtype::f32), sample.own_size));
    });
  });
}

// Inputs are numbers of bf16: a rounded key would let scores in the hundreds choose another winner in any form of
// attention. What is computed between two products is off by 2^-9 of itself. Some ops multiply several times in a
// row, and gradients stand on rounded results. Where an input of a ReLU changes its sign, a gradient changes by a
// whole term.
TEST_CASE("every op with rounded factors of products stays near f64") {
  if (!has_rounded_products()) return;
  for_each_sample([](const OpSpec& spec, const OpSample& sample, const std::string& name) {
    const Tensors inputs = inputs_as(sample.inputs, Dtype::bf16);
    const Tensors rounding = inputs_as(inputs, Dtype::f32);
    for (const Tensor& x : rounding)
      if (x.defined() && x.dtype() == Dtype::f32) mark_parameters(x, MatmulPrecision::bf16);
    const Outcome got = evaluate(spec, rounding), want = evaluate(spec, inputs_as(inputs, Dtype::f64));
    for (std::size_t i = 0; i < want.results.size(); ++i)
      expect_none(difference(fmt::format("{} result {}", name, i), got.results[i], want.results[i],
                             bf16_roundings(spec.roundings, 4), kBf16Rounding, sample.own_size));
    if (sample.gradcheck && spec.name.find("relu") == std::string::npos)
      expect_none(gradient_difference(name, got.gradients, want.gradients,
                                      bf16_roundings(gradient_roundings(spec), 16), kBf16Rounding,
                                      sample.own_size));
  });
}

TEST_CASE("every op gives the same bits whatever its memory held before") {
  for_each_sample([](const OpSpec& spec, const OpSample& sample, const std::string& name) {
    for (const Dtype dtype : {Dtype::f64, Dtype::f32}) {
      const Tensors inputs = inputs_as(sample.inputs, dtype);
      EvaluateOptions options;
      options.dys = cotangents(evaluate(spec, inputs).results);
      poison(0x00, inputs);
      const Outcome clean = evaluate(spec, inputs, options);
      poison(0xff, inputs);
      const Outcome poisoned = evaluate(spec, inputs, options);
      expect_none(bit_difference(fmt::format("{} {}", name, dtype_name(dtype)), poisoned, clean));
    }
  });
}

TEST_CASE("every op gives the same bits with one thread and with several") {
  const Threads keep(thread_count());
  for_each_sample([](const OpSpec& spec, const OpSample& sample, const std::string& name) {
    const Tensors inputs = inputs_as(sample.inputs, Dtype::f32);
    set_thread_count(1);
    const Outcome alone = evaluate(spec, inputs);
    for (const int threads : {2, 3}) {
      set_thread_count(threads);
      expect_none(bit_difference(fmt::format("{} {} threads", name, threads), evaluate(spec, inputs), alone));
    }
  });
}

TEST_CASE("every op leaves its inputs as they were") {
  for_each_sample([](const OpSpec& spec, const OpSample& sample, const std::string& name) {
    const Tensors inputs = inputs_as(sample.inputs, Dtype::f32);
    const Tensors before = changed(inputs, raw::copy);
    evaluate(spec, inputs);
    for (std::size_t i = 0; i < inputs.size(); ++i)
      expect_none(bit_difference(fmt::format("{} input {}", name, i), inputs[i], before[i]));
  });
}

TEST_CASE("one tensor as two inputs of an op gets the sum of both gradients") {
  for_each_sample([](const OpSpec& spec, const OpSample& sample, const std::string& name) {
    if (!sample.gradcheck) return;
    for_pairs(sample.inputs, [&](int first, int second, const Tensors& inputs) {
      Tensors want = evaluate(spec, inputs).gradients;
      Tensor& sum = want[static_cast<std::size_t>(first)];
      const Tensor other = std::exchange(want[static_cast<std::size_t>(second)], Tensor());
      if (!sum.defined() || !other.defined()) return;
      sum = raw::add(sum, other);
      for (const bool pinned : {false, true})
        expect_none(gradient_difference(
            fmt::format("{} inputs {} and {}{}", name, first, second, pinned ? ", pinned" : ""),
            evaluate(spec, inputs, {{}, false, pinned, first, second}).gradients, want,
            4 * gradient_roundings(spec), epsilon(Dtype::f64)));
    });
  });
}

TEST_CASE("every op takes strided inputs and cotangents") {
  for_each_sample([](const OpSpec& spec, const OpSample& sample, const std::string& name) {
    const Tensors packed = changed(sample.inputs, raw::copy);
    const Tensors strided = changed(packed, strided_copy);
    const Outcome want = evaluate(spec, packed);
    EvaluateOptions options;
    options.dys = changed(cotangents(want.results), strided_copy);
    const Outcome got = evaluate(spec, strided, options);
    const double eps = epsilon(Dtype::f64);
    for (std::size_t i = 0; i < want.results.size(); ++i)
      expect_none(difference(fmt::format("{} result {}", name, i), got.results[i], want.results[i],
                             2 * spec.roundings, eps));
    expect_none(gradient_difference(name, got.gradients, want.gradients, 2 * gradient_roundings(spec), eps));
  });
}

TEST_CASE("every op takes a cotangent that repeats one number") {
  for_each_sample([](const OpSpec& spec, const OpSample& sample, const std::string& name) {
    const Tensors results = evaluate(spec, sample.inputs).results;
    const Tensors ones =
        changed(results, [](const Tensor& y) { return Tensor::full(y.shape(), 1, y.dtype()); });
    const Tensors repeated = changed(
        results, [](const Tensor& y) { return raw::expand(Tensor::full({}, 1, y.dtype()), y.shape()); });
    const Outcome want = evaluate(spec, sample.inputs, {ones, false, false});
    const Outcome got = evaluate(spec, sample.inputs, {repeated, false, false});
    expect_none(gradient_difference(name, got.gradients, want.gradients, 2 * gradient_roundings(spec),
                                    epsilon(Dtype::f64)));
  });
}

TEST_CASE("the gradients of two uses of an op add up") {
  for_each_sample([](const OpSpec& spec, const OpSample& sample, const std::string& name) {
    const Outcome once = evaluate(spec, sample.inputs);
    const Outcome twice = evaluate(spec, sample.inputs, {{}, true, false});
    const Tensors doubled = changed(once.gradients, [](const Tensor& gradient) {
      const Tensor sum = raw::copy(gradient);
      raw::add_into(sum, gradient);
      return sum;
    });
    expect_none(gradient_difference(name, twice.gradients, doubled, 2 * gradient_roundings(spec),
                                    epsilon(Dtype::f64)));
  });
}

TEST_CASE("the gradients of every op overwrite stale storage") {
  for_each_sample([](const OpSpec& spec, const OpSample& sample, const std::string& name) {
    const Outcome free = evaluate(spec, sample.inputs);
    const Outcome pinned = evaluate(spec, sample.inputs, {{}, false, true});
    expect_none(bit_difference(name, pinned, free));
  });
}

TEST_CASE("the names and labels of ops are unique") {
  std::vector<std::string> names;
  for (const OpSpec& spec : op_specs()) {
    CHECK_MESSAGE(!spec.formula.empty(), spec.name);
    for (const OpSample& sample : spec.samples) names.push_back(spec.name + "/" + sample.label);
  }
  std::sort(names.begin(), names.end());
  const auto twin = std::adjacent_find(names.begin(), names.end());
  CHECK_MESSAGE(twin == names.end(), (twin == names.end() ? "" : *twin));
}
