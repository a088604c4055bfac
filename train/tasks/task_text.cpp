// Language modelling: the next token of a text, read in one of three orders (data.order).
//
//   windows     random windows without a state, as in Kausik, "Recurrent Transformers" (2025)
//   stream      row i of every batch continues where it stopped in the batch before
//   documents   the files of a folder: each row follows one file, then takes the next of a shuffled epoch
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "tensor/base/format.h"
#include "train/generate/generate.h"
#include "train/tasks/block_sizes.h"
#include "train/tasks/sequence_reader.h"
#include "train/tasks/task.h"
#include "train/tasks/text_data.h"
#include "train/text/corpus.h"
#include "train/text/sentencepiece_tokenizer.h"
#include "train/text/text_measures.h"
#include "train/words/human_text.h"
#include "train/words/utf8.h"

namespace eddy::training {
namespace {

using nlohmann::json;

class TextTask : public Task {
 public:
  // `training`: not only to be measured.
  TextTask(TextData data, const RunConfig& config, bool training)
      : data_(std::move(data)),
        config_(config),
        training_(training),
        validates_(!training || config.train.eval_every > 0),
        segment_(segment_length(config)),
        seed_(static_cast<std::uint64_t>(config.train.seed)) {}

  std::string name() const override { return data_.name; }
  bool may_read_ahead(std::int64_t) const override { return true; }
  const Tokenizer* tokenizer() const override { return data_.tokenizer.get(); }
  std::string data_sha256() const override { return data_.sha256; }
  std::vector<TextPhase> data_phases() const override { return data_.source_phases; }
  bool reads_files() const override { return true; }
  std::string beginning() const override {
    constexpr std::size_t kTokens = 100, kBytes = 100;
    const std::span<const std::int32_t> first = data_.part(0);
    std::string text = data_.tokenizer->decode(first.first(std::min(kTokens, first.size())));
    const bool whole = text.size() <= kBytes && first.size() <= kTokens;
    if (text.size() > kBytes) text.resize(kBytes);
    while (!text.empty() && utf8_until(text) + 4 > text.size() && utf8_until(text) < text.size())
      text.pop_back();  // a character that is cut
    return text + (whole ? "" : " ...");
  }
  std::vector<std::string> metric_names() const override {
    return {"loss",       "bits_per_byte", "bits_per_character", "word_perplexity", "tokens_per_word",
            "text_tokens"};
  }
  bool uses_seed(const EvalOptions& options) const override {
    return options.batches > 0 &&
           (value_is(config_.data.order, DataOrder::windows) || options.score_last > 0);
  }

  std::optional<Baselines> baselines(const std::function<bool()>& stop) const override {
    if (!validates_) return {};
    const Tokenizer& tokenizer = *data_.tokenizer;
    const TextSample training = sample_of(tokenizer, part(Split::train), kTrainingSample);
    const TextSample validation = sample_of(tokenizer, part(Split::valid), kValidationSample);
    if (training.text.empty() || validation.text.empty()) return {};
    // The vocabulary `char` is the alphabet of the whole text.
    const std::int64_t alphabet = tokenizer.name() == kCharTokenizer ? tokenizer.vocab_size() : 0;
    Baselines found = measure_baselines(training.text, validation.text, {.alphabet = alphabet, .stop = stop});
    found.training_is_part = training.is_part;
    found.validation_is_part = validation.is_part;
    return found;
  }
  std::int64_t epoch_tokens() const override { return std::ssize(part(Split::train)); }

  std::int64_t row_length() const override { return segment_; }
  std::string shorter_rows() const override { return shorter_segments(config_); }
  bool carries_state() const override { return texts_carry_state(config_); }

  void set_model_sizes(ModelConfig& model) const override {
    const std::int64_t vocab = data_.tokenizer->vocab_size();
    // Embedding tables for SentencePiece are often rounded up: T5's has 32128 rows for 32100 tokens.
    const std::string kind = data_.tokenizer->name();
    const bool rounded_up = kind == kSentencePiece && model.vocab > vocab;
    if (model.vocab != 0 && model.vocab != vocab && !rounded_up)
      fail<ConfigError>(
          "train: model.vocab is {} and the {} tokenizer of this text has {} tokens (leave model.vocab out, use the "
          "text the model was made for, or give its tokenizer by data.tokenizer: with ids the texts are token ids)",
          model.vocab, kind, vocab);
    if (model.n_out != 0 && model.n_out < vocab)
      fail<ConfigError>("train: model.n_out is {} and there are {} tokens to predict (leave it out)",
                        model.n_out, vocab);
    if (!value_is(model.readout, Readout::all))
      fail<ConfigError>(
          "train: model.readout is {} (text is scored at all positions; data.name chooses another task)",
          model.readout);
    if (!rounded_up) model.vocab = vocab;
  }

