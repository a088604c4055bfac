// The recall task (see recall_data.h): new documents; all rows are at the same segment. Batch i of a run is
// segment i mod segments of document i / segments. So the data depend only on (seed, step, micro), and the
// carried state is that of the same documents' earlier segments.
#include <nlohmann/json.hpp>
#include <utility>

#include "tensor/base/format.h"
#include "train/tasks/recall_data.h"
#include "train/tasks/task.h"
#include "train/words/human_text.h"

namespace eddy::training {
namespace {

constexpr const char* kRecall = "recall";
constexpr std::int64_t kValidDocuments = 8;  // per row of a whole evaluation

class RecallTask final : public Task {
 public:
  explicit RecallTask(const RunConfig& config) : config_(config) {
    const auto& keys = config.data.extensions.get<RecallKeys>();
    shape_.secrets = keys.secrets;
    shape_.noise = config.data.noise;
    shape_.every = keys.every;
    shape_.segment = segment_length(config);
    shape_.segments = keys.segments;
    if (shape_.noise + 1 >= shape_.segment)
      fail<ConfigError>(
          "config: data.noise is {} and a segment has {} tokens (the first question must lie in the first "
          "segment: noise + 1 < segment)",
          shape_.noise, shape_.segment);
  }

  std::string name() const override { return kRecall; }
  std::string summary() const override {
    return fmt::format("{} {}, asked for behind {} {} and every {}, in documents of {} {} of {}",
                       shape_.secrets, plural(shape_.secrets, "secret"), shape_.noise,
                       plural(shape_.noise, "token"), shape_.every, shape_.segments,
                       plural(shape_.segments, "segment"), shape_.segment);
  }
  // "A" is a secret, "a" noise.
  std::string token_name(std::int32_t token) const override {
    if (token == kRecallQuestion) return "?";
    const std::int32_t secret = token - kRecallQuestion - 1;
    const std::int64_t noise = secret - shape_.secrets;
    if (secret < 0 || noise >= kRecallNoise) return "_";
    if (noise >= 0) return std::string(1, static_cast<char>('a' + noise));
    return secret < 26 ? std::string(1, static_cast<char>('A' + secret)) : fmt::format("S{}", secret);
  }
  bool carries_state() const override { return !value_is(config_.train.carry_state, CarryState::never); }
  std::int64_t row_length() const override { return shape_.segment; }
  std::string shorter_rows() const override { return shorter_segments(config_); }
  std::vector<std::string> metric_names() const override { return {"loss", "accuracy", "after_border"}; }
  bool uses_seed(const EvalOptions&) const override { return true; }

  void set_model_sizes(ModelConfig& model) const override {
    fit_tokens(model, shape_.vocab(), shape_.vocab(), fmt::format("recall has {} tokens", shape_.vocab()),
               "questions stand anywhere");
  }

  bool may_read_ahead(std::int64_t) const override { return true; }
  Batch next(std::int64_t step, std::int64_t micro) override {
    return segment_of(static_cast<std::uint64_t>(config_.train.seed), "recall.train",
                      step * config_.train.accumulate + micro, config_.train.batch);
  }

  // Adds "accuracy", and "after_border": the mean loss of the first question of each segment but the first,
  // which only the carried state can answer.
  EvalResult evaluate(const Model& model, const EvalOptions& options,
                      const EvalProgress& progress) const override {
    const std::string stream = fresh_stream(kRecall, options.split);
    std::int64_t batches = options.batches > 0 ? options.batches : kValidDocuments * shape_.segments;
    if (options.batches == 0 && options.sample > 0) {  // whole documents
      const std::int64_t documents = (options.sample + shape_.segments - 1) / shape_.segments;
      batches = std::min(batches, documents * shape_.segments);
    }
    double border_nats = 0, border_count = 0;
    std::int64_t part = 0;  // of its document
    EvalPlan plan{.carry_state = carries_state(),
                  .clear_state = options.clear_state,
                  .count_correct = true,
                  .capture = options.capture,
                  .share = options.share};
    const auto place = [&](std::int64_t i) { return part * shape_.segment + i % shape_.segment; };
    if (options.by_position) plan.position = place;
    plan.on_batch = [&](const Batch& batch, std::span<const double> losses) {
      const std::int32_t* target = batch.targets.data<std::int32_t>();
      for (std::size_t i = 0; i < losses.size(); ++i) {
        if (target[i] == kNotScored || !first_behind_border(place(static_cast<std::int64_t>(i)))) continue;
        border_nats += losses[i];
        border_count += 1;
      }
    };
    const auto next = batches_of(batches, [&](std::int64_t i) {
      part = i % shape_.segments;
      return segment_of(options.seed, stream.c_str(), i, options.batch);
    });
    EvalResult result = evaluate_batches(model, next, plan, progress);
    if (border_count > 0) result.metrics.emplace_back("after_border", border_nats / border_count);
    return result;
  }

 private:
  // Whether a question is the first one of a segment other than the first.
  bool first_behind_border(std::int64_t place) const {
    const std::int64_t border = place / shape_.segment * shape_.segment;
    return border > 0 && place - shape_.every < border;
  }

  Batch segment_of(std::uint64_t seed, const char* stream, std::int64_t index, std::int64_t rows) const {
    const std::int64_t document = index / shape_.segments, part = index % shape_.segments;
    const RecallDocuments whole =
        recall_documents(random_key(seed, stream, static_cast<std::uint64_t>(document)), 0, rows, shape_);
    std::vector<std::int32_t> tokens, labels;
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t begin = row * shape_.length() + part * shape_.segment;
      tokens.insert(tokens.end(), whole.tokens.begin() + begin,
                    whole.tokens.begin() + begin + shape_.segment);
      labels.insert(labels.end(), whole.labels.begin() + begin,
                    whole.labels.begin() + begin + shape_.segment);
    }
    return make_batch(rows, std::move(tokens), std::move(labels),
                      std::vector<std::int64_t>(static_cast<std::size_t>(rows), part == 0 ? 1 : 0));
  }

  RunConfig config_;
  RecallShape shape_;
};

}  // namespace

void describe(KeyList& keys, RecallKeys& c) {
  keys.list_before("stop_loss");
  keys.add("secrets", c.secrets, "Number of secrets, one of which is told", {1, 65'536});
  keys.add("every", c.every, "Tokens from one question to the next", {1, 1'000'000'000});
  keys.add("segments", c.segments, "Number of segments of a document", {1, 65'536});
}

TaskEntry recall_task() {
  return {.name = kRecall,
          .summary = "the answers to questions about a secret beyond the reach of attention",
          .make = [](TaskArguments&& arguments) -> std::unique_ptr<Task> {
            return std::make_unique<RecallTask>(arguments.config);
          },
          .common = "noise",
          .describe = describe_keys_of<RecallKeys>};
}

}  // namespace eddy::training
