// State tracking: Random Walk and Algorithm. The examples of a split are concatenated to one stream, which is
// cut into as many rows as a batch has. Each row is read with its state carried; only the tokens tell the
// model where an example ends. A label belongs to its own token; nothing is shifted.
// Source: Ju et al., "Staircase Attention for Recurrent Processing of Sequences" (2021), tasks and training.
//
//   split    [ example 0 ][ example 1 ][ example 2 ] ...
//   row 0    [segment|segment|seg      row 1  ment|segment|segment|      row 2 ...
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "autograd/tape.h"
#include "tensor/base/format.h"
#include "train/files/sha256.h"
#include "train/tasks/sequence_reader.h"
#include "train/tasks/state_tracking.h"
#include "train/tasks/task.h"
#include "train/words/human_text.h"

namespace eddy::training {
namespace {

using nlohmann::json;

static_assert(kUnscored == kNotScored);

using Generator = std::variant<AlgorithmPrograms, RandomWalk>;

constexpr const char *kAlgorithm = "algorithm", *kRandomWalk = "random_walk";

Generator generator_of(const StateTrackingKeys& keys, bool programs) {
  if (programs) return AlgorithmPrograms{keys.statements, keys.variables};
  return RandomWalk{keys.walk_length, keys.walk_grid, keys.walk_torus, keys.walk_random_start};
}

// What a report shows of the model.
constexpr std::int64_t kExamplesJudged = 16;
constexpr std::size_t kExamplesShown = 3;
constexpr std::size_t kLinesShown = 120;
constexpr std::int64_t kBins = 20;

class StateTrackingTask final : public Task {
 public:
  explicit StateTrackingTask(const TaskArguments& arguments)
      : config_(arguments.config),
        keys_(config_.data.extensions.get<StateTrackingKeys>()),
        programs_(config_.data.name == kAlgorithm),
        generator_(generator_of(keys_, programs_)),
        segment_(segment_length(config_)),
        sha256_(sha256_hex(recipe())) {
    if (!arguments.expected_sha256.empty() && arguments.expected_sha256 != sha256_)
      fail<ConfigError>("{}: the examples are not those of {} (resume with the same data keys)",
                        config_.data.name, arguments.run);
    if (!arguments.training) return;
    const LabelledTokens& all = stream(StateSplit::train);
    ReadingOptions options = reading(config_.train.batch);
    options.random_offset = !value_is(config_.data.offset, StreamOffset::zero);
    reader_.emplace(equal_spans({all.tokens, all.labels}, config_.train.batch), options);
  }

  std::string name() const override {
    return programs_ ? fmt::format("algorithm, {} variables", keys_.variables) : std::string("random walk");
  }
  std::string summary() const override {
    return fmt::format("{} training {}, {} tokens, read in {} {}, vocabulary {}", keys_.examples,
                       plural(keys_.examples, "example"), stream(StateSplit::train).tokens.size(),
                       config_.train.batch, plural(config_.train.batch, "row"), vocab());
  }
  std::string data_sha256() const override { return sha256_; }
  std::vector<std::string> metric_names() const override { return {"loss", "error_percent"}; }
  bool uses_seed(const EvalOptions&) const override { return false; }
  std::string token_name(std::int32_t id) const override {
    return std::visit([id](const auto& task) { return task.name(id); }, generator_);
  }
  bool carries_state() const override { return !value_is(config_.train.carry_state, CarryState::never); }
  std::int64_t row_length() const override { return segment_; }

  void set_model_sizes(ModelConfig& model) const override {
    fit_tokens(model, vocab(), vocab(), fmt::format("{} has {} tokens", name(), vocab()),
               "labels may stand at any token");
  }

  bool may_read_ahead(std::int64_t) const override { return true; }
  Batch next(std::int64_t, std::int64_t) override {
    Batch batch;
    reader_->next(batch);
    return batch;
  }