  std::string sample(const Model& model, std::int64_t tokens, std::uint64_t seed,
                     const std::function<bool()>& stop) const override {
    SampleOptions options;
    options.seed = seed;
    options.temperature = 0.8;
    std::string text;
    GenerateState state;
    generate(
        model, *data_.tokenizer, state, {}, tokens, options, [&](std::string_view piece) { text += piece; },
        stop);
    return text;
  }
  WordShare known_words(const std::string& text) const override {
    constexpr std::int64_t kMost = std::int64_t{1} << 24;  // of the training text: a tenth of a second
    return words_known_from(text, sample_of(*data_.tokenizer, part(Split::train), kMost).text);
  }

 protected:
  // The tokens of a split.
  // errors: ValueError for a split that the text does not have.
  virtual std::span<const std::int32_t> part(Split split) const = 0;

  std::string vocabulary() const {
    return fmt::format("vocabulary {} ({})", data_.tokenizer->vocab_size(), data_.tokenizer->name());
  }
  // The evaluation by EvalOptions::score_last.
  EvalResult evaluate_last_of(const Model& model, const std::vector<std::span<const std::int32_t>>& texts,
                              const EvalOptions& options, const EvalProgress& progress) const {
    TextMeasure measure(*data_.tokenizer, data_.cover);
    EvalResult result = evaluate_last(model, texts, segment_, options, progress, plan_of(options, measure));
    for (auto& extra : measure.metrics(result.loss * static_cast<double>(result.tokens)))
      result.metrics.push_back(std::move(extra));
    return result;
  }
  // A plan that adds each batch to `measure`, and sums losses by the position in the segment if asked for.
  EvalPlan plan_of(const EvalOptions& options, TextMeasure& measure) const {
    EvalPlan plan;
    plan.capture = options.capture;
    plan.share = options.share;
    plan.on_batch = [&measure](const Batch& batch, std::span<const double>) { measure.add(batch); };
    if (options.by_position) plan.position = [this](std::int64_t i) { return i % segment_; };
    return plan;
  }
  [[noreturn]] void refuse_split(Split split) const {
    fail<ValueError>(
        "eval: a text has no split \"{}\" (valid, train, all; test where data.test or the folder gives one)",
        value_name(split));
  }
  // How many of `all` tokens, or files, are kept for the test: floor(data.test * all).
  std::int64_t test_count(std::int64_t all) const { return part_of(config_.data.test, all); }
  // Where the training tokens of one text end.
  // errors: ValueError when a split has fewer than one segment and one token; where nothing is evaluated, only
  // training needs that.
  std::int64_t cut_tokens() const {
    const std::int64_t all = std::ssize(data_.tokens), test = test_count(all);
    if (!validates_) {
      const std::int64_t part = part_of(config_.data.split, all);
      if (part <= segment_)
        fail<ValueError>(
            "data: {} has too few tokens to train on: {}, and a segment of {} needs {} (take a longer text, a shorter "
            "train.sequence, or data.split 1 for all {})",
            data_.name, part, segment_, segment_ + 1, all);
      return part;
    }
    const std::int64_t before = part_of(config_.data.split, all);
    if (!training_ && (before <= segment_ || all - before <= segment_))
      fail<ValueError>(
          "data: {} has too few tokens for this split: {} are the training part and {} are not, and a row of {} needs {} "
          "(take a longer text, a shorter train.sequence, or --split all, which reads the whole text)",
          data_.name, before, all - before, segment_, segment_ + 1);
    const std::int64_t train = training_part(all, config_.data.split, segment_);
    if (test == 0) return train;
    if (all - test - train <= segment_ || test <= segment_)
      fail<ValueError>(
          "data: {} leaves {} tokens to validate and {} for the test (each needs {}, a segment and one: "
          "data.split {}, data.test {})",
          data_.name, all - test - train, test, segment_ + 1, config_.data.split, config_.data.test);
    return train;
  }
  // Whether tokens are words or parts of words. Of characters and bytes the word perplexity says nothing that bits
  // per byte do not.
  bool counts_words(const EvalOptions& options) const {
    return options.by_words || data_.tokenizer->name() == kSentencePiece;
  }
  // Adds word_perplexity = exp(all nats / words). Tokens that are read but not predicted count with the mean
  // loss.
  static void add_word_perplexity(EvalResult& result, std::int64_t tokens, std::int64_t words,
                                  const EvalOptions& options) {
    if (words == 0) return;
    const double per_word = static_cast<double>(tokens) / static_cast<double>(words);
    result.metrics.emplace_back("word_perplexity", std::exp(result.loss * per_word));
    if (!options.by_words) return;
    result.metrics.emplace_back("tokens_per_word", per_word);
    result.metrics.emplace_back("text_tokens", static_cast<double>(tokens));
  }

