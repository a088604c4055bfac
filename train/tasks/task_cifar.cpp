// CIFAR-10 as a sequence of 1024 grey values, one token each; the class is read at the last position. A model whose
// logits stand at every position is scored there alone.
// Source: Kausik, "Recurrent Transformers" (2025), after the image task of the Long range arena.
#include <algorithm>
#include <cmath>
#include <deque>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "autograd/tape.h"
#include "tensor/base/format.h"
#include "tensor/files/json_text.h"
#include "tensor/random/uniform_draw.h"
#include "train/files/sha256.h"
#include "train/tasks/block_sizes.h"
#include "train/tasks/cifar.h"
#include "train/tasks/task.h"

namespace eddy::training {
namespace {

constexpr std::size_t kMeanOfLosses = 100;
constexpr std::int64_t kGreyValues = 256;

// The one folder that data.path names; "": the usual one.
std::string folder_of(const TaskArguments& arguments) {
  if (arguments.config.data.path.empty()) return "";
  const DataPaths paths = data_paths(arguments).front();
  if (paths.size() > 1)
    fail<ConfigError>("config: data.path is {}, and images lie in one folder (name that)", paths.text());
  return paths.front();
}

class CifarTask final : public Task {
 public:
  explicit CifarTask(const TaskArguments& arguments)
      : config_(arguments.config.data),
        train_(arguments.config.train),
        scores_all_(!reads_key(arguments.config.model, "readout")),
        images_(read_cifar(folder_of(arguments), arguments.training)) {
    check_block_sizes(arguments.config, arguments.training);
    if (arguments.training && train_.batch > images_.train.count())
      fail<ConfigError>(
          "config: train.batch is {} and there are {} training images (a batch holds distinct images)",
          train_.batch, images_.train.count());
    // That of the test images comes first: an evaluation reads no others.
    sha256_ = digest_of(images_.test);
    if (arguments.training) sha256_ += "-" + digest_of(images_.train);
    const std::string& expected = arguments.expected_sha256;
    if (!expected.empty() && !expected.starts_with(sha256_))
      fail<ConfigError>(
          "cifar: the images in {} are not those of {}: SHA-256 of the test and the training images {} and {} "
          "(name the same by --data.path, or start a new run with --init-from)",
          images_.folder, arguments.run, sha256_, expected);
  }

  std::string name() const override { return "grey CIFAR-10"; }
  std::string summary() const override {
    std::string text = fmt::format("{} training and {} test images of 1024 grey values from {}",
                                   images_.train.count(), images_.test.count(), images_.folder);
    const bool whole = images_.test.count() == kCifarTest &&
                       (images_.train.count() == 0 || images_.train.count() == kCifarTrain);
    if (!whole) text += fmt::format(" (the whole set has {} and {})", kCifarTrain, kCifarTest);
    return text;
  }
  std::string data_sha256() const override { return sha256_; }
  bool reads_files() const override { return true; }
  bool uses_seed(const EvalOptions& options) const override { return options.batches > 0; }

  std::int64_t validation_rows() const override { return part(Split::valid).count(); }

  void set_model_sizes(ModelConfig& model) const override {
    fit_tokens(model, kGreyValues, kCifarClasses, "images have 256 grey values and 10 classes");
    if (const std::string readout = readout_of(model); !scores_all_ && !value_is(readout, Readout::last))
      fail<ConfigError>(
          "config: model.readout is \"{}\"; the class is read at the last position (set \"last\")", readout);
    if (model.positions && model.context < kCifarPixels)
      fail<ConfigError>(
          "config: model.context is {} and an image has 1024 tokens (the position table must reach so far)",
          model.context);
  }

  // A batch holds distinct images, drawn independently for each batch: there are no epochs.
  Batch next(std::int64_t step, std::int64_t micro) override {
    const auto seed = static_cast<std::uint64_t>(train_.seed), at = static_cast<std::uint64_t>(step);
    const RandomKey key = random_key(seed, "cifar.train", static_cast<std::uint64_t>(micro), at);
    Batch batch = batch_of(images_.train, draw(key, images_.train.count(), train_.batch));
    batch.block = drawn_block(config_, train_.seed, step, "cifar.block");
    return batch;
  }

  // after_step may end the run.
  bool may_read_ahead(std::int64_t) const override { return config_.stop_loss <= 0; }

  AfterStep after_step(const Model&, std::int64_t, double loss, const EvalProgress&) override {
    AfterStep after;
    if (config_.stop_loss <= 0) return after;
    if (!std::isfinite(loss)) return after;  // a skipped step
    losses_.push_back(loss);
    if (losses_.size() > kMeanOfLosses) losses_.pop_front();
    const double mean =
        std::accumulate(losses_.begin(), losses_.end(), 0.0) / static_cast<double>(losses_.size());
    after.stop = losses_.size() == kMeanOfLosses && mean < config_.stop_loss;
    if (after.stop) after.message = fmt::format("the mean loss of 100 steps is {:.4f}: learned", mean);
    return after;
  }

  nlohmann::json save() const override { return {{"last_losses", losses_}}; }
  void load(const nlohmann::json& saved, const std::string& file) override {
    try {
      losses_ = saved.at("last_losses").get<std::deque<double>>();
    } catch (const nlohmann::json::exception& error) {
      fail<FormatError>("cifar: {} does not hold the last losses: {}", file, plain_message(error.what()));
    }
  }

