// What ranks compute together, with threads in place of processes.
#include "train/ranks/tree_collective.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "tensor/base/error.h"
#include "tensor/memory/allocator.h"
#include "tests/support/errors.h"
#include "tests/train/ranks/thread_ranks.h"
#include "train/ranks/message.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

// Numbers whose sum depends on the order of the additions.
std::vector<float> numbers_of(std::size_t rank, std::size_t count) {
  std::vector<float> numbers(count);
  for (std::size_t i = 0; i < count; ++i)
    numbers[i] = (rank % 2 == 0 ? 1.0f : -0.37f) / static_cast<float>(1 + (7 * i + 3 * rank) % 11) +
                 (rank == 1 ? 1e6f : 0);
  return numbers;
}

// The sum of ranks [begin, end) as a tree; nothing if none is present.
std::vector<float> tree_sum(const std::vector<bool>& present, std::size_t begin, std::size_t end,
                            std::size_t count) {
  if (end - begin == 1) return present[begin] ? numbers_of(begin, count) : std::vector<float>{};
  const std::size_t middle = (begin + end) / 2;
  std::vector<float> left = tree_sum(present, begin, middle, count);
  const std::vector<float> right = tree_sum(present, middle, end, count);
  if (left.empty()) return right;
  for (std::size_t i = 0; i < right.size(); ++i) left[i] += right[i];
  return left;
}

// Rank 0 of two, whose partner never answers. Bytes on their way can be taken back, or not.
class Unanswered final : public Ranks {
 public:
  explicit Unanswered(bool gives_back) : gives_back_(gives_back) {}
  int rank() const override { return 0; }
  int size() const override { return 2; }
  std::string name(int) const override { return "rank"; }
  void set_timeout(double) override {}
  std::unique_ptr<Exchange> begin(int, std::span<const std::byte>, std::span<std::byte> in, int) override {
    return std::make_unique<Endless>(*this, in);
  }
  std::span<std::byte> taken_back;

 private:
  class Endless final : public Exchange {
   public:
    Endless(Unanswered& ranks, std::span<std::byte> in) : ranks_(ranks), in_(in) {}
    bool done() override { return false; }
    void wait(Patience) override { throw IoError("nobody answers"); }
    bool take_back() override {
      ranks_.taken_back = in_;
      return ranks_.gives_back_;
    }

   private:
    Unanswered& ranks_;
    std::span<std::byte> in_;
  };
  bool gives_back_;
};

}  // namespace

TEST_CASE("ranks: a sum that ends early takes back its bytes, or leaves them the memory that they move in") {
  constexpr std::int64_t kCount = 1 << 16;
  const auto live = [] { return allocator(kCpu).stats().live_bytes; };
  for (const bool gives_back : {true, false}) {
    CAPTURE(gives_back);
    Unanswered ranks(gives_back);
    const std::int64_t before = live();
    {
      const Tensor x = Tensor::full({kCount}, 1, Dtype::f32);
      CHECK_THROWS_AS(all_reduce(ranks, x, {true, true}), IoError);
    }
    CHECK(std::ssize(ranks.taken_back) == kCount / 2 * 4);
    CHECK((live() == before) == gives_back);
    if (!gives_back) {
      std::fill(ranks.taken_back.begin(), ranks.taken_back.end(), std::byte{7});  // as MPI may, at any time
      const Tensor other = Tensor::full({kCount / 2}, 1, Dtype::f32);
      CHECK(other.data<float>()[0] == 1);
      CHECK(ranks.taken_back[0] == std::byte{7});
    }
  }
}

TEST_CASE("ranks: the sum over ranks is that of the tree to the bit, with the least possible bytes sent") {
  for (const int size : {1, 2, 4, 8})
    for (const std::size_t count : {std::size_t{1}, std::size_t{7}, std::size_t{64}}) {
      CAPTURE(size);
      CAPTURE(count);
      const std::vector<bool> present(static_cast<std::size_t>(size), true);
      const std::vector<float> expected = tree_sum(present, 0, present.size(), count);
      std::vector<std::vector<float>> sums(present.size());
      std::vector<std::int64_t> sent(present.size());
      on_ranks(size, [&](ThreadRanks& ranks) {
        const auto rank = static_cast<std::size_t>(ranks.rank());
        const Tensor x = Tensor::from(numbers_of(rank, count), {static_cast<std::int64_t>(count)});
        all_reduce(ranks, x, present);
        sums[rank] = x.to_vector<float>();
        sent[rank] = ranks.sent;
      });
      for (const std::vector<float>& sum : sums) CHECK(sum == expected);
      if (count == 64)
        for (const std::int64_t bytes : sent) CHECK(bytes == 2 * 4 * 64 * (size - 1) / size);
    }
}

