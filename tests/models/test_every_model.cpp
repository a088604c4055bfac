// What every registered model keeps, in every small configuration that the families list: no look ahead,
// streams and calls in a row that give the numbers of one call, equations word for word that give those of
// the fast form, gradients that are slopes of the loss, dumps and files that give back what the
// model computes. Oracles, closed forms and error texts stand in the folders of the families.
#include <doctest/doctest.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "models/weights.h"
#include "ops/views/views.h"
#include "tensor/base/error.h"
#include "tensor/files/safetensors.h"
#include "tests/models/every_model.h"
#include "tests/support/files.h"
#include "train/app/exchange/dump.h"
#include "train/config/config.h"
#include "train/config/run_config.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::app;
using namespace eddy::test;
namespace fs = std::filesystem;
using TensorMap = std::map<std::string, Tensor>;

// The logits of `tokens` in calls of the given lengths, over and over.
Tensor streamed(const Model& model, const Tensor& tokens, State& state,
                const std::vector<std::int64_t>& lengths) {
  std::vector<Tensor> parts;
  for (std::int64_t at = 0, turn = 0; at < tokens.dim(1); ++turn) {
    const std::int64_t length =
        std::min(lengths[static_cast<std::size_t>(turn) % lengths.size()], tokens.dim(1) - at);
    parts.push_back(model.stream(part(tokens, at, length), state));
    at += length;
  }
  const NoGrad no_grad;
  return concat(parts, 1);
}

// What a stream must answer at the positions that `forward` gives logits for. block_accumulate answers each
// position as if the sequence ended there: what comes later in a block changes the outputs before it.
Tensor stream_answers(const Model& model, const Tensor& tokens) {
  if (model.config().model != "block_accumulate") return forwarded(model, tokens).logits;
  std::vector<Tensor> answers;
  for (std::int64_t t = tokens.dim(1) - rows_of(model.full_config(), tokens.dim(1)); t < tokens.dim(1); ++t) {
    const Tensor logits = forwarded(model, part(tokens, 0, t + 1)).logits;
    answers.push_back(raw::copy(raw::narrow(logits, 1, logits.dim(1) - 1, 1)));
  }
  const NoGrad no_grad;
  return concat(answers, 1);
}

// In memory where the system has a place for that: to wait for the disk would take longer than all else.
fs::path temporary(const char* name) {
  const fs::path in_memory = "/dev/shm";
  return (fs::is_directory(in_memory) ? in_memory : fs::temp_directory_path()) /
         ("eddy-every-model-" + std::to_string(getpid()) + "-" + name);
}

void check_same_bits(const std::string& name, const Tensor& mine, const Tensor& expected) {
  check_close(name, mine, expected, 0, 0);
  CHECK_MESSAGE(same_bits(mine, expected), name);
}

}  // namespace

TEST_CASE("every model: each registered model has a summary and at least two cases") {
  const std::vector<ModelCase> cases = every_case();
  for (const ModelEntry& entry : model_registry()) {
    const auto is_it = [&](const ModelConfig& c) {
      return c.family == entry.family && c.model == entry.model;
    };
    CAPTURE(entry.family);
    CAPTURE(entry.model);
    CHECK(std::count_if(cases.begin(), cases.end(),
                        [&](const ModelCase& one) { return is_it(one.config); }) >= 2);
    CHECK(std::string(entry.summary) != "");
  }
  for (const ModelCase& one : cases) CHECK_NOTHROW(validate(one.config));
}

TEST_CASE("every model: each value of each switch stands in some case") {
  // Read by training alone.
  const std::set<std::string> elsewhere{"mask_token_zero"};
  std::map<std::string, std::set<std::string>> seen;
  for (const ModelCase& one : every_case()) {
    ModelConfig config = one.config;
    const ConfigKeys keys = keys_of(config);
    for (const ConfigField& field : keys.fields()) seen[field.key].insert(value_of(field).dump());
  }
  ModelConfig defaults;
  const ConfigKeys keys = keys_of(defaults);
  for (const ConfigField& field : keys.fields()) {
    CAPTURE(field.key);
    if (elsewhere.contains(field.key)) continue;
    for (const std::string& value : field.allowed) {
      CAPTURE(value);
      CHECK(seen[field.key].contains(nlohmann::json(value).dump()));
    }
    if (std::holds_alternative<bool*>(field.target)) CHECK(seen[field.key].size() == 2);
  }
}