  const TextData data_;
  const RunConfig config_;
  const bool training_;
  const bool validates_;  // whether the validation part is needed
  const std::int64_t segment_;
  const std::uint64_t seed_;
};

// Batches of random windows, a pure function of (seed, step, micro).
class WindowsTask final : public TextTask {
 public:
  WindowsTask(TextData data, const RunConfig& config, bool training)
      : TextTask(std::move(data), config, training) {
    if (training) train_tokens_ = cut();
  }

  std::string summary() const override {
    return fmt::format("{} training and {} validation tokens, {}", train_tokens_, valid_end() - train_tokens_,
                       vocabulary());
  }

  std::int64_t validation_rows() const override {
    return validates_ ? window_count(std::ssize(part(Split::valid)), segment_) : 0;
  }

  Batch next(std::int64_t step, std::int64_t micro) override {
    const std::int64_t rows = config_.train.batch;
    std::vector<std::int32_t> inputs(static_cast<std::size_t>(rows * segment_)), targets(inputs.size());
    sample_batch(std::span(data_.tokens).first(static_cast<std::size_t>(train_tokens_)), seed_,
                 static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(micro), rows, segment_,
                 inputs.data(), targets.data());
    Batch batch = make_batch(rows, std::move(inputs), std::move(targets));
    batch.block = drawn_block(config_.data, config_.train.seed, step, "text.block");
    return batch;
  }

  EvalResult evaluate(const Model& model, const EvalOptions& options,
                      const EvalProgress& progress) const override {
    const std::span<const std::int32_t> tokens = part(options.split);
    if (options.score_last > 0) return evaluate_last_of(model, {tokens}, options, progress);
    TextMeasure measure(*data_.tokenizer, data_.cover);
    const EvalPlan plan = plan_of(options, measure);
    EvalResult result = options.batches == 0
                            ? training::evaluate(model, tokens, segment_, options.batch, progress, plan,
                                                 options.sample * options.batch)
                            : evaluate_random(model, tokens, options.seed, options.batches, options.batch,
                                              segment_, progress, plan);
    result.metrics = measure.metrics(result.loss * static_cast<double>(result.tokens));
    const std::int64_t read = window_count(std::ssize(tokens), segment_) * segment_;
    if (counts_words(options) && options.batches == 0 && !result.is_part() && result.tokens == read)
      add_word_perplexity(
          result, read + 1,
          count_words(data_.tokenizer->decode(tokens.first(static_cast<std::size_t>(read + 1)))), options);
    return result;
  }

 private:
  std::int64_t length() const { return std::ssize(data_.tokens); }

  std::span<const std::int32_t> part(Split split) const override {
    const std::span<const std::int32_t> all = data_.tokens;
    if (split == Split::all) return all;
    const auto train = static_cast<std::size_t>(cut()), valid = static_cast<std::size_t>(valid_end());
    if (split == Split::train) return all.first(train);
    if (split == Split::valid) return all.subspan(train, valid - train);
    if (split == Split::test && valid < all.size()) return all.subspan(valid);
    refuse_split(split);
  }

  // Where the training tokens end.
  std::int64_t cut() const {
    if (!data_.has_splits()) return cut_tokens();
    const std::int64_t train = data_.ends[static_cast<std::size_t>(data_.train_parts - 1)];
    if (train <= segment_ || (validates_ && valid_end() - train <= segment_))
      fail<ValueError>("data: {} has {} training and {} validation tokens (each needs {}: a segment and one)",
                       data_.name, train, valid_end() - train, segment_ + 1);
    return train;
  }
  std::int64_t valid_end() const {
    return data_.has_splits()
               ? data_.ends[static_cast<std::size_t>(data_.train_parts + data_.valid_parts - 1)]
               : length() - test_count(length());
  }

