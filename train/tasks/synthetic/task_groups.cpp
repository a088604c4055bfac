// The running product in a group: each token is an element, and its answer the product of all elements so far. What a
// model must keep is one element, whatever the length; whether it can follow the product depends on the group.
// Products in Z2 and Z3 are sums, S3 is the smallest group whose products do not commute, and A5 and S5 are not
// solvable: no constant number of layers that see a sequence at once follows those at every length, unless TC0 = NC1.
//
//   token    x_1   x_2        x_3            x_t in 0 .. order - 1
//   answer   x_1   x_1 x_2    x_1 x_2 x_3    the permutation x_1 first, then x_2
//
// source: Liu et al., "Transformers learn shortcuts to automata" (2023); Merrill et al., "The illusion of state in
// state-space models" (2024). The construction is this project's.
#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <utility>

#include "tensor/base/format.h"
#include "train/tasks/synthetic/synthetic_task.h"

namespace eddy::training {
namespace {

constexpr const char* kGroups = "groups";

struct GroupKeys {
  std::string group = "s3";

  friend bool operator==(const GroupKeys&, const GroupKeys&) = default;
};

void describe(KeyList& keys, GroupKeys& c) {
  keys.list_before("stop_loss");
  keys.add("group", c.group, "Group whose products the model follows: cyclic, symmetric or alternating",
           {"z2", "z3", "s3", "a5", "s5"});
}

using Permutation = std::vector<std::int32_t>;

bool is_even(const Permutation& p) {
  int inversions = 0;
  for (std::size_t i = 0; i < p.size(); ++i)
    for (std::size_t j = i + 1; j < p.size(); ++j) inversions += p[i] > p[j] ? 1 : 0;
  return inversions % 2 == 0;
}

bool is_rotation(const Permutation& p) {
  const auto points = static_cast<std::int32_t>(p.size());
  for (std::int32_t i = 0; i < points; ++i)
    if (p[static_cast<std::size_t>(i)] != (p[0] + i) % points) return false;
  return true;
}

// The elements of a group as permutations, in lexicographic order: the first is the identity.
std::vector<Permutation> elements_of(const std::string& group) {
  Permutation p(static_cast<std::size_t>(group[1] - '0'));
  std::iota(p.begin(), p.end(), 0);
  std::vector<Permutation> elements;
  do {
    if (group[0] == 's' || (group[0] == 'a' ? is_even(p) : is_rotation(p))) elements.push_back(p);
  } while (std::next_permutation(p.begin(), p.end()));
  return elements;
}

class GroupsTask final : public SyntheticTask {
 public:
  explicit GroupsTask(const RunConfig& run)
      : SyntheticTask(run), group_(run.data.extensions.get<GroupKeys>().group) {
    const std::vector<Permutation> elements = elements_of(group_);
    order_ = std::ssize(elements);
    std::map<Permutation, std::int32_t> numbers;
    for (const Permutation& p : elements) numbers.emplace(p, static_cast<std::int32_t>(numbers.size()));
    for (const Permutation& a : elements)
      for (const Permutation& b : elements) {
        Permutation product(a.size());
        for (std::size_t i = 0; i < a.size(); ++i) product[i] = b[static_cast<std::size_t>(a[i])];
        products_.push_back(numbers.at(product));
      }
  }

  bool may_read_ahead(std::int64_t) const override { return true; }
  std::string name() const override { return kGroups; }
  std::string summary() const override {
    return fmt::format("products of {} elements of {}, which has {}", row_length(), group_, order_);
  }

  void set_model_sizes(ModelConfig& model) const override {
    fit_tokens(model, order_, order_, fmt::format("{} has {} elements", group_, order_),
               "each element has an answer");
  }

 private:
  Batch draw(const RandomKey& key, std::int64_t rows) const override {
    std::vector<std::int32_t> tokens, answers;
    for (std::int64_t i = 0; i < rows * row_length(); ++i) {
      const std::uint64_t word = key.word(static_cast<std::uint64_t>(i));
      tokens.push_back(static_cast<std::int32_t>((word * static_cast<std::uint64_t>(order_)) >> 32));
      answers.push_back(i % row_length() == 0 ? tokens.back() : product(answers.back(), tokens.back()));
    }
    return make_batch(rows, std::move(tokens), std::move(answers), {});
  }

  std::int32_t product(std::int32_t a, std::int32_t b) const {
    return products_[static_cast<std::size_t>(a * order_ + b)];
  }

  const std::string group_;
  std::int64_t order_ = 0;
  std::vector<std::int32_t> products_;  // [order, order]
};

}  // namespace

TaskEntry groups_task() {
  return {.name = kGroups,
          .summary = "the product of a stream of elements of a group so far",
          .make = [](TaskArguments&& arguments) -> std::unique_ptr<Task> {
            return std::make_unique<GroupsTask>(arguments.config);
          },
          .describe = describe_keys_of<GroupKeys>};
}

}  // namespace eddy::training