TEST_CASE("every model: a changed token leaves every bit of the logits before it as it was") {
  for_every_case([](const ModelConfig& config, Model& model) {
    // Each row has another place whose token is changed, so a row that saw another row would show it too.
    const std::int64_t time = uneven_time(config), first = time - rows_of(config, time), batch = 8;
    const auto changed_place = [&](std::int64_t row) { return row * (time - 1) / (batch - 1); };
    const Tensor tokens = raw::copy(raw::expand(random_ids(1, time, config.vocab, 1), {batch, time})),
                 changed = raw::copy(tokens);
    for (std::int64_t row = 0; row < batch; ++row) {
      std::int64_t& id = changed.mutable_data<std::int64_t>()[row * time + changed_place(row)];
      id = (id + 1) % config.vocab;
    }
    const State state = carried_state(model, batch);
    for (const bool literal : {false, true}) {
      CAPTURE(literal);
      const NoGrad no_grad;
      ForwardInput input = input_for(config, tokens, state);
      input.literal = literal;
      const std::vector<double> before = numbers(model.forward(input).logits);
      input.tokens = changed;
      const std::vector<double> after = numbers(model.forward(input).logits);
      const auto width = static_cast<std::size_t>(model.config().n_out);
      for (std::int64_t row = 0; row < batch; ++row)
        for (std::int64_t place = first; place <= changed_place(row); ++place) {
          const std::size_t from = static_cast<std::size_t>(row * (time - first) + place - first) * width;
          double largest = 0;
          std::size_t worst = from;
          for (std::size_t i = from; i < from + width && !std::isnan(largest); ++i)
            if (!(std::abs(after[i] - before[i]) <= largest)) {
              largest = std::abs(after[i] - before[i]);
              worst = i;
            }
          const bool right = place < changed_place(row) ? before[worst] == after[worst] : largest > 1e-3;
          if (!right)
            FAIL_CHECK("the token at place " << changed_place(row) << " changed: logit " << worst - from
                                             << " of place " << place << " is " << exact(after[worst])
                                             << " and was " << exact(before[worst]));
        }
    }
  });
}

TEST_CASE("every model: a stream in any pieces gives the logits of the whole sequence") {
  for_every_case([](const ModelConfig& config, Model& model) {
    const bool carries = !carried_state(model, 1).empty();
    const std::int64_t time = carries ? 2 * call_time(config) : uneven_time(config);
    const Tensor tokens = random_ids(2, time, config.vocab, 5);
    const Tensor answers = stream_answers(model, tokens);
    const State after = forwarded(model, tokens).state;
    for (const std::vector<std::int64_t>& lengths :
         std::vector<std::vector<std::int64_t>>{{1}, {3, 1, 5}, {4}, {7, 25}, {1000}}) {
      CAPTURE(lengths[0]);
      State state;
      const Tensor logits = streamed(model, tokens, state, lengths);
      check_close("logits", part(logits, time - answers.dim(1), answers.dim(1)), answers, kOrder);
      const bool bounded = model.remaining_context(State()) != -1;
      CHECK(model.remaining_context(State()) == (bounded ? config.context : -1));
      CHECK(model.remaining_context(state) == (bounded ? config.context - time : -1));
      if (!carries) continue;
      const Tensor more = random_ids(2, call_time(config), config.vocab, 6);
      const ForwardOutput mine = forwarded(model, more, state), expected = forwarded(model, more, after);
      check_close("logits after the stream", mine.logits, expected.logits, kOrder);
      check_states(mine.state, expected.state, kOrder, kFloor);
    }
  });
}