  std::int64_t train_tokens_ = 0;
};

// Texts read from their beginning to their end, segment by segment.
class ReadingTask final : public TextTask {
 public:
  ReadingTask(TextData data, const RunConfig& config, bool training)
      : TextTask(std::move(data), config, training),
        documents_(value_is(config.data.order, DataOrder::documents)) {
    check_padding();
    if (!training) return;
    if (validates_)
      static_cast<void>(SequenceReader(sequences(Split::valid, config.train.batch), reading(true, 1)));
    ReadingOptions options = reading(false, config.train.batch);
    options.shuffle = separate_files();
    options.random_offset = value_is(config.data.offset, StreamOffset::random) && !documents_;
    reader_.emplace(sequences(Split::train, config.train.batch), options);
  }

  std::string summary() const override {
    const std::int64_t train = cut(data_.parts());
    if (!separate_files())
      return fmt::format("{} training and {} validation tokens read in {} {}, {}", train, valid_end() - train,
                         config_.train.batch, plural(config_.train.batch, "row"), vocabulary());
    return fmt::format("{} training and {} validation {} of {} tokens in all, {}", train, valid_end() - train,
                       documents_ ? "documents" : "streams", data_.tokens.size(), vocabulary());
  }

  void set_model_sizes(ModelConfig& model) const override {
    TextTask::set_model_sizes(model);
    // Texts of different lengths end at different times, and their rows then begin the next one.
    if (!separate_files() || !carries_state() || config_.train.batch == 1) return;
    if (const auto setting = make_unallocated_model(model)->needs_equal_starts())
      fail<ConfigError>(
          "config: model.{} is \"{}\" and {} rows begin their texts at different times (set it to \"{}\", "
          "train.batch to 1, or train.carry_state to \"never\")",
          setting->key, setting->value, config_.train.batch, setting->instead);
  }

  // All batches of an evaluation have as many rows.
  std::int64_t validation_rows() const override {
    const std::int64_t batch = config_.train.batch;
    return validates_ ? std::min<std::int64_t>(batch, std::ssize(sequences(Split::valid, batch))) : 0;
  }

  Batch next(std::int64_t step, std::int64_t) override {
    if (reader_stands_at_begin_ && step > 0)
      fail<ValueError>(
          "task: the text is read in order and stands at its beginning, and the batch of step {} is asked for (Task::load "
          "what Task::save returned at that step, or set data.order to \"windows\", whose batches need the step alone)",
          step);
    reader_stands_at_begin_ = false;
    Batch batch;
    reader_->next(batch);
    return batch;
  }

  json save() const override {
    return reader_ ? json{{"order", config_.data.order}, {"reading", reader_->save()}} : json();
  }

  void load(const json& saved, const std::string& file) override {
    if (!reader_) return;  // an evaluation does not need the positions of training
    if (!saved.is_object() || saved.value("order", json()) != config_.data.order)
      fail<ConfigError>(
          "train: data.order is {} and {} was read in another order (resume with the same, or start a new "
          "run with --init-from)",
          config_.data.order, file);
    reader_->load(saved.value("reading", json()), file, data_.grown);
    reader_stands_at_begin_ = false;
  }