TEST_CASE("ranks: a rank without a part of the sum counts as nothing") {
  for (const std::vector<bool>& present : {std::vector<bool>{false, true, true, true},
                                           {true, false, false, false},
                                           {false, false, false, true},
                                           {false, false, true, true},
                                           {true, false, true, false}}) {
    const std::vector<float> expected = tree_sum(present, 0, 4, 5);
    std::vector<std::vector<float>> sums(4);
    on_ranks(4, [&](ThreadRanks& ranks) {
      const auto rank = static_cast<std::size_t>(ranks.rank());
      // The bytes of a rank without a part are not read.
      const Tensor x = Tensor::from(present[rank] ? numbers_of(rank, 5) : std::vector<float>(5, 1e30f), {5});
      all_reduce(ranks, x, present);
      sums[rank] = x.to_vector<float>();
    });
    for (const std::vector<float>& sum : sums) CHECK(sum == expected);
  }
}

TEST_CASE("ranks: several sums are on their way at once, each cut where it is asked for") {
  constexpr int kRanks = 4;
  constexpr std::size_t kCount = 12, kSums = 3;
  const std::vector<bool> present(kRanks, true);
  const std::vector<float> expected = tree_sum(present, 0, kRanks, kCount);
  // Unequal parts, some empty; the upper part goes to the lower ranks.
  const BinaryTree cuts({0, kCount}, kRanks, [](int level, int low, BinaryTree::Part part) {
    return BinaryTree::Cut{level == 0 ? 5 : low == 0 ? part.begin : part.end - 2, level == 1};
  });
  std::vector<int> wrong(kRanks);
  on_ranks(kRanks, [&](ThreadRanks& ranks) {
    const auto rank = static_cast<std::size_t>(ranks.rank());
    std::vector<Tensor> arrays;
    std::vector<std::unique_ptr<TreeCollective>> sums(kSums);
    for (std::size_t i = 0; i < kSums; ++i)
      arrays.push_back(Tensor::from(numbers_of(rank, kCount), {static_cast<std::int64_t>(kCount)}));
    // Ranks begin them in different orders, and finish them in one.
    for (std::size_t i = 0; i < kSums; ++i) {
      const std::size_t which = (i + rank) % kSums;
      sums[which] =
          std::make_unique<TreeCollective>(ranks, arrays[which], cuts, present, static_cast<int>(which) + 1,
                                           TreeCollective::Work::reduce_scatter);
      for (const auto& sum : sums)
        if (sum != nullptr) static_cast<void>(sum->advance());
    }
    for (const auto& sum : sums) sum->finish();
    const BinaryTree::Part own = cuts.shard(ranks.rank());
    for (const Tensor& array : arrays)
      for (std::int64_t i = own.begin; i < own.end; ++i)
        wrong[rank] += array.data<float>()[i] != expected[static_cast<std::size_t>(i)];
    for (std::size_t i = 0; i < kSums; ++i)
      TreeCollective(ranks, arrays[i], cuts, {}, static_cast<int>(i) + 1, TreeCollective::Work::all_gather)
          .finish();
    for (const Tensor& array : arrays) wrong[rank] += array.to_vector<float>() != expected;
  });
  for (const int count : wrong) CHECK(count == 0);
}

TEST_CASE("ranks: bytes of all ranks come together in order, and those of rank 0 go to all") {
  for (const int size : {1, 2, 8}) {
    std::vector<std::vector<std::byte>> gathered(static_cast<std::size_t>(size));
    std::vector<std::byte> told(static_cast<std::size_t>(size));
    on_ranks(size, [&](ThreadRanks& ranks) {
      const auto rank = static_cast<std::size_t>(ranks.rank());
      const std::vector<std::byte> own(3, std::byte(rank));
      gathered[rank] = all_gather(ranks, own);
      std::byte word{static_cast<unsigned char>(rank + 40)};
      broadcast(ranks, std::span(&word, 1));
      told[rank] = word;
    });
    std::vector<std::byte> expected;
    for (int rank = 0; rank < size; ++rank) expected.insert(expected.end(), 3, std::byte(rank));
    for (const std::vector<std::byte>& all : gathered) CHECK(all == expected);
    CHECK(std::count(told.begin(), told.end(), std::byte{40}) == size);
  }
}

TEST_CASE("ranks: a message gives back what was put into it, and its end is an error") {
  Message sent;
  sent.put(std::int64_t{7});
  sent.put(std::string("words"));
  sent.put(std::vector<std::int64_t>{1, 2, 3});
  sent.put(raw::narrow(Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3}), 1, 1, 2));  // strided
  sent.put(Tensor());
  sent.put(Tensor::zeros({0, 2}, Dtype::f64));
  std::vector<float> columns;
  on_ranks(2, [&](ThreadRanks& ranks) {
    if (ranks.rank() == 0) return sent.send(ranks, 1);
    Message got = Message::receive(ranks, 0);
    CHECK(got.get<std::int64_t>() == 7);
    CHECK(got.get_text() == "words");
    CHECK(got.get_numbers() == std::vector<std::int64_t>{1, 2, 3});
    columns = got.get_tensor().to_vector<float>();
    CHECK(!got.get_tensor().defined());
    CHECK(got.get_tensor().shape() == Shape{0, 2});
    CHECK(contains(error_of<IoError>([&] { static_cast<void>(got.get<int>()); }), "ends before"));
  });
  CHECK(columns == std::vector<float>{2, 3, 5, 6});
}
