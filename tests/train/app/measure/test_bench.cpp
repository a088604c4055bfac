// The benchmarks measure something: numbers are finite, tables and JSON hold them, parts add up. How fast
// anything is depends on the machine and is not tested.
#include "train/app/measure/bench.h"

#include <doctest/doctest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "autograd/node.h"
#include "autograd/scope.h"
#include "autograd/tape.h"
#include "ops/attention/attention.h"
#include "ops/cost/kernel_costs.h"
#include "ops/cost/kernel_observer.h"
#include "ops/cost/recorded_calls.h"
#include "ops/pointwise/pointwise.h"
#include "ops/product/matmul.h"
#include "ops/product/product.h"
#include "tensor/base/error.h"
#include "tensor/memory/memory_limit.h"
#include "tests/support/tiny_bench.h"
#include "train/app/measure/ceilings.h"
#include "train/app/measure/ops.h"
#include "train/app/measure/profile.h"
#include "train/app/measure/step.h"
#include "train/app/measure/step_trial.h"
#include "train/plan/memory.h"

using namespace eddy;
using namespace eddy::training;
using namespace eddy::app;
using namespace eddy::test;

namespace {

Ceilings quick_ceilings() {
  CeilingSizes sizes;
  sizes.product = 64;
  sizes.bytes_per_thread = {1 << 12};
  sizes.bytes = {1 << 16};
  return measure_ceilings(0, sizes);
}

bool positive(double value) {
  return std::isfinite(value) && value > 0;
}

}  // namespace

TEST_CASE("a timing holds the best and the middle of the runs") {
  const Timing timing = timing_of({4, 1, 3, 2, 9});
  CHECK(timing.best == 1);
  CHECK(timing.median == 3);
  CHECK(timing.runs == 5);
  CHECK_THROWS_WITH_AS(timing_of({}), doctest::Contains("nothing was measured"), ValueError);
}

TEST_CASE("steps of a run are tried as the run takes them") {
  PlannedRun run;
  run.config.train.accumulate = 3;
  run.config.train.micro_batches = 2;
  run.config.train.recompute = "layer";
  run.config.train.capture = "off";
  run.carries_state = true;
  run.batch.tokens = Tensor::zeros({2, 5}, Dtype::i32);
  const StepTrialOptions options = steps_of_run(run);
  CHECK(options.batches.size() == 3);
  CHECK(options.sequence == 5);
  CHECK(options.micro_batches == 2);
  CHECK(options.recompute == Recompute::layer);
  CHECK(options.carry_state);
  CHECK_FALSE(options.capture);
}

TEST_CASE("measure runs once before it counts and then as often as requested") {
  int runs = 0;
  const Timing timing = measure([&runs] { ++runs; }, 0, 4);
  CHECK(runs == 5);
  CHECK(timing.runs == 4);
  CHECK(positive(timing.best));
}

TEST_CASE("table numbers keep three digits and show what was not measured") {
  CHECK(table_number(0.01234) == "0.0123");
  CHECK(table_number(1.234) == "1.23");
  CHECK(table_number(12.34) == "12.3");
  CHECK(table_number(1234.4) == "1234");
  CHECK(table_number(0) == "0");
  CHECK(table_number(std::nan("")) == "-");
}

TEST_CASE("ceilings are positive and the roofline is the slower of the two limits") {
  const Ceilings measured = quick_ceilings();
  CHECK(measured.instruction.best > 0);
  CHECK((measured.rounded_instruction.best > 0) == (measured.rounded_product.best > 0));
  CHECK(positive(measured.product.best));
  CHECK(measured.product.best >= measured.product.median);
  CHECK(positive(measured.product_one_blas.best));
  REQUIRE(measured.memory.size() == 2);
  for (const Bandwidth& level : measured.memory) {
    CHECK(positive(level.copy.best));
    CHECK(positive(level.triad.best));
  }

  Ceilings known;
  known.product.best = 100;
  known.memory = {{1000, {50, 50}, {40, 40}}, {1000000, {10, 10}, {8, 8}}};
  CHECK(known.bandwidth_for(1000) == 50);
  CHECK(known.bandwidth_for(1001) == 10);
  CHECK(known.bandwidth_for(1e9) == 10);
  CHECK(known.least_seconds(1e9, 0) == doctest::Approx(0.01));
  CHECK(known.least_seconds(1e9, 1e9) == doctest::Approx(0.1));
  CHECK_THROWS_AS(ProductProbe(0), ValueError);
}

