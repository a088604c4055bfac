// The memory counted for a run against that of the same run, and the advice where it is not there.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "models/eddy/registry.h"
#include "models/optimizer/optimizer.h"
#include "tensor/base/format.h"
#include "tensor/memory/allocator.h"
#include "tests/support/errors.h"
#include "tests/support/threads.h"
#include "train/plan/machine_memory.h"
#include "train/plan/memory_verdict.h"
#include "train/step/train_step.h"
#include "train/words/human_text.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

constexpr std::int64_t kRows = 3, kTime = 64;

// A run of a small model whose other sizes follow from it.
PlannedRun small_run(const ModelName& name, std::int64_t vocab = 37) {
  PlannedRun run;
  ModelConfig& model = run.config.model;
  model.family = name.family;
  model.model = name.model;
  model.vocab = vocab;
  model.context = kTime;
  model.dim = 48;
  model.heads = 2;
  model.dropout = 0.1;
  choose_sizes(model, {"vocab", "context", "dim", "heads", "dropout"});
  const std::vector<std::int32_t> ids(static_cast<std::size_t>(kRows * kTime), 1);
  run.batch = make_batch(kRows, ids, ids);
  run.config.train.batch = kRows;
  run.config.train.eval_every = 0;
  run.carries_state = carries_state(model);
  return run;
}

// The most bytes that are live in the CPU's allocator while the run's first steps are computed.
std::int64_t measured_peak(const PlannedRun& run) {
  Allocator& memory = allocator(kCpu);
  const std::int64_t before = memory.stats().live_bytes;
  memory.reset_peak();
  const std::unique_ptr<Model> model = make_model(run.config.model, run.placement.dtype);
  model->params().initialize(1);
  const std::unique_ptr<Optimizer> optimizer = make_optimizer(model->params(), run.config.train);
  CarriedState carried;
  StepOptions options;
  options.carry_state = run.carries_state;
  options.recompute = recompute_named(run.config.train.recompute);
  for (options.step = 0; options.step < 3; ++options.step) {
    const StepResult result =
        train_step(*model, *optimizer,
                   std::vector<Batch>(static_cast<std::size_t>(run.config.train.accumulate), run.batch),
                   carried, options);
    REQUIRE(result.finite);
  }
  return memory.stats().peak_bytes - before;
}

// Counts and measures a run. Small tensors of the host are not counted, and neither is `inside`, the working memory of
// kernels.
void check_counted(const PlannedRun& run, std::int64_t inside = 0) {
  const MemoryPlan plan = plan_memory(run);
  const std::int64_t counted = plan.of_model() + plan.state + plan.activations, measured = measured_peak(run);
  const auto bound = measured / 50 + (std::int64_t{32} << 10) + inside;
  CHECK_MESSAGE(!(std::abs(counted - measured) > bound),
                fmt::format("{}: counted {}, measured {}", run.config.model.model, counted, measured));
}

MemoryVerdict judged(const PlannedRun& run, std::int64_t bytes) {
  return judge(run, plan_memory(run), {bytes, bytes, "this machine"});
}

}  // namespace

TEST_CASE("a run of many layers is planned from a few, since each adds the same") {
  PlannedRun run = small_run({"staircase", "lstm"});
  const std::vector<std::int32_t> ids(8, 1);
  run.batch = make_batch(1, ids, ids);
  run.config.train.batch = 1;
  run.config.model.layers = 256;
  const MemoryPlan counted = plan_memory(run);
  REQUIRE(counted.counted_layers == 0);
  run.config.model.layers = 512;
  const MemoryPlan extended = plan_memory(run);
  CHECK(extended.counted_layers > 0);
  CHECK(extended.parameters == count_parameters(run.config.model).count());
  const auto doubled = [](std::int64_t many, std::int64_t few) {
    const double ratio = static_cast<double>(many) / static_cast<double>(few);
    CAPTURE(ratio);
    CHECK(ratio > 1.9);
    CHECK(ratio < 2.1);
  };
  doubled(extended.of_model(), counted.of_model());
  doubled(extended.activations, counted.activations);
  // Which freed blocks are kept follows from the kernels of the processor, and grows in steps.
  const auto of_tensors = [](const MemoryPlan& plan) {
    return plan.of_model() + plan.activations + plan.kept;
  };
  doubled(of_tensors(extended), of_tensors(counted));
  CHECK(extended.peak >= extended.of_model() + extended.activations);

  // A hopeless size has an answer in as short a time, and one whose keys name a far layer is counted whole.
  run.config.model.layers = 65'536;
  CHECK(plan_memory(run).peak > 64 * extended.activations);
  PlannedRun named = small_run({"block_recurrent", "block_recurrent"});
  named.batch = run.batch;
  named.config.train.batch = 1;
  named.config.model.layers = 257;
  named.config.model.window = 8;
  named.config.model.recurrent_layers = {200};
  CHECK(plan_memory(named).counted_layers == 0);
}