  json save() const override { return reader_ ? json{{"reading", reader_->save()}} : json(); }
  void load(const json& saved, const std::string& file) override {
    if (!reader_) return;  // an evaluation does not need the positions of training
    if (!saved.is_object())
      fail<FormatError>("{}: {} does not hold where the stream was read", config_.data.name, file);
    reader_->load(saved.value("reading", json()), file);
  }

  // Every label of the split counts once. There are `options.batch` rows; all but the first begin inside an
  // example, where no model can know the state. Fewer rows cut fewer examples.
  EvalResult evaluate(const Model& model, const EvalOptions& options,
                      const EvalProgress& progress) const override {
    if (options.batch < 1) fail<ValueError>("evaluate: {} rows (at least 1)", options.batch);
    const LabelledTokens& all = stream(split_of(options.split));
    const auto fitting = std::ssize(all.tokens) / segment_;
    const std::int64_t rows = std::clamp<std::int64_t>(fitting, 1, options.batch);
    SequenceReader reader(equal_spans({all.tokens, all.labels}, rows), whole_reading(rows));
    EvalPlan plan{.carry_state = carries_state(),
                  .clear_state = options.clear_state,
                  .count_correct = true,
                  .capture = options.capture,
                  .share = options.share,
                  .batches = options.batches};
    const std::int64_t labels = plan.total = std::count_if(
        all.labels.begin(), all.labels.end(), [](std::int32_t label) { return label != kNotScored; });
    const bool sampled = options.batches == 0 && options.sample > 0;
    if (sampled) {
      plan.batches = (options.sample * options.batch + rows - 1) / rows;
      const double part = static_cast<double>(plan.batches * rows * segment_) /
                          static_cast<double>(std::max<std::int64_t>(std::ssize(all.tokens), 1));
      plan.total = static_cast<std::int64_t>(std::min(part, 1.0) * static_cast<double>(labels));
    }
    if (options.by_position) plan.position = [&](std::int64_t i) { return reader.position(i); };
    const auto next = [&](Batch& batch) { return reader.next(batch); };
    EvalResult result = evaluate_batches(model, next, plan, progress);
    Batch more;
    const bool whole = options.batches == 0 && (!sampled || !reader.next(more));
    result.of = whole ? result.tokens : labels;
    for (auto& [name, value] : result.metrics)
      if (name == "accuracy") {
        name = "error_percent";
        value = 100 * (1 - value);
      }
    return result;
  }

  std::vector<ReportSection> report(const Model& model) const override {
    std::vector<LabelledTokens> examples;
    for (std::int64_t i = 0; i < std::min(kExamplesJudged, keys_.valid_examples); ++i)
      examples.push_back(example(StateSplit::valid, i));
    const std::vector<std::vector<std::int32_t>> predicted = predictions(model, examples);
    ReportSection section{.heading = "Validation examples, each from its beginning",
                          .wide = {error_by_position(examples, predicted)}};
    for (std::size_t i = 0; i < std::min(kExamplesShown, examples.size()); ++i)
      section.texts.push_back(
          {fmt::format("validation example {}", i + 1), with_predictions(examples[i], predicted[i])});
    return {section};
  }

 private:
  std::int64_t vocab() const {
    return std::visit([](const auto& task) { return task.vocab(); }, generator_);
  }
  std::uint64_t seed() const { return static_cast<std::uint64_t>(keys_.examples_seed); }
  LabelledTokens example(StateSplit split, std::int64_t index) const {
    return std::visit([&](const auto& task) { return task.example(seed(), split, index); }, generator_);
  }

  // Everything that the examples of all splits depend on.
  std::string recipe() const {
    const StateTrackingKeys& d = keys_;
    if (programs_)
      return fmt::format("algorithm {} {} {} {}", d.examples_seed, d.examples, d.statements, d.variables);
    return fmt::format("walk {} {} {} {} {} {}", d.examples_seed, d.examples, d.walk_length, d.walk_grid,
                       d.walk_torus, d.walk_random_start);
  }