  EvalResult evaluate(const Model& model, const EvalOptions& options,
                      const EvalProgress& progress) const override {
    if (options.batch < 1) fail<ValueError>("evaluate: {} rows (at least 1)", options.batch);
    if (options.score_last > 0) {
      std::vector<std::span<const std::int32_t>> texts;
      for (const Sequence& sequence : sequences(options.split, 1)) texts.push_back(sequence.tokens);
      return evaluate_last_of(model, texts, options, progress);
    }
    const std::vector<Sequence> read = sequences(options.split, options.batch);
    SequenceReader reader(read, reading(true, std::min<std::int64_t>(options.batch, std::ssize(read))));
    TextMeasure measure(*data_.tokenizer, data_.cover);
    EvalPlan plan = plan_of(options, measure);
    plan.carry_state = carries_state();
    plan.clear_state = options.clear_state;
    plan.total = reader.targets();
    if (options.by_position) plan.position = [&](std::int64_t i) { return reader.position(i); };
    plan.batches = options.batches;
    if (options.batches == 0 && options.sample > 0) {
      // Of few texts there are fewer rows than asked for: as many more batches.
      const std::int64_t rows = std::min<std::int64_t>(options.batch, std::ssize(read));
      plan.batches = (options.sample * options.batch + rows - 1) / rows;
      plan.total = std::min(plan.total, plan.batches * rows * segment_);
    }
    bool whole = false;
    const auto next = [&](Batch& batch) {
      whole = !reader.next(batch);
      return !whole;
    };
    EvalResult result = evaluate_batches(model, next, plan, progress);
    result.metrics = measure.metrics(result.loss * static_cast<double>(result.tokens));
    if (Batch more; !whole && options.sample > 0) whole = !reader.next(more);
    result.of = whole ? result.tokens : reader.targets();
    if (whole && counts_words(options)) {
      const auto [tokens, words] = size_of(read);
      add_word_perplexity(result, tokens, words, options);
    }
    return result;
  }

 private:
  std::span<const std::int32_t> part(Split split) const override {
    const std::span<const std::int32_t> all_tokens = data_.tokens;
    const bool test = split == Split::test && valid_end() < all();
    if (split == Split::all) return all_tokens;
    if (split != Split::train && split != Split::valid && !test) refuse_split(split);
    // Where a file begins (of one text: a token).
    const auto place = [&](std::int64_t index) {
      if (!separate_files()) return static_cast<std::size_t>(index);
      return index == 0 ? 0 : static_cast<std::size_t>(data_.ends[static_cast<std::size_t>(index - 1)]);
    };
    const std::size_t train = place(cut(separate_files() ? data_.parts() : 1)), valid = place(valid_end());
    return split == Split::train   ? all_tokens.first(train)
           : split == Split::valid ? all_tokens.subspan(train, valid - train)
                                   : all_tokens.subspan(valid);
  }
  // Whether each file is read as a sequence of its own.
  bool separate_files() const { return !data_.files.empty(); }
  // The number of files (of one text: tokens).
  std::int64_t all() const { return separate_files() ? data_.parts() : std::ssize(data_.tokens); }

  ReadingOptions reading(bool once, std::int64_t rows) const {
    return {.rows = rows,
            .segment = segment_,
            .seed = seed_,
            .pad = documents_,
            .skip_zero = documents_ && config_.model.mask_token_zero,
            .once = once};
  }

  // The number of training files (of one text: tokens). The rest, without the test, is for validation.
  std::int64_t cut(std::int64_t files) const {
    const double fraction = config_.data.split;
    if (data_.has_splits()) return data_.train_parts;
    if (!separate_files()) return cut_tokens();
    const std::int64_t whole = part_of(fraction, files);
    if (!validates_) return std::clamp<std::int64_t>(whole, 1, valid_end());
    if (!(fraction > 0 && fraction < 1))
      fail<ValueError>(
          "data: data.split is {} (above 0 and below 1; 1 where nothing is evaluated: train.eval_every 0)",
          fraction);
    if (files < 2)
      fail<ValueError>(
          "data: {} has {} text (at least 2 are needed: the last ones validate; 1 where nothing is "
          "evaluated: train.eval_every 0)",
          data_.name, files);
    if (config_.data.test > 0 && (valid_end() == files || valid_end() < 2))
      fail<ValueError>("data: {} has {} {} (too few for data.test {}: each split needs one)", data_.name,
                       files, plural(files, "text"), config_.data.test);
    return std::clamp<std::int64_t>(whole, 1, valid_end() - 1);
  }
  // The number of files (of one text: tokens) before the test split.
  std::int64_t valid_end() const {
    if (data_.has_splits()) return data_.train_parts + data_.valid_parts;
    return all() - test_count(all());
  }

