// The copy tasks: new examples at every step; the noise grows when the model has learned its length.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "tensor/base/format.h"
#include "tensor/files/json_text.h"
#include "train/tasks/copy_data.h"
#include "train/tasks/task.h"

namespace eddy::training {
namespace {

// One validation of the curriculum.
struct Validation {
  std::int64_t step = 0, noise = 0;
  double loss = 0, accuracy = 0, rate = 0;
};

double accuracy_of(const EvalResult& result) {
  for (const auto& [name, value] : result.metrics)
    if (name == "accuracy") return value;
  return 0;
}

class CopyTask final : public Task {
 public:
  CopyTask(const RunConfig& config, bool selective)
      : data_(config.data),
        keys_(config.data.extensions.get<CopyKeys>()),
        train_(config.train),
        selective_(selective),
        has_blocks_(reads_key(config.model, "block")),
        scores_all_(!reads_key(config.model, "readout")),
        largest_block_(config.model.block) {
    if (data_.noise < 2 || data_.noise > keys_.noise_max)
      fail<ConfigError>(
          "config: data.noise is {} and data.noise_max {} (at least 2, a block is half the noise; and no "
          "more than the longest)",
          data_.noise, keys_.noise_max);
    curriculum_.noise = data_.noise;
    curriculum_.longest = keys_.noise_max;
    curriculum_.symbols = keys_.symbols;
    curriculum_.first_rate = train_.learning_rate;
    curriculum_.paper_rule = value_is(keys_.rate_rule, RateRule::paper);
    curriculum_.begin();
  }

  std::string name() const override { return selective_ ? "selective copy" : "copy"; }
  std::string summary() const override {
    std::string text = fmt::format("{} symbols, noise {} to {}, fresh examples at every step", keys_.symbols,
                                   data_.noise, keys_.noise_max);
    const std::int64_t block = copy_block(data_.noise, largest_block_);
    if (has_blocks_ && block != largest_block_)
      text += fmt::format(", noise {}: blocks of {} (model.block is {})", data_.noise, block, largest_block_);
    return text;
  }
  // A symbol is a letter, noise a point, a marker a question.
  std::string token_name(std::int32_t token) const override {
    if (token == 0) return ".";
    return token == kCopyMarker ? "?" : std::string(1, static_cast<char>('a' + token - 1));
  }
  std::vector<std::string> metric_names() const override { return {"loss", "accuracy", "noise"}; }
  std::string shorter_rows() const override { return "a smaller data.noise_max"; }
  bool uses_seed(const EvalOptions&) const override { return true; }

  void set_model_sizes(ModelConfig& model) const override {
    fit_tokens(model, kCopyAlphabet, kCopyAlphabet, "the copy tasks have 16 tokens");
    // Models without a readout give logits everywhere, and those before the answer have no target.
    if (const std::string readout = readout_of(model); !scores_all_ && !value_is(readout, Readout::tail))
      fail<ConfigError>(
          "config: model.readout is \"{}\"; the copy tasks score the last {} positions (set \"tail\")",
          readout, keys_.symbols);
    const std::int64_t longest = 2 * keys_.symbols + keys_.noise_max;
    if (model.positions && model.context < longest)
      fail<ConfigError>(
          "config: model.context is {} and the longest example has {} tokens: 2 * data.symbols + "
          "data.noise_max (the position table must reach so far)",
          model.context, longest);
  }

  Batch next(std::int64_t step, std::int64_t micro) override {
    const RandomKey key =
        random_key(static_cast<std::uint64_t>(train_.seed), "copy.train", static_cast<std::uint64_t>(step));
    return batch(key, micro * train_.batch, train_.batch, curriculum_.noise);
  }

  Batch longest_batch() override {
    const std::int64_t noise = keys_.curriculum_every > 0 ? keys_.noise_max : curriculum_.noise;
    return batch(random_key(0, "copy.train", 0), 0, train_.batch, noise);
  }

  double learning_rate(std::int64_t, double scheduled) const override {
    return keys_.curriculum_every > 0 ? curriculum_.rate : scheduled;
  }

  // after_step validates, and changes the curriculum, every so many steps.
  bool may_read_ahead(std::int64_t step) const override {
    return keys_.curriculum_every == 0 || step % keys_.curriculum_every != 0;
  }

