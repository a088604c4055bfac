// The declaration of a state and the cache of rows, apart from any model of the papers.
#include "models/state_layout.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "models/model.h"
#include "models/row_cache.h"
#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

namespace {

using namespace eddy;
using namespace eddy::test;

struct NoKeys {};

// A model that does nothing but check states.
class Carrier final : public FamilyModel<NoKeys> {
 public:
  explicit Carrier(Dtype dtype) : FamilyModel({}) {
    ParamStore counted;
    static_cast<void>(counted.root().param("w", {2}, Init::zeros()));
    params() = ParamStore(counted, dtype, kCpu);
  }
  ForwardOutput forward(const ForwardInput& input) const override { return {input, {}, {}}; }
  Tensor stream(const Tensor&, State&) const override { return {}; }
  std::int64_t remaining_context(const State&) const override { return -1; }
  std::optional<std::vector<std::int64_t>> stream_signature(const State&) const override { return {}; }
  std::int64_t stream_period() const override { return 1; }

  using Model::check_start;
  using Model::check_state;
  using Model::start_flags;
  using Model::zeros_of;
};

StateLayout layout_of(std::int64_t batch) {
  using Kind = StateTensor::Kind;
  return {{.name = "h", .shape = {batch, 3}},
          {.name = "keys", .shape = {2, batch, 5, 4}, .kind = Kind::rows, .batch_axis = 1, .growing_axis = 2},
          {.name = "more", .shape = {batch}, .optional = true},
          {.name = "position", .shape = {1}, .kind = Kind::count, .most = {9}}};
}

State state_of(std::int64_t batch, Dtype dtype) {
  State state;
  state.set("h", Tensor::zeros({batch, 3}, dtype));
  state.set("keys", Tensor::zeros({2, batch, 6, 4}, dtype));
  state.set_counts("position", {7});
  return state;
}

// Rows of one number each, [1, count, 1].
Tensor rows_of(std::vector<double> values) {
  const auto count = static_cast<std::int64_t>(values.size());
  return Tensor::from(values, {1, count, 1});
}

}  // namespace

TEST_CASE("state layout: a state that fits is taken, with and without what is optional") {
  const Carrier model(Dtype::f64);
  State state = state_of(2, Dtype::f64);
  CHECK_NOTHROW(model.check_state(state, layout_of(2)));
  state.set("more", Tensor::zeros({2}, Dtype::f64));
  state.set("h", Tensor::zeros({2, 3}, Dtype::bf16));
  state.set("position", Tensor::from(std::vector<std::int32_t>{7}, {1}));
  CHECK_NOTHROW(model.check_state(state, layout_of(2)));
  CHECK_NOTHROW(model.check_state({}, {}));
}

TEST_CASE("state layout: a model of one's own has no config of all families, and says so") {
  CHECK(contains(error_of<ValueError>([] { static_cast<void>(Carrier(Dtype::f64).full_config()); }),
                 "make_model"));
}

TEST_CASE("state layout: what does not fit is refused by name") {
  const Carrier model(Dtype::f64);
  const auto refused = [&]<class E>(const State& state, E*) {
    return error_of<E>([&] { model.check_state(state, layout_of(2)); });
  };
  const auto with = [](const char* name, const Tensor& tensor) {
    State state = state_of(2, Dtype::f64);
    state.set(name, tensor);
    return state;
  };
  const ShapeError* const shape = nullptr;
  const DtypeError* const dtype = nullptr;
  const ValueError* const value = nullptr;
  CHECK(contains(refused(state_of(3, Dtype::f64), shape), "2 rows of tokens and a state of 3 rows: its h"));
  CHECK(contains(refused(with("h", Tensor::zeros({2, 4}, Dtype::f64)), shape),
                 "h has shape [2, 4] (here [2, 3])"));
  CHECK(contains(refused(with("keys", Tensor::zeros({2, 2, 4, 4}, Dtype::f64)), shape),
                 "keys has shape [2, 2, 4, 4] (here [2, 2, at least 5, 4])"));
  CHECK(contains(refused(with("position", Tensor::zeros({2}, Dtype::i64)), shape), "position"));
  CHECK(contains(refused(with("position", Tensor::zeros({1}, Dtype::f64)), dtype),
                 "position is f64 (i64 or i32)"));
  CHECK(contains(refused(with("h", Tensor::zeros({2, 3}, Dtype::f32)), dtype), "h is f32 and the model f64"));
  CHECK(contains(refused(with("keys", Tensor::zeros({2, 2, 6, 4}, Dtype::bf16)), dtype), "keys is bf16"));
  CHECK(contains(refused(with("position", Tensor::full({1}, -1, Dtype::i64)), value),
                 "number 0 of the state's position is -1 (0 to 9)"));
  CHECK(contains(refused(with("position", Tensor::full({1}, 10, Dtype::i64)), value),
                 "position is 10 (0 to 9)"));
  CHECK(contains(refused(with("other", Tensor::zeros({1})), value),
                 "holds other, which this model does not carry"));
  State lost = state_of(2, Dtype::f64);
  lost.erase("keys");
  CHECK(contains(refused(lost, value), "no 'keys'"));
  CHECK(contains(error_of<ValueError>([&] { model.check_state(lost, {}); }), "carries none"));
}