TEST_CASE("every model: a token at the same place of a stream does the same to its state") {
  // Names, dtypes and shapes of a state, and its place.
  const auto layout_of = [](const Model& model, const State& state) {
    const std::vector<std::int64_t> place = *model.stream_signature(state);
    std::string text = fmt::format("place {}", fmt::join(place, " "));
    for (const auto& [name, tensor] : state)
      text += fmt::format(", {} {} {}", name, dtype_name(tensor.dtype()), to_string(tensor.shape()));
    return text;
  };
  for_every_case([&](const ModelConfig& config, Model& model) {
    State state;
    if (!model.stream_signature(state)) return;
    const std::int64_t time = 100;  // more than a state goes through before it is at some place again
    const Tensor tokens = random_ids(1, time, config.vocab, 31);
    std::map<std::string, std::string> after;
    for (std::int64_t t = 0; t < time; ++t) {
      CAPTURE(t);
      REQUIRE(model.stream_signature(state).has_value());
      const std::string before = layout_of(model, state);
      static_cast<void>(model.stream(part(tokens, t, 1), state));
      const auto [known, is_new] = after.emplace(before, layout_of(model, state));
      CHECK(known->second == layout_of(model, state));
    }
    CHECK(after.size() < static_cast<std::size_t>(time));
  });
}

TEST_CASE("every model: the state of a stream does not grow unless it has the keys of all tokens") {
  for_every_case([](const ModelConfig& config, Model& model) {
    State state;
    if (model.remaining_context(state) != -1 || config.model == "regular" || config.model == "llama") return;
    const std::int64_t settled = 64;  // more than any window here
    std::int64_t largest = 0;
    for (std::int64_t t = 0; t < 2 * settled; ++t) {
      static_cast<void>(model.stream(random_ids(1, 1, config.vocab, 30), state));
      if (t < settled) largest = std::max(largest, state.bytes());
      CHECK(state.bytes() <= largest);
    }
    static_cast<void>(model.stream(random_ids(1, 90, config.vocab, 30), state));
    CHECK(state.bytes() <= largest);
  });
}

TEST_CASE("every model: copies of a stream's state go on independently") {
  for_every_case([](const ModelConfig& config, Model& model) {
    const Tensor tokens = random_ids(1, 17, config.vocab, 25), other = random_ids(1, 9, config.vocab, 26);
    State straight;
    const Tensor expected = streamed(model, tokens, straight, {17});
    for (const std::int64_t stop : {3, 8}) {  // inside of a block or chunk, and mostly at the end of one
      CAPTURE(stop);
      State state;
      static_cast<void>(streamed(model, part(tokens, 0, stop), state, {stop}));
      const auto copied = [&] { return family_case(config).writes_state() ? copy_of(state) : state; };
      State first = copied(), second = copied();
      const Tensor rest = part(tokens, stop, 17 - stop), answers = part(expected, stop, 17 - stop);
      static_cast<void>(streamed(model, other, first, {2}));
      check_close("original", streamed(model, rest, state, {1}), answers, kOrder);
      check_close("copy", streamed(model, rest, second, {2}), answers, kOrder);
    }
  });
}

TEST_CASE("every model: calls that carry the state equal one call and streams fit between them") {
  for_every_case([](const ModelConfig& config, Model& model) {
    if (carried_state(model, 1).empty()) return;
    const std::int64_t call = call_time(config);
    const Tensor tokens = random_ids(2, 3 * call, config.vocab, 4);
    const ForwardOutput whole = forwarded(model, tokens);
    const bool depends_on_end = config.model == "block_accumulate";  // as stream_answers says
    State state;
    for (std::int64_t at = 0; at < 3 * call; at += call) {
      const ForwardOutput one = forwarded(model, part(tokens, at, call), state);
      const Tensor expected =
          depends_on_end ? forwarded(model, part(tokens, 0, at + call)).logits : whole.logits;
      check_close("call", one.logits, part(expected, at, call), kOrder);
      state = one.state;
    }
    check_states(state, whole.state, kOrder, kFloor);
    // A last call, or a last segment of a call, that is shorter.
    const std::int64_t rest = family_case(config).rest_of(config);
    const Tensor more = random_ids(2, call + rest, config.vocab, 7);
    const ForwardOutput both = forwarded(model, more, state),
                        first = forwarded(model, part(more, 0, call), state),
                        last_part = forwarded(model, part(more, call, rest), first.state);
    check_close("shorter call", last_part.logits, part(both.logits, call, rest), kOrder);
    check_states(last_part.state, both.state, kOrder, kFloor);

    const Tensor answers = stream_answers(model, tokens);
    for (const std::vector<std::int64_t>& lengths : std::vector<std::vector<std::int64_t>>{{1, 4}, {3}}) {
      CAPTURE(lengths[0]);
      state = forwarded(model, part(tokens, 0, call)).state;
      const State given = state, kept = copy_of(state);
      check_close("stream after a call", streamed(model, part(tokens, call, call), state, lengths),
                  part(answers, call, call), kOrder);
      check_states(given, kept, 0, 0);  // what the call gave is not written over
      const ForwardOutput last = forwarded(model, part(tokens, 2 * call, call), state);
      check_close("call after a stream", last.logits, part(whole.logits, 2 * call, call), kOrder);
      check_states(last.state, whole.state, kOrder, kFloor);
    }
  });
}