  AfterStep after_step(const Model& model, std::int64_t steps_done, double,
                       const EvalProgress& progress) override {
    AfterStep after;
    owes_validation_ = false;
    if (keys_.curriculum_every == 0 || steps_done % keys_.curriculum_every != 0) return after;
    const std::int64_t noise = curriculum_.noise;
    bool stopped = false;
    const EvalProgress watched = [&](std::int64_t done, std::int64_t total) {
      stopped = progress && !progress(done, total);
      return !stopped;
    };
    const EvalResult result = measure(model, noise, keys_.curriculum_batches, train_.batch,
                                      random_key(static_cast<std::uint64_t>(train_.seed), "copy.curriculum",
                                                 static_cast<std::uint64_t>(steps_done)),
                                      watched);
    if (stopped) {
      owes_validation_ = true;
      return after;
    }
    const bool grew = curriculum_.update(result.loss);
    history_.push_back({steps_done, noise, result.loss, accuracy_of(result), curriculum_.rate});
    after.message =
        fmt::format("step {}: noise {}, validation loss {:.4f}, accuracy {:.2f} %, learning rate {:.3g}{}",
                    steps_done, noise, result.loss, 100 * accuracy_of(result), curriculum_.rate,
                    grew ? fmt::format("; the noise grows to {}", curriculum_.noise) : "");
    after.evaluation = result;
    after.stop = data_.stop_loss > 0 && noise == keys_.noise_max && result.loss < data_.stop_loss;
    return after;
  }

  bool after_step_pending() const override { return owes_validation_; }

  nlohmann::json save() const override {
    nlohmann::json saved{
        {"noise", curriculum_.noise}, {"base", curriculum_.base}, {"rate", curriculum_.rate}};
    saved["history"] = nlohmann::json::array();
    for (const Validation& v : history_)
      saved["history"].push_back({v.step, v.noise, v.loss, v.accuracy, v.rate});
    if (owes_validation_) saved["owes_validation"] = true;
    return saved;
  }

  void load(const nlohmann::json& saved, const std::string& file) override {
    try {
      CopyCurriculum restored = curriculum_;
      restored.noise = saved.at("noise").get<std::int64_t>();
      restored.base = saved.at("base").get<double>();
      restored.rate = saved.at("rate").get<double>();
      if (restored.noise < 2 || restored.noise > keys_.noise_max)
        fail<ConfigError>(
            "copy: {} stands at noise {}, data.noise_max is {} (resume with the same data keys)", file,
            restored.noise, keys_.noise_max);
      std::vector<Validation> history;
      for (const nlohmann::json& row : saved.at("history"))
        history.push_back({row.at(0).get<std::int64_t>(), row.at(1).get<std::int64_t>(),
                           row.at(2).get<double>(), row.at(3).get<double>(), row.at(4).get<double>()});
      owes_validation_ = saved.value("owes_validation", false);
      curriculum_ = restored;
      history_ = std::move(history);
    } catch (const nlohmann::json::exception& error) {
      fail<FormatError>("copy: {} does not hold a curriculum: {}", file, plain_message(error.what()));
    }
  }

  EvalResult evaluate(const Model& model, const EvalOptions& options,
                      const EvalProgress& progress) const override {
    const std::string stream = fresh_stream("copy", options.split);
    std::int64_t batches =
        options.batches > 0 ? options.batches : std::max<std::int64_t>(keys_.curriculum_batches, 1);
    if (options.batches == 0 && options.sample > 0) batches = std::min(batches, options.sample);
    return measure(model, curriculum_.noise, batches, options.batch,
                   random_key(options.seed, stream.c_str(), 0), progress, options.share);
  }