  StateSplit split_of(Split split) const {
    if (split == Split::train) return StateSplit::train;
    if (split == Split::valid) return StateSplit::valid;
    if (split == Split::test) return StateSplit::test;
    fail<ValueError>("{}: there is no split \"{}\" (train, valid, test)", config_.data.name,
                     value_name(split));
  }

  // The stream of a split, made at the first call: an evaluation needs one split, and the training split has
  // millions of tokens.
  const LabelledTokens& stream(StateSplit split) const {
    std::optional<LabelledTokens>& cached = streams_[static_cast<std::size_t>(split)];
    if (!cached) {
      const std::int64_t counts[] = {keys_.examples, keys_.valid_examples, keys_.test_examples};
      cached = state_stream(generator_, seed(), split, counts[static_cast<std::size_t>(split)]);
    }
    return *cached;
  }

  ReadingOptions reading(std::int64_t rows) const {
    return {.rows = rows, .segment = segment_, .seed = static_cast<std::uint64_t>(config_.train.seed)};
  }
  // Reads the split once, to the last token.
  ReadingOptions whole_reading(std::int64_t rows) const {
    return {.rows = rows, .segment = segment_, .pad = true, .once = true};
  }

  // The most likely token at every position of every example; each begins without a state.
  std::vector<std::vector<std::int32_t>> predictions(const Model& model,
                                                     const std::vector<LabelledTokens>& examples) const {
    const NoGrad no_grad;
    std::vector<Sequence> sequences;
    std::vector<std::vector<std::int32_t>> predicted;
    for (const LabelledTokens& one : examples) {
      sequences.push_back({one.tokens, one.labels});
      predicted.emplace_back(one.tokens.size(), kNotScored);
    }
    const Device device = model.params().values().device();
    // Examples end at different times, and a row that begins the next one while others continue must have a
    // state to begin with.
    const bool one_by_one = model.needs_equal_starts().has_value();
    const auto rows = one_by_one ? std::int64_t{1} : std::ssize(examples);
    SequenceReader reader(std::move(sequences), whole_reading(rows));
    CarriedState carried;
    for (Batch batch; reader.next(batch); batch = {}) {
      const ForwardOutput output = model.forward(carried.input(batch, device, model));
      if (carries_state()) carried.update(output.state, batch);
      const Tensor logits = raw::cast(raw::to_device(raw::contiguous(output.logits), kCpu), Dtype::f64);
      const std::int64_t classes = logits.dim(-1);
      for (std::size_t row = 0; row < reader.row_positions().size(); ++row) {
        const auto [sequence, position] = reader.row_positions()[row];
        if (sequence < 0) continue;
        std::vector<std::int32_t>& answers = predicted[static_cast<std::size_t>(sequence)];
        const auto length = std::ssize(answers);
        for (std::int64_t t = 0; t < std::min(segment_, length - position); ++t) {
          const double* values =
              logits.data<double>() + (static_cast<std::int64_t>(row) * segment_ + t) * classes;
          answers[static_cast<std::size_t>(position + t)] =
              static_cast<std::int32_t>(std::max_element(values, values + classes) - values);
        }
      }
    }
    return predicted;
  }

  static Chart error_by_position(const std::vector<LabelledTokens>& examples,
                                 const std::vector<std::vector<std::int32_t>>& predicted) {
    std::size_t longest = 1;
    for (const LabelledTokens& one : examples) longest = std::max(longest, one.tokens.size());
    const std::size_t width = (longest + kBins - 1) / kBins;
    std::array<double, kBins> wrong{}, scored{};
    for (std::size_t i = 0; i < examples.size(); ++i)
      for (std::size_t t = 0; t < examples[i].labels.size(); ++t) {
        if (examples[i].labels[t] == kNotScored) continue;
        scored[t / width] += 1;
        wrong[t / width] += predicted[i][t] == examples[i].labels[t] ? 0 : 1;
      }
    Series series{fmt::format("{} {}", examples.size(), plural(examples.size(), "example")),
                  {},
                  {},
                  SeriesStyle::line_points};
    for (std::size_t bin = 0; bin < scored.size(); ++bin) {
      if (scored[bin] == 0) continue;
      series.add((static_cast<double>(bin) + 0.5) * static_cast<double>(width),
                 100 * wrong[bin] / scored[bin]);
    }
    return {"Error by position in the example", "token", "% of labels wrong", false, false, {series}};
  }