TEST_CASE("state layout: zeros have the sizes and dtypes of the layout") {
  const Carrier model(Dtype::f64);
  StateLayout layout = layout_of(2);
  layout[1].shape = {2, 2, 6, 4};
  const State zeros = model.zeros_of(layout);
  CHECK(zeros.size() == 3);
  CHECK(zeros.get("keys").shape() == Shape{2, 2, 6, 4});
  CHECK(zeros.get("h").dtype() == Dtype::f64);
}

TEST_CASE("state layout: start flags are checked and restart the rows they flag") {
  const Carrier model(Dtype::f64);
  const auto start = [](std::vector<std::int64_t> flags) { return Tensor::from(flags, {2, 2}); };
  CHECK_NOTHROW(model.check_start({}, 2, 2));
  CHECK_NOTHROW(model.check_start(start({0, 1, 1, 0}), 2, 2));
  CHECK(contains(error_of<ShapeError>([&] {
                   model.check_start(start({0, 1, 1, 0}), 2, 3);
                 }),
                 "(here [2, 3]"));
  CHECK(contains(error_of<ValueError>([&] {
                   model.check_start(start({0, 1, 2, 0}), 2, 2);
                 }),
                 "start of row 1 is 2"));
  CHECK(contains(error_of<DtypeError>([&] {
                   model.check_start(Tensor::zeros({2, 2}), 2, 2);
                 }),
                 "start is f32"));
  CHECK(!model.start_flags(start({1, 0, 1, 0}), 1).defined());
  CHECK(!model.start_flags({}, 0).defined());
  const Tensor flags = model.start_flags(start({0, 0, 0, 1}), 1);
  const Tensor x = Tensor::from(std::vector<double>{1, 2, 3, 4}, {2, 2}),
               initial = Tensor::from(std::vector<double>{8, 9}, {1, 2});
  CHECK(restart_rows(x, initial, flags).to_vector<double>() == std::vector<double>{1, 2, 8, 9});
}

TEST_CASE("row cache: rows are appended, seen as a view and moved to the front, also over themselves") {
  const RowCache cache(Tensor::zeros({1, 5, 1}, Dtype::f64));
  cache.put(0, rows_of({1, 2, 3}));
  cache.put(3, raw::cast(rows_of({4, 5}), Dtype::f32));
  CHECK(cache.capacity() == 5);
  CHECK(raw::contiguous(cache.rows(1, 4)).to_vector<double>() == std::vector<double>{2, 3, 4});
  CHECK_THROWS_AS(cache.put(4, rows_of({6, 7})), ShapeError);
  cache.keep(1, 5);
  CHECK(cache.data().to_vector<double>() == std::vector<double>{2, 3, 4, 5, 5});
  cache.keep(3, 5);
  CHECK(cache.data().to_vector<double>() == std::vector<double>{5, 5, 4, 5, 5});
  cache.keep(0, 3);
  CHECK(cache.data().to_vector<double>() == std::vector<double>{5, 5, 4, 5, 5});
}

TEST_CASE("row cache: a layer of several, and a copy where the rows of a state are shared") {
  State state;
  state.set("keys", Tensor::zeros({2, 1, 2, 1}, Dtype::f64));
  const void* const bytes = state.get("keys").raw_data();
  RowCache(state, "keys", 2).layer(1).put(1, rows_of({3}));
  CHECK(state.get("keys").raw_data() == bytes);
  CHECK(state.get("keys").to_vector<double>() == std::vector<double>{0, 0, 0, 3});
  const State kept = state;
  RowCache(state, "keys", 2).layer(0).put(0, rows_of({7}));
  CHECK(state.get("keys").to_vector<double>() == std::vector<double>{7, 0, 0, 3});
  CHECK(kept.get("keys").to_vector<double>() == std::vector<double>{0, 0, 0, 3});
}