TEST_CASE("every model: the equations word for word give the same logits and loss and gradients and states") {
  for_every_case([](const ModelConfig& config, Model& model) {
    const State state = carried_state(model, 2);
    const std::vector<std::int64_t> lengths = family_case(config).lengths_of(config);
    for (const std::int64_t time : lengths)
      for (const bool carried : {false, true}) {
        // From a state at every length; without one at the shortest and the longest, if there are both.
        const bool extreme = time == lengths.front() || time == lengths.back();
        if (carried ? state.empty() : !state.empty() && !extreme) continue;
        CAPTURE(time);
        CAPTURE(carried);
        ForwardInput input = input_for(config, random_ids(2, time, config.vocab, 1));
        if (carried) input.state = state;
        if (carried) input.start = starts_of(config, time);
        if (config.dropout > 0 && forms_share_masks(config)) input.dropout = {true, 7, 1};
        const Tensor targets = targets_for(model, 2, time);
        const Outcome fast = run(model, input, targets);
        CHECK(fast.logits.shape() == Shape{2, rows_of(config, time), model.config().n_out});
        input.literal = true;
        check_outcomes(run(model, input, targets), fast, kOrder, kFloor);
      }
  });
}

TEST_CASE("every model: rows that begin anew are computed as without a past") {
  for_every_case([](const ModelConfig& config, Model& model) {
    const std::int64_t time = uneven_time(config);
    ForwardInput input = input_for(config, random_ids(2, time, config.vocab, 1), carried_state(model, 2));
    if (input.state.empty()) return;
    const Tensor targets = targets_for(model, 2, time);
    const Outcome carried = run(model, input, targets);
    const std::int64_t segments = model.segments(time);
    input.start = Tensor::zeros({2, segments}, Dtype::i64);
    for (const std::int64_t row : {0, 1}) input.start.mutable_data<std::int64_t>()[row * segments] = 1;
    const Outcome anew = run(model, input, targets);
    input.state = State();
    input.start = Tensor();
    check_outcomes(anew, run(model, input, targets), kOrder, kFloor);
    CHECK(distance(anew.logits, carried.logits).error > 1e-6);
  });
}

TEST_CASE("every model: a row that begins a document forgets its past and its neighbour does not") {
  for_every_case([](const ModelConfig& config, Model& model) {
    const State state = carried_state(model, 2);
    if (state.empty()) return;
    const bool cut = family_case(config).starts(config) == Starts::segments;
    const std::int64_t segment = cut ? config.segment : call_time(config), time = cut ? 3 * segment : segment,
                       segments = model.segments(time);
    const Tensor tokens = random_ids(2, time, config.vocab, 17),
                 next = random_ids(2, call_time(config), config.vocab, 18);
    const auto row = [](const Tensor& x, std::int64_t b) { return raw::copy(raw::narrow(x, 0, b, 1)); };
    const ForwardOutput carried = forwarded(model, tokens, state);
    const Tensor after_carried = forwarded(model, next, carried.state).logits;
    for (const std::int64_t at : std::set<std::int64_t>{0, segments - 1})
      for (const bool both : {false, true}) {
        if (!both && !mixes_starts(config)) continue;
        CAPTURE(at);
        CAPTURE(both);
        const Tensor start = Tensor::zeros({2, segments}, Dtype::i64);
        start.mutable_data<std::int64_t>()[segments + at] = 1;
        start.mutable_data<std::int64_t>()[at] = both ? 1 : 0;
        const std::int64_t from = at * segment;
        const ForwardOutput mixed = forwarded(model, tokens, state, start),
                            fresh = forwarded(model, part(tokens, from, time - from));
        const Tensor after_mixed = forwarded(model, next, mixed.state).logits,
                     after_fresh = forwarded(model, next, fresh.state).logits;
        for (const std::int64_t b : {0, 1}) {
          CAPTURE(b);
          const bool anew = b == 1 || both;
          const Tensor rest = part(carried.logits, from, time - from);
          if (from > 0)
            check_close("before", row(part(mixed.logits, 0, from), b), row(part(carried.logits, 0, from), b),
                        kOrder);
          check_close("logits", row(part(mixed.logits, from, time - from), b),
                      row(anew ? fresh.logits : rest, b), kOrder);
          check_close("next call", row(after_mixed, b), row(anew ? after_fresh : after_carried, b), kOrder);
        }
      }
    // Without a state every row begins a document whatever its flag.
    for (const double flag : {0.0, 1.0}) {
      const Tensor start = Tensor::zeros({2, segments}, Dtype::i64);
      raw::fill(raw::narrow(start, 1, 0, 1), flag);
      CHECK(same_bits(forwarded(model, tokens, {}, start).logits, forwarded(model, tokens).logits));
    }
  });
}