  // With `batches` 0: every image of the split once; else random batches, as in the paper.
  EvalResult evaluate(const Model& model, const EvalOptions& options,
                      const EvalProgress& progress) const override {
    const GreyImages& images = part(options.split);
    const bool random = options.batches > 0;
    const std::int64_t rows = std::min(options.batch, images.count());
    const std::int64_t count =
        options.sample > 0 ? std::min(options.sample * rows, images.count()) : images.count();
    const EvalPlan plan{.count_correct = true,
                        .random = random,
                        .capture = options.capture,
                        .share = options.share,
                        .total = random ? options.batches * rows : count};
    const auto next = batches_of(random ? options.batches : (count + rows - 1) / rows, [&](std::int64_t i) {
      std::vector<std::int64_t> chosen;
      if (random)
        chosen =
            draw(random_key(options.seed, "cifar.eval", static_cast<std::uint64_t>(i)), images.count(), rows);
      else
        for (std::int64_t at = i * rows; at < std::min((i + 1) * rows, count); ++at)
          chosen.push_back(spread_index(at, count, images.count()));
      Batch batch = batch_of(images, chosen);
      batch.block = block_of_evaluation();
      return batch;
    });
    EvalResult result = evaluate_batches(model, next, plan, progress);
    if (!random) result.of = images.count();
    return result;
  }

  std::vector<ReportSection> report(const Model& model) const override {
    const std::int64_t shown = std::min<std::int64_t>(24, images_.test.count());
    std::vector<std::int64_t> chosen(static_cast<std::size_t>(shown));
    std::iota(chosen.begin(), chosen.end(), 0);
    Batch batch = batch_of(images_.test, chosen);
    batch.block = block_of_evaluation();
    const NoGrad no_grad;
    const Tensor logits = raw::cast(
        raw::to_device(
            raw::contiguous(model.forward(forward_input(batch, model.params().values().device())).logits),
            kCpu),
        Dtype::f64);
    std::vector<Picture> pictures;
    const std::int64_t positions = logits.dim(1), width = logits.dim(2);
    for (std::int64_t i = 0; i < shown; ++i) {
      const double* row = logits.data<double>() + ((i + 1) * positions - 1) * width;
      const auto predicted = std::max_element(row, row + kCifarClasses) - row;
      const int truth = images_.test.labels[static_cast<std::size_t>(i)];
      Picture picture{32, 32, {}, "", predicted == truth};
      const auto pixels = images_.test.image(i);
      picture.grey.assign(pixels.begin(), pixels.end());
      picture.caption = predicted == truth
                            ? std::string(kCifarNames[truth])
                            : fmt::format("{}, taken for {}", kCifarNames[truth], kCifarNames[predicted]);
      pictures.push_back(std::move(picture));
    }
    return {{.heading = "The first test images", .pictures = std::move(pictures)}};
  }

 private:
  const GreyImages& part(Split split) const {
    if (split == Split::valid || split == Split::test) return images_.test;
    if (split == Split::train && images_.train.count() > 0) return images_.train;
    fail<ValueError>("cifar: there is no split \"{}\" here (test, which valid stands for too, or train)",
                     value_name(split));
  }

  // int(0.5 (min + max)): 32 for 16 to 48.
  std::int64_t block_of_evaluation() const {
    const auto& keys = config_.extensions.get<BlockKeys>();
    return (keys.block_min + keys.block_max) / 2;
  }

  static std::string digest_of(const GreyImages& images) {
    Sha256 hash;
    for (const std::vector<std::uint8_t>* bytes : {&images.labels, &images.pixels})
      hash.update({reinterpret_cast<const char*>(bytes->data()), bytes->size()});
    return hash.hex_digest();
  }

  // `count` distinct numbers below `bound`, in the order drawn: the first ones of a shuffle.
  static std::vector<std::int64_t> draw(const RandomKey& key, std::int64_t bound, std::int64_t count) {
    std::vector<std::int64_t> order(static_cast<std::size_t>(bound));
    std::iota(order.begin(), order.end(), 0);
    for (std::int64_t i = 0; i < count; ++i) {
      const auto left = static_cast<std::uint64_t>(bound - i);
      const auto at = i + static_cast<std::int64_t>(uniform_below(key, static_cast<std::uint64_t>(i), left));
      std::swap(order[static_cast<std::size_t>(i)], order[static_cast<std::size_t>(at)]);
    }
    order.resize(static_cast<std::size_t>(count));
    return order;
  }

  Batch batch_of(const GreyImages& images, const std::vector<std::int64_t>& chosen) const {
    std::vector<std::int32_t> tokens, targets;
    tokens.reserve(chosen.size() * kCifarPixels);
    for (const std::int64_t i : chosen) {
      const auto pixels = images.image(i);
      tokens.insert(tokens.end(), pixels.begin(), pixels.end());
      targets.push_back(images.labels[static_cast<std::size_t>(i)]);
    }
    if (scores_all_) targets = behind_unscored(targets, std::ssize(chosen), kCifarPixels);
    return make_batch(std::ssize(chosen), std::move(tokens), std::move(targets));
  }

  DataConfig config_;
  TrainConfig train_;
  bool scores_all_;
  CifarData images_;
  std::string sha256_;
  std::deque<double> losses_;
};

}  // namespace

TaskEntry cifar_task() {
  return {.name = "cifar10",
          .summary = "the class of an image read as 1024 grey values",
          .make = [](TaskArguments&& arguments) -> std::unique_ptr<Task> {
            return std::make_unique<CifarTask>(arguments);
          },
          .common = "path stop_loss",
          .describe = describe_keys_of<BlockKeys>,
          .data_sets = "cifar10"};
}

}  // namespace eddy::training