TEST_CASE("the benchmark of one op gives finite numbers for forward and backward") {
  OpsBenchOptions options;
  options.filter = "contiguous";
  options.seconds = 0;
  Measurement m;
  m.tables = {bench_op_rows(options, quick_ceilings())};
  const nlohmann::json rows = to_json(m)["ops"];
  REQUIRE(!rows.empty());
  for (const nlohmann::json& row : rows) {
    CAPTURE(row["op"]);
    CHECK(row["op"].get<std::string>().find("contiguous") != std::string::npos);
    CHECK(positive(row["forward_ms"]));
    CHECK(row["forward_median_ms"] >= row["forward_ms"]);
    CHECK(row["backward_ms"] >= 0);
    CHECK(positive(row["gbs"]));
    CHECK(positive(row["roofline_percent"]));
  }
  options.filter = "attention_head_scale";  // its products may round
  options.matmul = MatmulPrecision::bf16;
  m.tables = {bench_op_rows(options, quick_ceilings())};
  CHECK(positive(to_json(m)["ops"][0]["forward_ms"]));
  options.filter = "no such op";
  CHECK_THROWS_WITH_AS(bench_op_rows(options, quick_ceilings()), doctest::Contains("no such op"), ValueError);
}

TEST_CASE("the benchmark of ops says how far it is and leaves out what does not fit in the memory") {
  OpsBenchOptions options;
  options.filter = "softmax";
  options.seconds = 0;
  const auto ops = std::ssize(benched_ops("softmax"));
  std::vector<std::int64_t> told;
  options.progress = [&](std::int64_t done, std::int64_t total) {
    told.push_back(done);
    CHECK(total == ops);
  };
  const Ceilings ceilings = quick_ceilings();
  const MemoryLimit limit(allocator(kCpu), 24 << 20);  // holds the samples of all tests
  Measurement m;
  m.tables = {bench_op_rows(options, ceilings)};
  const nlohmann::json rows = to_json(m)["ops"];
  REQUIRE(rows.size() == told.size());
  CHECK(told.front() == 0);
  CHECK(told.back() == std::ssize(told) - 1);
  CHECK(rows[0]["refused"] == "its tensors do not fit in the memory there is");
}

TEST_CASE("what was measured is written as text and JSON and a page alike") {
  Measurement m;
  m.bench = "example";
  m.title = "An example <&>";
  m.conditions = "one thread";
  m.facts = {{"threads", 1}};
  MeasuredTable& rows = m.tables.emplace_back();
  rows.key = "some.rows";
  rows.columns = {{"op", "op"}, {"ms.best", "ms"}, {"", "GB/s"}, {"bytes", ""}};
  rows.add({"norm", std::nan(""), 2.5, bytes_cell(2048)});
  rows.notes = {"a note"};
  MeasuredTable& lengths = m.tables.emplace_back();
  lengths.key = "series";
  lengths.names = "model";
  lengths.columns = {{"length", "tokens"}, {"ms", "ms"}};
  lengths.series = {{"regular", {{"layers", 2}}, {{std::int64_t{1000}, 0.5}, {std::int64_t{2000}, 1.5}}}};
  lengths.plots = {{"Time of a step", "ms", 1}};
  CHECK(to_text(m) ==
        "one thread\nop    ms  GB/s\nnorm   -  2.50\na note\n\nmodel    tokens      ms\n"
        "regular   1 000  0.5000\nregular   2 000    1.50\n");
  const nlohmann::json json = nlohmann::json::parse(to_json(m).dump());
  CHECK(json["bench"] == "example");
  CHECK(json["threads"] == 1);
  CHECK(!json["environment"].empty());
  CHECK(json["some"]["rows"][0]["op"] == "norm");
  CHECK(json["some"]["rows"][0]["ms"]["best"].is_null());
  CHECK(json["some"]["rows"][0]["bytes"] == 2048);
  CHECK(json["series"][0]["layers"] == 2);
  CHECK(json["series"][0]["points"][1]["length"] == 2000);
  m.details_title = "in full";
  m.details = {{"norm", "all of it"}};
  const std::string page = to_html(m);
  for (const char* part : {"An example &lt;&amp;&gt;", "<svg", "Time of a step", "a note", "regular",
                           "<summary>in full", "all of it", "Machine"})
    CHECK_MESSAGE(page.find(part) != std::string::npos, part);
  m.of_this_machine = false;
  CHECK(to_html(m).find("Machine") == std::string::npos);
  m.tables.front().listed = true;
  CHECK(to_text(m.tables.front()) == "op    ms  GB/s\nnorm   -  2.50\n\n- a note\n");
  MeasuredTable bare;
  bare.add({"a row without a head"});
  m.tables = {bare};
  CHECK(to_html(m).find("<tbody>\n<tr><td>a row without a head</td></tr>") != std::string::npos);
}