  std::vector<ReportSection> report(const Model& model) const override {
    // The accuracy at every noise length up to the current one.
    Series now{"this model, 16 examples each", {}, {}, SeriesStyle::line_points};
    for (std::int64_t noise = data_.noise;; noise = std::min(2 * noise, curriculum_.noise)) {
      const EvalResult result =
          measure(model, noise, 1, 16, random_key(static_cast<std::uint64_t>(train_.seed), "copy.report", 0));
      now.add(static_cast<double>(noise), 100 * accuracy_of(result));
      if (noise == curriculum_.noise) break;
    }
    Chart by_noise{"Accuracy by noise length", "noise symbols", "% of symbols right", true, false, {now}};
    Series measured{"when last validated at this length", {}, {}, SeriesStyle::points};
    for (std::size_t i = 0; i < history_.size(); ++i) {
      const bool last = i + 1 == history_.size() || history_[i + 1].noise != history_[i].noise;
      if (last) measured.add(static_cast<double>(history_[i].noise), 100 * history_[i].accuracy);
    }
    if (!measured.x.empty()) by_noise.series.push_back(measured);
    Series noise_now{"noise", {}, {}}, accuracy{"accuracy, %", {}, {}};
    for (const Validation& v : history_) {
      noise_now.add(static_cast<double>(v.step), static_cast<double>(v.noise));
      accuracy.add(static_cast<double>(v.step), 100 * v.accuracy);
    }
    ReportSection section{.heading = "Copying", .wide = {by_noise}};
    if (history_.size() > 1)
      section.charts = {{"Noise length", "step", "noise symbols", false, true, {noise_now}},
                        {"Validation accuracy", "step", "% of symbols right", false, false, {accuracy}}};
    return {section};
  }

 private:
  Batch batch(const RandomKey& key, std::int64_t first_row, std::int64_t rows, std::int64_t noise) const {
    CopyExamples examples = copy_examples(key, first_row, rows, keys_.symbols, noise, selective_);
    if (scores_all_)
      examples.targets = behind_unscored(examples.targets, rows, std::ssize(examples.tokens) / rows);
    Batch made = make_batch(rows, std::move(examples.tokens), std::move(examples.targets));
    made.tail = keys_.symbols;
    made.block = copy_block(noise, largest_block_);
    return made;
  }

  EvalResult measure(const Model& model, std::int64_t noise, std::int64_t batches, std::int64_t rows,
                     const RandomKey& key, const EvalProgress& progress = {},
                     const EvalShare& share = {}) const {
    const EvalPlan plan{.count_correct = true,
                        .random = true,
                        .capture = value_is(train_.capture, StepCapture::automatic),
                        .share = share,
                        .total = batches * rows * keys_.symbols};
    const auto next = batches_of(batches, [&](std::int64_t i) { return batch(key, i * rows, rows, noise); });
    EvalResult result = evaluate_batches(model, next, plan, progress);
    result.metrics.emplace_back("noise", static_cast<double>(noise));
    return result;
  }

  DataConfig data_;
  CopyKeys keys_;
  TrainConfig train_;
  bool selective_, has_blocks_, scores_all_;
  std::int64_t largest_block_;
  CopyCurriculum curriculum_;
  std::vector<Validation> history_;
  bool owes_validation_ = false;  // after_step was stopped
};

}  // namespace

void describe(KeyList& keys, CopyKeys& c) {
  keys.list_before("noise");
  keys.add("symbols", c.symbols, "Number of symbols to remember", {1, 65'536});
  keys.list_before("stop_loss");
  keys.add("noise_max", c.noise_max, "Number of noise symbols at the end of the curriculum", {2, 16'777'216});
  keys.add("curriculum_every", c.curriculum_every,
           "Steps between validations that may lengthen the noise; 0: never", {0, 1'000'000'000'000});
  keys.add("curriculum_batches", c.curriculum_batches, "Number of batches of such a validation",
           {1, 1'000'000'000});
  keys.add("rate_rule", c.rate_rule,
           "Whether the learning rate follows the noise as in the code or the paper", value_names<RateRule>())
      .paper_quirk();
}

TaskEntry copy_task() {
  return {.name = "copy",
          .summary = "symbols repeated after a long noise",
          .make = [](TaskArguments&& arguments) -> std::unique_ptr<Task> {
            return std::make_unique<CopyTask>(arguments.config, false);
          },
          .common = "noise stop_loss",
          .describe = describe_keys_of<CopyKeys>};
}

TaskEntry selective_copy_task() {
  TaskEntry entry = copy_task();
  entry.name = "selective_copy";
  entry.summary = "the same, with the symbols scattered in the noise";
  entry.make = [](TaskArguments&& arguments) -> std::unique_ptr<Task> {
    return std::make_unique<CopyTask>(arguments.config, true);
  };
  return entry;
}

}  // namespace eddy::training
