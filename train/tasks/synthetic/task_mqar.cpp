// Multi-query associative recall: pairs of a key and a value, then questions that name keys, in any order and with
// repetition; the answer is the value beside the key. What a model must keep grows with the number of pairs.
//
//   token    k1  v1  k2  v2  ...  kn  vn   k2  k7  k2  ...      the keys of a row differ
//   answer    .   .   .   .  ...   .   .   v2  v7  v2  ...      . not scored
//
//   id       0 .. alphabet - 1              keys
//            alphabet .. 2 alphabet - 1     values
//
// source: Arora et al., "Zoology: measuring and improving recall in efficient language models" (2023), whose questions
// stand at distances by a power law, with other tokens between them; here every token behind the pairs is a question.
#include <numeric>
#include <utility>

#include "tensor/base/format.h"
#include "train/tasks/synthetic/synthetic_task.h"

namespace eddy::training {
namespace {

constexpr const char* kMqar = "mqar";

struct MqarKeys {
  std::int64_t pairs = 4;
  std::int64_t alphabet = 64;

  friend bool operator==(const MqarKeys&, const MqarKeys&) = default;
};

void describe(KeyList& keys, MqarKeys& c) {
  keys.list_before("stop_loss");
  keys.add("pairs", c.pairs, "Pairs of a key and a value at the beginning of a row", {1, 65'536});
  keys.add("alphabet", c.alphabet, "Number of different keys, and of different values", {1, 65'536});
}

class MqarTask final : public SyntheticTask {
 public:
  explicit MqarTask(const RunConfig& run) : SyntheticTask(run), keys_(run.data.extensions.get<MqarKeys>()) {
    if (2 * keys_.pairs >= row_length())
      fail<ConfigError>(
          "config: data.pairs is {} and a row has {} tokens (at least one more than {}: questions follow)",
          keys_.pairs, row_length(), 2 * keys_.pairs);
  }

  bool may_read_ahead(std::int64_t) const override { return true; }
  std::string name() const override { return kMqar; }
  std::string summary() const override {
    return fmt::format("{} pairs of {} keys and values, then {} questions", keys_.pairs, keys_.alphabet,
                       row_length() - 2 * keys_.pairs);
  }

  void set_model_sizes(ModelConfig& model) const override {
    fit_tokens(model, 2 * keys_.alphabet, 2 * keys_.alphabet,
               fmt::format("mqar has {} keys and as many values", keys_.alphabet),
               "each question has an answer");
  }

 private:
  Batch draw(const RandomKey& key, std::int64_t rows) const override {
    std::vector<std::int32_t> tokens, answers;
    std::uint64_t drawn = 0;
    const auto below = [&](std::int64_t count) {
      const std::uint64_t word = key.word(drawn++);
      return static_cast<std::int64_t>((word * static_cast<std::uint64_t>(count)) >> 32);
    };
    const auto add = [&](std::int64_t token, std::int64_t answer) {
      tokens.push_back(static_cast<std::int32_t>(token));
      answers.push_back(static_cast<std::int32_t>(answer));
    };
    std::vector<std::int64_t> names(static_cast<std::size_t>(keys_.alphabet)), values;
    for (std::int64_t row = 0; row < rows; ++row) {
      std::iota(names.begin(), names.end(), 0);
      values.clear();
      for (std::int64_t i = 0; i < keys_.pairs; ++i) {  // the first of a shuffle
        std::swap(names[static_cast<std::size_t>(i)],
                  names[static_cast<std::size_t>(i + below(keys_.alphabet - i))]);
        values.push_back(keys_.alphabet + below(keys_.alphabet));
        add(names[static_cast<std::size_t>(i)], kNotScored);
        add(values.back(), kNotScored);
      }
      for (std::int64_t t = 2 * keys_.pairs; t < row_length(); ++t) {
        const auto asked = static_cast<std::size_t>(below(keys_.pairs));
        add(names[asked], values[asked]);
      }
    }
    return make_batch(rows, std::move(tokens), std::move(answers), {});
  }

  const MqarKeys keys_;
};

// errors: ConfigError when the keys of a row cannot differ.
void check_mqar_keys(const RunConfig& config) {
  const auto& keys = config.data.extensions.get<MqarKeys>();
  if (keys.pairs > keys.alphabet)
    fail<ConfigError>("config: data.pairs is {} and data.alphabet {} (the keys of a row differ)", keys.pairs,
                      keys.alphabet);
}

}  // namespace

TaskEntry mqar_task() {
  return {.name = kMqar,
          .summary = "the values of keys that stood in pairs at the beginning",
          .make = [](TaskArguments&& arguments) -> std::unique_ptr<Task> {
            return std::make_unique<MqarTask>(arguments.config);
          },
          .describe = describe_keys_of<MqarKeys>,
          .check = check_mqar_keys};
}

}  // namespace eddy::training