TEST_CASE("every model: every parameter has the gradient that differences of the loss give") {
  for (const auto& [name, given] : every_case()) {
    CAPTURE(given.model);
    CAPTURE(name);
    ModelConfig config = given;
    config.detach = "segment";  // a chunk's memory that is held constant leaves no slope to compare with
    const std::int64_t time = family_case(config).gradient_time(config);
    const auto model = model_of(config);
    const State state = carried_state(*model, 2);
    for (const bool carried : {false, true}) {
      // From a state, with a row that begins anew, unless the model has none or cannot mix the two.
      if (carried ? state.empty() : !state.empty() && mixes_starts(config)) continue;
      CAPTURE(carried);
      const std::int64_t batch = carried ? 2 : 1;
      ForwardInput input = input_for(config, random_ids(batch, time, config.vocab, 1));
      if (carried) input.state = state;
      if (carried) input.start = starts_of(config, time);
      if (config.dropout > 0) input.dropout = {true, 5, 17};
      const Tensor targets = targets_for(*model, batch, time);
      const std::span<const double> steps = family_case(config).has_kinks(config)
                                                ? std::span<const double>(kKinkSteps)
                                                : std::span<const double>(kSmoothSteps);
      const Outcome outcome = run(*model, input, targets);
      check_directions(*model, outcome, steps, [&] { return loss_of(*model, input, targets); });
      for (const auto& [parameter, gradient] : outcome.gradients) {
        CAPTURE(parameter);
        const bool reached = gradient.defined() && distance(gradient, gradient).scale > 0;
        CHECK(reached == without_influence(config, parameter).empty());
        if (gradient.defined()) CHECK(all_finite(gradient));
      }
    }
  }
}

TEST_CASE("every model: a dump holds what the model computes and is the same twice") {
  const fs::path config_file = temporary("config.json"), case_file = temporary("case.safetensors"),
                 out_file = temporary("out.safetensors");
  for_every_case([&](const ModelConfig& config, Model& model) {
    const std::int64_t time = uneven_time(config);
    ForwardInput input = input_for(config, random_ids(2, time, config.vocab, 1), carried_state(model, 2));
    if (!input.state.empty()) input.start = starts_of(config, time);
    const Tensor targets = targets_for(model, 2, time);

    TensorMap parts{{"tokens", input.tokens}, {"targets", targets}};
    if (input.start.defined()) parts.emplace("start", input.start);
    for (const auto& [name, value] : parameter_map(model.params())) parts.emplace("param." + name, value);
    for (const auto& [name, tensor] : input.state) parts.emplace("state." + name, tensor);
    save_safetensors(case_file.string(), parts);
    std::ofstream(config_file) << to_json(config).dump();
    DumpOptions options;
    options.config = config_file.string();
    options.weights = options.tokens = case_file.string();
    options.out = out_file.string();
    options.grads = true;
    CHECK(dump(options).empty());
    const TensorMap dumped = load_safetensors(out_file.string());
    const std::string bytes = read_bytes(out_file);
    dump(options);
    CHECK(read_bytes(out_file) == bytes);

    const Outcome outcome = run(model, input, targets);
    TensorMap expected{{"logits", outcome.logits}, {"loss", Tensor::full({1}, outcome.loss, Dtype::f64)}};
    for (const auto& [name, tensor] : outcome.state) expected.emplace("next_state." + name, tensor);
    for (const Parameter& parameter : model.params().parameters()) {
      const Tensor& gradient = outcome.gradients.at(parameter.name);
      expected.emplace("grad." + parameter.name,
                       gradient.defined() ? gradient : Tensor::zeros(parameter.shape, Dtype::f64));
    }
    CHECK(dumped.size() == expected.size());
    for (const auto& [name, tensor] : expected) {
      CAPTURE(name);
      REQUIRE(dumped.contains(name));
      check_same_bits(name, dumped.at(name), tensor);
    }
  });
  for (const fs::path& file : {config_file, case_file, out_file}) fs::remove(file);
}