TEST_CASE(
    "long rows that are read token by token are planned from their beginnings, since each token adds the same") {
  const auto long_run = [](const ModelName& name, std::int64_t tokens) {
    PlannedRun run = small_run(name);
    run.config.model.layers = 1;
    run.config.model.context = run.config.model.segment = tokens;
    const std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens), 1);
    run.batch = make_batch(1, ids, ids);
    run.config.train.batch = 1;
    return run;
  };
  const Threads threads(2);
  const PlannedRun run = long_run({"staircase", "lstm"}, 9000);
  check_counted(run);
  const MemoryPlan part = plan_memory(run);
  CHECK(part.counted_tokens == 4500);
  CHECK(plan_memory(long_run({"staircase", "lstm"}, 8192)).counted_tokens == 0);
  CHECK(plan_memory(long_run({"staircase", "feedback"}, 9000)).counted_tokens > 0);
  // Attention over the whole row grows with its square.
  CHECK(plan_memory(long_run({"recurrent_transformer", "regular"}, 9000)).counted_tokens == 0);
  // More tokens take as short a time, and memory in proportion, the nodes of the tape too.
  const MemoryPlan whole = plan_memory(long_run({"staircase", "lstm"}, 400'000));
  CHECK(whole.of_model() == part.of_model());
  const double times = static_cast<double>(whole.activations) / static_cast<double>(part.activations);
  CAPTURE(times);
  CHECK(times > 40);
  CHECK(times < 48);
  // Nodes are counted by the resident memory, where the system tells it.
  if (resident_bytes() > 0) CHECK(whole.program > std::int64_t{400'000} * 2000);
}

TEST_CASE("memory plan: the counted peak of every model is that of the CPU's allocator") {
  const Threads threads(2);
  for (const ModelEntry& entry : model_registry()) check_counted(small_run(entry));
}

TEST_CASE("memory plan: it counts accumulated batches and factored moments and large vocabularies and bf16") {
  const Threads threads(2);
  for (const std::string& family : family_list()) {
    const ModelEntry& main = main_model(family);
    PlannedRun run = small_run(main);
    run.config.train.accumulate = 2;
    check_counted(run);
    run = small_run(main);
    run.config.train.optimizer = "adafactor";
    check_counted(run);
    check_counted(small_run(main, 5000), 48 * 5000 * 4);  // a product may turn the classifier's weight
    run = small_run(main);
    run.placement.dtype = Dtype::bf16;
    check_counted(run);
  }
}

TEST_CASE("memory plan: it counts activations that are computed again, and that is less") {
  const Threads threads(2);
  for (const char* const name :
       {"regular", "block_forget", "block_recurrent", "memory_llama", "staircase", "lstm"})
    for (const ModelEntry& entry : model_registry()) {
      if (entry.model != std::string(name)) continue;
      PlannedRun run = small_run(entry);
      run.config.model.layers = 4;
      const std::int64_t kept = plan_memory(run).activations;
      for (const char* const value : {"layer", "block"}) {
        CAPTURE(value);
        if (value == std::string("block") && !make_unallocated_model(run.config.model)->has_blocks())
          continue;
        run.config.train.recompute = value;
        check_counted(run);
        CHECK_MESSAGE(plan_memory(run).activations < kept, name);
      }
    }
}

TEST_CASE("memory plan: it counts the smaller batch that ends an evaluation, and the parts of its batches") {
  constexpr std::int64_t kMiB = std::int64_t{1} << 20, kBatch = 16, kLong = 256;
  PlannedRun run = small_run(main_model("recurrent_transformer"));
  run.config.model.dim = 128;
  run.config.model.context = kLong;
  run.config.train.batch = kBatch;
  run.config.train.eval_every = 1;
  const std::vector<std::int32_t> ids(static_cast<std::size_t>(kBatch * kLong), 1);
  run.batch = make_batch(kBatch, ids, ids);
  const auto kept = [&](std::int64_t parts, std::int64_t rows) {
    run.config.train.micro_batches = parts;
    run.validation_rows = rows;
    return plan_memory(run).kept;
  };
  const std::int64_t full = kept(1, 0);
  CHECK(kept(1, kBatch) == full);
  CHECK(kept(1, 5 * kBatch) == full);
  // The blocks of 15 rows have other sizes than those of 16.
  CHECK(kept(1, 5 * kBatch + 15) > full + 16 * kMiB);
  // 12 rows are evaluated in four parts, and 15 rows at once.
  CHECK(kept(4, 5 * kBatch + 15) > kept(4, 5 * kBatch + 12) + 16 * kMiB);
}

TEST_CASE("memory plan: it takes no memory of tensors and leaves none behind") {
  Allocator& memory = allocator(kCpu);
  const AllocatorStats before = memory.stats();
  const PlannedRun run = small_run(main_model("recurrent_transformer"));
  const std::int64_t of_batch = memory.stats().live_bytes;
  memory.reset_peak();
  const MemoryPlan first = plan_memory(run), again = plan_memory(run);
  CHECK(memory.stats().live_bytes == of_batch);
  CHECK(memory.stats().peak_bytes - of_batch < std::int64_t{64} << 10);
  CHECK(first.activations == again.activations);
  CHECK(first.kept == again.kept);
  CHECK(before.live_bytes <= of_batch);
}

TEST_CASE("memory plan: counting ends at its limit, and a run beyond it exceeds the budget") {
  PlannedRun run = small_run(main_model("recurrent_transformer"));
  run.config.model.dim = 2048;
  const MemoryPlan whole = plan_memory(run);
  REQUIRE(whole.complete);
  const std::int64_t counted = whole.of_model() + whole.state + whole.activations;
  CHECK(plan_memory(run, 2 * counted).complete);
  for (const std::int64_t most : {whole.values / 2, (whole.of_model() + counted) / 2}) {
    CAPTURE(most);
    const MemoryPlan part = plan_memory(run, most);
    CHECK_FALSE(part.complete);
    CHECK(part.peak == most);
    CHECK(part.parameters == whole.parameters);
    const MemoryVerdict verdict = judge(run, part, {most / 4, most / 4, "this machine"});
    CHECK(verdict.fit == Fit::exceeds);
    CHECK_MESSAGE(contains(verdict.text, "the run takes more than " + human_bytes(most)), verdict.text);
  }
  CHECK(plan_memory(run).activations == whole.activations);  // without a limit again
  run.advice = "a smaller --batch";
  CHECK(
      contains(judged(run, whole.peak / 2).text, "; a smaller --batch; --memory-check warn overrules this)"));
}

TEST_CASE("memory plan: a run fits and comes close and exceeds by tenths of the budget") {
  const PlannedRun run = small_run(main_model("block_recurrent"));
  const MemoryPlan plan = plan_memory(run);
  const auto fit = [&](double part) {
    const auto budget = static_cast<std::int64_t>(static_cast<double>(plan.peak) / part);
    return judge(run, plan, {budget, budget, "this machine"}).fit;
  };
  CHECK(fit(0.8) == Fit::fits);
  CHECK(fit(0.95) == Fit::close);
  CHECK(fit(1.05) == Fit::close);
  CHECK(fit(1.2) == Fit::exceeds);
  CHECK(judge(run, plan, {}).fit == Fit::fits);
}

TEST_CASE("memory plan: free swap or train.memory_check turns a refusal into a warning") {
  PlannedRun run = small_run(main_model("block_recurrent"));
  const MemoryPlan plan = plan_memory(run);
  const std::int64_t half = plan.peak / 2;
  const MemoryVerdict refused = judge(run, plan, {half, half, "this machine"});
  CHECK(refused.fit == Fit::exceeds);
  CHECK_MESSAGE(contains(refused.text, "; train.memory_check warn overrules this)"), refused.text);
  const MemoryVerdict swapped = judge(run, plan, {half, half, "this machine", plan.peak});
  CHECK(swapped.fit == Fit::close);
  CHECK_MESSAGE(contains(swapped.text, " of free swap, which makes it slow ("), swapped.text);
  CHECK_MESSAGE(!contains(swapped.text, "overrules"), swapped.text);
  const MemoryVerdict little = judge(run, plan, {half, half, "this machine", half / 4});
  CHECK(little.fit == Fit::exceeds);
  CHECK_MESSAGE(contains(little.text, " of free swap ("), little.text);
  run.config.train.memory_check = "warn";
  const MemoryVerdict warned = judge(run, plan, {half, half, "this machine"});
  CHECK(warned.fit == Fit::close);
  CHECK_MESSAGE(!contains(warned.text, "overrules"), warned.text);
}

TEST_CASE("memory plan: the advice fits the cause") {
  PlannedRun run = small_run(main_model("recurrent_transformer"));
  const MemoryPlan plan = plan_memory(run);
  const std::int64_t fixed = plan.program + plan.text + plan.of_model();

  SUBCASE("a model whose parameters alone are too large") {
    run.config.model.dim = 2048;
    const MemoryPlan large = plan_memory(run);
    const std::string text = judged(run, large.program + large.of_model() / 2).text;
    CHECK_MESSAGE(contains(text, "the model alone is too large"), text);
    CHECK_MESSAGE(contains(text, "model.dim"), text);
    CHECK_MESSAGE(contains(text, "train.optimizer adafactor takes"), text);
    CHECK_MESSAGE(!contains(text, "train.batch"), text);
  }
  SUBCASE("tables of a large vocabulary") {
    PlannedRun wide = small_run(main_model("recurrent_transformer"), 400'000);
    const MemoryPlan large = plan_memory(wide);
    const std::string text = judged(wide, large.program + large.of_model() / 2).text;
    CHECK_MESSAGE(contains(text, "data.tokenizer"), text);
  }
  SUBCASE("a text that is too large") {
    run.text = std::int64_t{40} << 30;
    const std::string text = judged(run, std::int64_t{20} << 30).text;
    CHECK_MESSAGE(contains(text, "a smaller text"), text);
    CHECK_MESSAGE(!contains(text, "model.dim"), text);
  }
  SUBCASE("steps that are too large") {
    const std::vector<std::int32_t> ids(static_cast<std::size_t>(4096 * kTime), 1);
    run.batch = make_batch(4096, ids, ids);
    run.config.train.batch = 4096;
    const std::int64_t budget = (plan_memory(run).peak + fixed) / 2;
    const std::string text = judged(run, budget).text;
    CHECK_MESSAGE(contains(text, "with train.accumulate"), text);
    CHECK_MESSAGE(contains(text, "for steps of as many tokens"), text);
    CHECK_MESSAGE(!contains(text, "model.dim"), text);
  }
}

TEST_CASE("memory plan: the advice names no key that the model or the task does not read") {
  RunConfig defaults;
  const ConfigKeys keys = keys_of(defaults);
  for (const ModelEntry& entry : model_registry()) {
    const PlannedRun run = small_run(entry);
    const MemoryPlan plan = plan_memory(run);
    for (const std::int64_t budget : {plan.peak / 2, plan.program + plan.text + plan.of_model() / 2,
                                      plan.program + plan.text + plan.of_model() + plan.activations / 8}) {
      const std::string text = judged(run, budget).text;
      for (std::size_t at = text.find("model."); at != std::string::npos; at = text.find("model.", at + 1)) {
        const std::string key = text.substr(at, text.find_first_of(" ,;)", at) - at);
        const auto field = std::find_if(keys.fields().begin(), keys.fields().end(),
                                        [&](const ConfigField& f) { return f.full_key() == key; });
        REQUIRE_MESSAGE(field != keys.fields().end(), text);
        CHECK_MESSAGE(field->is_read_by(entry.family, entry.model), entry.model, ": ", text);
      }
    }
  }
}