  // An example as text, a line for each statement or labelled action, with what the model says.
  std::string with_predictions(const LabelledTokens& one, const std::vector<std::int32_t>& said) const {
    constexpr std::int32_t kSemicolon = 2;
    std::string text, line;
    std::size_t lines = 0;
    for (std::size_t t = 0; t < one.tokens.size(); ++t) {
      line += (line.empty() ? "" : " ") + token_name(one.tokens[t]);
      const bool labelled = one.labels[t] != kNotScored;
      if (labelled) {
        line += fmt::format("   {}", token_name(one.labels[t]));
        if (said[t] != one.labels[t]) line += fmt::format("   said {}", token_name(said[t]));
      }
      const bool ends = labelled || (programs_ && one.tokens[t] == kSemicolon) || t + 1 == one.tokens.size();
      if (!ends) continue;
      if (lines++ < kLinesShown) text += line + '\n';
      line.clear();
    }
    if (lines > kLinesShown)
      text += fmt::format("[{} more {}]\n", lines - kLinesShown, plural(lines - kLinesShown, "line"));
    return text;
  }

  const RunConfig config_;
  const StateTrackingKeys keys_;
  const bool programs_;  // else walks
  const Generator generator_;
  const std::int64_t segment_;
  const std::string sha256_;
  mutable std::array<std::optional<LabelledTokens>, 3> streams_;
  std::optional<SequenceReader> reader_;  // of training
};

}  // namespace

void describe(KeyList& keys, StateTrackingKeys& c) {
  keys.add("examples_seed", c.examples_seed, "Seed of the examples", {0});
  keys.add("examples", c.examples, "Number of training examples", {1, 10'000'000});
  keys.add("valid_examples", c.valid_examples, "Number of validation examples", {1, 10'000'000});
  keys.add("test_examples", c.test_examples, "Number of test examples", {1, 10'000'000});
  keys.add("statements", c.statements, "Number of statements of a program", {1, 1'048'576})
      .read_by(kAlgorithm);
  keys.add("variables", c.variables, "Number of variables of a program (published: 3 and 5)", {1, 5})
      .read_by(kAlgorithm);
  keys.add("walk_length", c.walk_length, "Number of actions of a walk", {1, 1'048'576}).read_by(kRandomWalk);
  keys.add("walk_grid", c.walk_grid, "Number of cells in a row and in a column", {1, 1024})
      .read_by(kRandomWalk);
  keys.add("walk_torus", c.walk_torus, "Whether walking off an edge leads to the opposite one")
      .read_by(kRandomWalk);
  keys.add("walk_random_start", c.walk_random_start,
           "Whether each walk announces a random start, instead of beginning in cell (0, 0)")
      .read_by(kRandomWalk);
}

TaskEntry algorithm_task() {
  return {.name = kAlgorithm,
          .summary = "the values that a program prints",
          .make = [](TaskArguments&& arguments) -> std::unique_ptr<Task> {
            return std::make_unique<StateTrackingTask>(arguments);
          },
          .common = "offset",
          .describe = describe_keys_of<StateTrackingKeys>};
}

TaskEntry random_walk_task() {
  TaskEntry entry = algorithm_task();
  entry.name = kRandomWalk;
  entry.summary = "where an agent stands after each of its actions";
  return entry;
}

}  // namespace eddy::training