TEST_CASE("host cost and optimizer are measured per op and per parameter") {
  OpsBenchOptions options;
  options.seconds = 0;
  options.host_ops = 8;
  options.optimizer_parameters = 1000;
  const nlohmann::json host = bench_host_cost(options), optimizer = bench_optimizer(options);
  for (const char* cost : {"forward", "recorded", "backward"}) CHECK(positive(host[cost]));
  for (const char* rate : {"adamw_ms", "adamw_ns_per_parameter", "norm_gbs"})
    CHECK(positive(optimizer[rate]));
  options.host_ops = 0;
  CHECK_THROWS_AS(bench_host_cost(options), ValueError);
}

TEST_CASE("the benchmark of a step counts tokens and operations and leaves no graph") {
  const GraphStats before = graph_stats();
  const StepBench bench = bench_step(tiny_step());
  CHECK(graph_stats().nodes == before.nodes);
  CHECK(bench.step.runs == 3);
  CHECK(bench.sequence == 8);
  CHECK(positive(bench.step.best));
  CHECK(positive(bench.product.best));
  CHECK(positive(bench.floor_median()));
  CHECK(std::isfinite(bench.loss));
  CHECK(bench.graph_nodes > 0);
  CHECK(bench.saved_bytes > 0);
  CHECK(bench.peak_bytes > bench.saved_bytes);
  // q, k, v and the output 4 D^2, the MLP 8 D^2, (time + 1) D pairs, the head V D; twice three times each.
  CHECK(bench.flops_per_token == doctest::Approx(6.0 * (12 * 16 * 16 + 9 * 16 + 11 * 16)));
  CHECK(bench.by_op.empty());
  const nlohmann::json parsed = nlohmann::json::parse(to_json(measurement_of(bench)).dump());
  CHECK(parsed["steps"] == 3);
  CHECK(positive(parsed["floor_percent"]["best"].get<double>()));
  CHECK(to_text(measurement_of(bench)).find("tokens per second") != std::string::npos);
}

TEST_CASE("the benchmark of a step shows what recomputing saves") {
  StepBenchOptions options = tiny_step();
  const StepBench kept = bench_step(options);
  options.recompute = Recompute::layer;
  const StepBench again = bench_step(options);
  CHECK(again.loss == kept.loss);
  CHECK(again.saved_bytes < kept.saved_bytes);
  CHECK(to_text(measurement_of(again)).find("layer recomputed") != std::string::npos);
  options.recompute = Recompute::block;
  CHECK_THROWS_AS(bench_step(options), ConfigError);
}

TEST_CASE("a profiled step names ops and modules and its parts add up to the step") {
  StepBenchOptions options = tiny_step();
  options.profile = true;
  const StepBench bench = bench_step(options);
  const auto find = [](const std::vector<ProfileRow>& rows, const std::string& name) -> const ProfileRow* {
    for (const ProfileRow& row : rows)
      if (row.name == name) return &row;
    return nullptr;
  };
  const ProfileRow* linear = find(bench.by_op, "linear");
  REQUIRE(linear != nullptr);
  CHECK(linear->calls > 0);
  CHECK(positive(linear->forward));
  CHECK(positive(linear->backward));
  CHECK(find(bench.by_module, "head") != nullptr);
  CHECK(find(bench.by_op, "(clip and optimizer)") != nullptr);
  double by_op = 0, by_module = 0;
  for (const ProfileRow& row : bench.by_op) by_op += row.total();
  for (const ProfileRow& row : bench.by_module) by_module += row.total();
  CHECK(by_op == doctest::Approx(by_module));
  CHECK(bench.profiled_steps == 3);
  CHECK(by_op >= 0.5 * 3 * bench.step.best);
  CHECK(to_json(measurement_of(bench))["by_op"].size() == bench.by_op.size());

  // What the ops multiply is what the step multiplies: the model's own count, by op and by module.
  double by_op_flops = 0, by_module_flops = 0;
  for (const ProfileRow& row : bench.by_op) {
    by_op_flops += row.flops;
    CHECK(row.kernels <= row.total() * (1 + 1e-9));
    CHECK(row.floor >= 0);
  }
  for (const ProfileRow& row : bench.by_module) by_module_flops += row.flops;
  CHECK(by_op_flops == doctest::Approx(3 * bench.flops_per_token * bench.tokens()));
  CHECK(by_module_flops == doctest::Approx(by_op_flops));
  CHECK(linear->bytes > 0);
  CHECK(linear->kernels > 0);
}