  // The sequences of a split. One text is cut into as many spans as there are rows, fewer when it is short.
  std::vector<Sequence> sequences(Split split, std::int64_t rows) const {
    const bool test = split == Split::test && valid_end() < all();
    if (split != Split::all && split != Split::train && split != Split::valid && !test) refuse_split(split);
    if (!separate_files()) {
      std::span<const std::int32_t> tokens = data_.tokens;
      if (split != Split::all) {
        const auto train = static_cast<std::size_t>(cut(1)), end = static_cast<std::size_t>(valid_end());
        tokens = split == Split::train   ? tokens.first(train)
                 : split == Split::valid ? tokens.subspan(train, end - train)
                                         : tokens.subspan(end);
      }
      if (split != Split::train) {  // training needs all its rows; an evaluation can have fewer
        const auto fitting = std::ssize(tokens) / (segment_ + 1);
        rows = std::clamp<std::int64_t>(fitting, 1, rows);
      }
      return equal_spans({tokens, {}}, rows);
    }
    const std::int64_t train = split == Split::all ? 0 : cut(data_.parts());
    const std::int64_t begin = test ? valid_end() : split == Split::valid ? train : 0;
    const std::int64_t end = split == Split::train ? train : split == Split::valid ? valid_end() : all();
    std::vector<Sequence> found;
    for (std::int64_t i = begin; i < end; ++i) found.push_back({data_.part(i), {}});
    return found;
  }

  // The tokens of what was read, and their words.
  std::pair<std::int64_t, std::int64_t> size_of(const std::vector<Sequence>& read) const {
    std::int64_t tokens = 0, words = 0;
    for (const Sequence& sequence : read) {
      std::size_t length = sequence.tokens.size();
      const auto segment = static_cast<std::size_t>(segment_);
      if (!documents_) length = (length - 1) / segment * segment + 1;
      tokens += static_cast<std::int64_t>(length);
      words += count_words(data_.tokenizer->decode(sequence.tokens.first(length)));
    }
    return {tokens, words};
  }

  // The padding token must not occur in texts.
  void check_padding() const {
    if (documents_ && config_.model.mask_token_zero && !data_.tokenizer->decode_one(0).empty())
      fail<ConfigError>(
          "config: with model.mask_token_zero token 0 is padding, and in the {} tokenizer it stands for text "
          "(set data.tokenizer = \"byte260\", or model.mask_token_zero = false)",
          data_.tokenizer->name());
  }

  const bool documents_;
  std::optional<SequenceReader> reader_;  // of training
  bool reader_stands_at_begin_ = true;
};

std::unique_ptr<Task> make_text(TaskArguments&& arguments) {
  const DataConfig& keys = arguments.config.data;
  check_block_sizes(arguments.config, arguments.training);
  const std::int64_t block_max = keys.extensions.get<BlockKeys>().block_max;
  // A carried state has the size of the block before.
  if (arguments.training && block_max > 0 &&
      (!value_is(keys.order, DataOrder::windows) ||
       value_is(arguments.config.train.carry_state, CarryState::always)))
    fail<ConfigError>(
        "config: data.block_max is {} with data.order \"{}\" and train.carry_state \"{}\" (block sizes are drawn for "
        "windows without a carried state)",
        block_max, keys.order, arguments.config.train.carry_state);
  if (!value_named<DataOrder>(keys.order))  // set by a program
    fail<ConfigError>("config: data.order is \"{}\" ({})", keys.order, value_choice<DataOrder>());
  TextData data = read_text_data(arguments);
  const bool training = arguments.training;
  if (value_is(arguments.config.data.order, DataOrder::windows))
    return std::make_unique<WindowsTask>(std::move(data), arguments.config, training);
  return std::make_unique<ReadingTask>(std::move(data), arguments.config, training);
}

void check_text_keys(const RunConfig& config) {
  if (value_is(config.data.offset, StreamOffset::random) && !value_is(config.data.order, DataOrder::stream))
    fail<ConfigError>("config: data.offset is {} with data.order {} (only a stream has an offset)",
                      config.data.offset, config.data.order);
  const std::string& separator = config.data.separator;
  const bool cuts = !config.data.json_field.empty() || (!separator.empty() && separator != kEndOfText);
  if (cuts && value_is(config.data.document, DocumentUnit::folder))
    fail<ConfigError>(
        "config: data.document is folder, which joins files to one document, and data.{} cuts them (leave one out)",
        config.data.json_field.empty() ? "separator" : "json_field");
}

}  // namespace

TaskEntry text_task() {
  return {
      .name = "text",
      .summary = "the next token of a text",
      .make = make_text,
      .common = "path tokenizer split test order document separator json_field offset block_min block_max",
      .data_sets = "tinyshakespeare enwik8 tinystories",
      .check = check_text_keys};
}

}  // namespace eddy::training