TEST_CASE("every model: weights go through a file into a model of another seed and give the same bits") {
  const fs::path file = temporary("weights.safetensors");
  for_every_case([&](const ModelConfig& config, Model& model) {
    const Tensor tokens = random_ids(2, uneven_time(config), config.vocab, 1);
    const Tensor logits = forwarded(model, tokens).logits;
    save_safetensors(file.string(), parameter_map(model.params()));
    const TensorMap saved = load_safetensors(file.string());
    const ParamStore listed = count_parameters(config);
    REQUIRE(saved.size() == listed.parameters().size());
    for (const Parameter& parameter : listed.parameters()) {
      CAPTURE(parameter.name);
      REQUIRE(saved.contains(parameter.name));
      CHECK(saved.at(parameter.name).shape() == parameter.shape);
      CHECK(saved.at(parameter.name).dtype() == Dtype::f64);
    }
    const auto other = make_model(config, Dtype::f64);
    other->params().initialize(77);
    CHECK(!same_bits(forwarded(*other, tokens).logits, logits));
    load_parameters(other->params(), saved, file.string());
    check_same_bits("logits", forwarded(*other, tokens).logits, logits);
    CHECK(same_bits(other->params().values(), model.params().values()));
  });
  fs::remove(file);
}

namespace {

// Another value that the key's own rule allows.
void change(const ConfigField& field) {
  if (auto* const* flag = std::get_if<bool*>(&field.target)) **flag = !**flag;
  if (auto* const* whole = std::get_if<std::int64_t*>(&field.target))
    **whole += **whole < field.ints.high ? 1 : -1;
  if (auto* const* real = std::get_if<double*>(&field.target)) **real = **real == 0 ? 0.25 : **real / 2;
  if (auto* const* list = std::get_if<std::vector<std::int64_t>*>(&field.target)) (*list)->push_back(0);
  if (auto* const* text = std::get_if<std::string*>(&field.target))
    **text = **text == field.allowed[0] ? field.allowed[1] : field.allowed[0];
}

// What a model computes in two calls, the second from the state of the first.
std::vector<Tensor> two_calls(const ModelConfig& config, std::int64_t time) {
  const std::unique_ptr<Model> model = model_of(config);
  const Tensor tokens = random_ids(2, 2 * time, config.vocab, 1);
  const ForwardOutput first = forwarded(*model, part(tokens, 0, time));
  return {first.logits, forwarded(*model, part(tokens, time, time), first.state).logits};
}

}  // namespace

TEST_CASE("every model: a key that it does not read changes nothing or is refused") {
  for (const auto& [name, config] : every_case()) {
    CAPTURE(config.model);
    CAPTURE(name);
    const std::int64_t time = call_time(config);
    const std::vector<Tensor> expected = two_calls(config, time);
    ModelConfig changed = config;
    const ConfigKeys keys = keys_of(changed);
    for (const ConfigField& field : keys.fields()) {
      if (field.is_read_by(config.family, config.model)) continue;
      CAPTURE(field.key);
      changed = config;
      change(field);
      std::vector<Tensor> found;
      try {
        found = two_calls(changed, time);
      } catch (const ConfigError&) {
        continue;
      }
      CHECK(same_bits(found[0], expected[0]));
      CHECK(same_bits(found[1], expected[1]));
      CHECK(count_parameters(changed).count() == count_parameters(config).count());
    }
  }
}