TEST_CASE("a profiled step's products and its attention are timed alone and are all that it multiplies") {
  StepBenchOptions options = tiny_step();
  CHECK(bench_step(options).alone.products.calls == 0);
  options.profile = true;
  const StepBench bench = bench_step(options);
  const StepAlone& alone = bench.alone;
  CHECK(alone.problem == "");
  // Forward the products of q, k and v, of wo, up, down and the head, and again for both gradients of each.
  CHECK(alone.products.calls >= 15);
  CHECK(alone.attention.calls == 2);
  CHECK(alone.products.flops + alone.attention.flops ==
        doctest::Approx(bench.flops_per_token * bench.tokens()));
  CHECK(alone.other_flops == 0);
  for (const CallsAlone* part : {&alone.products, &alone.attention}) {
    CHECK(part->time.runs >= 3);
    CHECK(positive(part->time.median));
    CHECK(positive(bench.floor_median(*part)));
  }
  const nlohmann::json facts = measurement_of(bench).facts;
  CHECK(facts["products_ms"]["calls"] == alone.products.calls);
  CHECK(facts["attention_ms"]["median"].get<double>() > 0);

  // The CPU's loop of a recurrence multiplies by itself.
  options.model.model = "unit_forget";
  options.model.positions = false;
  CHECK(bench_step(options).alone.other_flops > 0);
}

TEST_CASE("recorded calls run again in memory of their own") {
  const Tensor a = Tensor::full({3, 5, 7}, 2), b = Tensor::full({3, 7, 4}, 3), bias = Tensor::full({4}, 1);
  const Tensor product = Tensor::zeros({3, 5, 4}), sum = Tensor::full({7, 4}, 1);
  const Tensor q = Tensor::full({2, 6, 3, 8}, 0.5);
  std::vector<RecordedCall> calls;
  Tensor mixed;
  {
    RecordCalls record(kCpu);
    detail::multiply_into(product, a, b, 0);
    detail::multiply_into(sum, raw::transpose(raw::select(a, 0, 0), 0, 1), raw::select(product, 0, 0), 1);
    AttentionOptions options;
    options.causal = true;
    mixed = attention_bthd(q, q, q, options);
    calls = record.take();
    static_cast<void>(matmul(a, b));
    CHECK(record.take().size() == 1);
  }
  static_cast<void>(matmul(a, b));  // not recorded: a call would be lost without its recorder
  REQUIRE(calls.size() == 3);
  CHECK(is_product(calls[1]));
  CHECK(!is_product(calls[2]));
  CHECK(cost_of(calls[0]).flops == 2 * 3 * 5 * 7 * 4);
  const std::vector<float> before = {product.data<float>()[0], sum.data<float>()[0], mixed.data<float>()[0]};
  CHECK(before[0] == 42);
  const RepeatedCalls repeated(calls, kCpu);
  for (int i = 0; i < 3; ++i) repeated.run();
  CHECK(before == std::vector{product.data<float>()[0], sum.data<float>()[0], mixed.data<float>()[0]});
  CHECK_NOTHROW(RepeatedCalls({}, kCpu).run());
}

TEST_CASE("the profiled steps of every recurrence multiply what the model counts") {
  struct Case {
    const char *family, *model;
    double least, most;  // of the count: what the model leaves out or a kernel pads
  };
  for (const Case& of :
       {Case{"recurrent_transformer", "unit_forget", 0.9, 1.1},
        Case{"recurrent_transformer", "block_forget", 0.8, 1.2}, Case{"block_recurrent", "slide", 0.8, 1.2},
        Case{"blockwise_recurrent", "memory_llama", 0.8, 1.2}, Case{"staircase", "staircase", 0.8, 1.2}}) {
    CAPTURE(of.model);
    StepBenchOptions options = tiny_step();
    ModelConfig& m = options.model;
    m.family = of.family;
    m.model = of.model;
    m.positions = false;
    m.dim = 32;
    m.heads = 2;
    m.layers = 2;
    m.block = m.chunk = m.window = 4;
    m.segment = m.context = 16;
    options.steps = 1;
    options.profile = true;
    const StepBench bench = bench_step(options);
    double flops = 0;
    for (const ProfileRow& row : bench.by_op) flops += row.flops;
    const double counted = bench.flops_per_token * bench.tokens();
    CAPTURE(flops / counted);
    CHECK(flops >= of.least * counted);
    CHECK(flops <= of.most * counted);
  }
}

TEST_CASE("kernels are watched on one thread and one device and are themselves again afterwards") {
  struct Seen : KernelObserver {
    int begun = 0;
    std::vector<std::string> names;
    double bytes = 0;
    void kernel_begins() override { ++begun; }
    void kernel_done(const char* name, const Cost& cost) override {
      names.emplace_back(name);
      bytes += cost.bytes;
    }
  } seen;
  const Tensor x = Tensor::full({4}, 0.5);
  const Tensor wide = Tensor::full({4}, 0.5, Dtype::f64);
  static_cast<void>(exp(x));
  {
    const ObserveKernels watching(seen, kCpu);
    static_cast<void>(exp(x));
    static_cast<void>(exp(wide));
  }
  static_cast<void>(exp(x));
  CHECK(seen.begun == 2);
  CHECK(seen.names.size() == 2);
  CHECK(seen.bytes == 2 * 4 * 4 + 2 * 4 * 8);
}

TEST_CASE("attention costs nothing for the gradient of a past that nobody wants") {
  float place = 0;
  detail::AttentionBackwardArgs args{};
  args.dtype = args.forward.dtype = Dtype::f32;
  args.forward.batch = args.forward.heads = args.forward.kv_heads = 1;
  args.forward.head_size = 8;
  args.forward.queries = 4;
  args.forward.keys = 6;
  args.forward.most = 5;
  const Cost joined = [&] {
    detail::AttentionBackwardArgs all = args;
    all.past_dk = all.past_dv = &place;
    return work::cost_of(all);
  }();
  args.forward.past = 2;
  // Every query sees both keys of the past: two products of 4 x 2 pairs, and 2 rows of dk and dv.
  const Cost unwanted = work::cost_of(args);
  CHECK(joined.flops - unwanted.flops == 2 * 2 * 4 * 2 * 8);
  CHECK(joined.bytes - unwanted.bytes == 2 * 2 * 8 * 4);
  args.past_dk = args.past_dv = &place;
  CHECK(work::cost_of(args).flops == joined.flops);
  CHECK(work::cost_of(args).bytes == joined.bytes);
}

TEST_CASE("modules of all layers are one row where layers are left out") {
  std::vector<ProfileRow> rows(3);
  rows[0].name = "layers.0.mlp";
  rows[1].name = "layers.11.mlp";
  rows[2].name = "head2";
  rows[0].forward = rows[1].forward = 1;
  rows[0].flops = rows[1].flops = 5;
  const std::vector<ProfileRow> joined = over_layers(rows);
  REQUIRE(joined.size() == 2);
  CHECK(joined[0].name == "layers.*.mlp");
  CHECK(joined[0].forward == 2);
  CHECK(joined[0].flops == 10);
  CHECK(joined[1].name == "head2");
}

TEST_CASE("a step benchmark refuses sizes that make no step") {
  StepBenchOptions options = tiny_step();
  options.batch = 0;
  CHECK_THROWS_WITH_AS(bench_step(options), doctest::Contains("batch 0"), ValueError);
}

TEST_CASE("an observer of the tape sees each op forward and backward and nothing after its guard") {
  struct Seen : TapeObserver {
    std::vector<std::string> events;
    void forward_done(const char* op, const Scope* scope) override {
      events.push_back(std::string("forward ") + op + " in " + scope->path);
    }
    void backward_done(const Node& node) override { events.push_back(std::string("backward ") + node.op); }
  } seen;
  const Tensor x = Tensor::full({2}, 0.5);
  require_grad(x);
  {
    const ObserveTape watching(seen);
    const ScopeGuard scope("watched");
    const Tensor y = mul(exp(x), x);
    backward(y, Tensor::full({2}, 1.0));
  }
  static_cast<void>(exp(x));
  CHECK(seen.events == std::vector<std::string>{"forward exp in watched", "forward mul in watched",
                                                "backward mul", "backward exp"});
}
