// Sums over the GPUs of several processes, whose calls of NCCL the emulation answers: their bits, when they are on
// their way, and how they end where another process fails. What ranks compare of their GPUs.
#include <doctest/doctest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autograd/tape.h"
#include "ops/backends.h"
#include "ops/core/peers.h"
#include "ops/core/product_algorithms.h"
#include "ops/pointwise/pointwise.h"
#include "ops/product/matmul.h"
#include "ops/reduce/reduce.h"
#include "tensor/base/error.h"
#include "tests/emulation/emulation.h"
#include "tests/emulation/proposals.h"
#include "tests/support/errors.h"
#include "tests/train/step/gradient_keeper.h"
#include "train/ranks/tree_collective.h"
#include "train/step/reducer.h"
#include "train/step/step_messages.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;
using emulation::PeerFault;

// Says when an exchange begins.
class WatchedPeers final : public Peers {
 public:
  WatchedPeers(std::unique_ptr<Peers> peers, std::function<void()> begins)
      : peers_(std::move(peers)), begins_(std::move(begins)) {}
  void exchange(int peer, const Tensor& out, const Tensor& in) override {
    if (begins_) begins_();
    peers_->exchange(peer, out, in);
  }
  void beside(const std::function<void()>& work) override { peers_->beside(work); }
  void finish() override { peers_->finish(); }
  void abort() noexcept override { peers_->abort(); }
  void set_timeout(double seconds) override { peers_->set_timeout(seconds); }

 private:
  std::unique_ptr<Peers> peers_;
  std::function<void()> begins_;
};

std::string name_of_rank(int rank) {
  return "rank " + std::to_string(rank);
}

// Rank 1 of two, with peers for the memory of its GPU. On the host the other one says what this one does.
class GpuRanks final : public Ranks {
 public:
  explicit GpuRanks(double timeout = 0, std::function<void()> begins = {})
      : peers_(join_peers(make_peers_id(), 1, 2, 0, name_of_rank), std::move(begins)) {
    peers_.set_timeout(timeout);
  }
  int rank() const override { return 1; }
  int size() const override { return 2; }
  std::string name(int rank) const override { return name_of_rank(rank); }
  void set_timeout(double seconds) override { peers_.set_timeout(seconds); }
  std::unique_ptr<Exchange> begin(int, std::span<const std::byte> out, std::span<std::byte> in,
                                  int) override {
    std::copy(out.begin(), out.end(), in.begin());
    return std::make_unique<Done>();
  }
  Peers& peers() override { return peers_; }

 private:
  class Done final : public Exchange {
   public:
    bool done() override { return true; }
    void wait(Patience) override {}
    bool take_back() override { return true; }
  };
  WatchedPeers peers_;
};

std::vector<unsigned char> bytes_of(const std::vector<float>& numbers, std::int64_t begin, std::int64_t end) {
  std::vector<unsigned char> bytes(static_cast<std::size_t>(end - begin) * sizeof(float));
  std::memcpy(bytes.data(), numbers.data() + begin, bytes.size());
  return bytes;
}

std::vector<float> numbers_of(const std::vector<unsigned char>& bytes) {
  std::vector<float> numbers(bytes.size() / sizeof(float));
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

std::vector<float> on_cpu(const Tensor& x) {
  return raw::to_device(x, kCpu).to_vector<float>();
}

// Three parameters, each a bucket of its own; a micro-batch's loss reads them in order.
constexpr std::int64_t kCount = 64;

ParamStore params_on(Device device) {
  const auto declare = [](ParamStore& params) {
    for (const char* const name : {"first", "second", "third"})
      static_cast<void>(params.root().param(name, {kCount}, Init::normal(1)));
  };
  ParamStore counted;
  declare(counted);
  ParamStore params(counted, Dtype::f32, device);
  declare(params);
  return params;
}

void run_backward(const ParamStore& params, std::int64_t number, Device device) {
  Tensor loss;
  for (const Parameter& parameter : params.parameters()) {
    std::vector<float> g;
    for (std::int64_t i = 0; i < kCount; ++i)
      g.push_back(static_cast<float>((number + 3) * (i + 1) + parameter.offset) / 7);
    const Tensor term = sum(mul(parameter.value, raw::to_device(Tensor::from(g, {kCount}), device)));
    loss = loss.defined() ? loss + term : term;
  }
  backward(loss);
}

// What a step of two micro-batches does, alone or as one of two ranks; the gradients that the optimizer gets.
std::vector<float> gradients_of_step(ParamStore& params, Ranks* ranks, const ArenaBuckets* buckets) {
  GradientKeeper keeper(params);
  GradientReducer reducer(params, 2, {1, 1}, ranks, buckets);
  params.zero_gradients();
  for (std::int64_t number = ranks != nullptr ? ranks->rank() : 0; number < 2; ++number) {
    reducer.begin();
    run_backward(params, number, params.values().device());
    reducer.end();
  }
  reducer.finish();
  static_cast<void>(reducer.update(keeper, Tensor::zeros({1}, Dtype::u8), {}));
  return on_cpu(keeper.gradients);
}

// A sum that another process spoils; returns what is said of it.
std::string error_of_sum(double timeout, PeerFault fault) {
  const Device gpu = cuda_device();
  emulation::play_peers({}, fault);
  std::string error;
  {
    GpuRanks ranks(timeout);
    const Tensor x = Tensor::zeros({8}, Dtype::f32, gpu);
    error = error_of<DeviceError>([&] { all_reduce(ranks, x, {true, true}); });
    // It stays so: nobody takes what stands in the memory for the sum.
    CHECK(error_of<DeviceError>([&] { ranks.peers().finish(); }) == error);
    CHECK(error_of<DeviceError>([&] { synchronize(gpu); }) == error);
    // The GPU goes on: the process can end in order.
    CHECK(on_cpu(Tensor::full({3}, 2, Dtype::f32, gpu)) == std::vector<float>{2, 2, 2});
  }
  emulation::play_peers({});
  CHECK_FALSE(emulation::peers_left_open());
  return error;
}

}  // namespace

TEST_CASE("peers: ranks add on their GPUs what NCCL brings, in the order of the stream") {
  CHECK(why_no_peers().empty());
  const Device gpu = cuda_device();
  const std::vector<float> own{1, 2, 3, 4, 5, 6, 7}, theirs{10, 20, 30, 40, 50, 60, 70};
  std::vector<std::vector<unsigned char>> received;
  // Rank 0: it keeps the first 3 numbers, and sends the others; then it sends its sum.
  emulation::play_peers([&](int peer, const std::vector<unsigned char>& sent, std::size_t) {
    CHECK(peer == 0);
    received.push_back(sent);
    return received.size() == 1 ? bytes_of(theirs, 3, 7) : bytes_of({11, 22, 33}, 0, 3);
  });
  {
    GpuRanks ranks;
    const Tensor x = raw::to_device(Tensor::from(own, {7}), gpu);
    all_reduce(ranks, x, {true, true});
    CHECK(on_cpu(x) == std::vector<float>{11, 22, 33, 44, 55, 66, 77});
    REQUIRE(received.size() == 2);
    CHECK(received[0] == bytes_of(own, 0, 3));
    CHECK(received[1] == bytes_of({44, 55, 66, 77}, 0, 4));
    // Without numbers of its own, a rank takes those of the other as they are.
    received.clear();
    const Tensor none = Tensor::full({7}, 1e30, Dtype::f32, gpu);
    emulation::play_peers([&](int, const std::vector<unsigned char>& sent, std::size_t) {
      received.push_back(sent);
      return received.size() == 1 ? bytes_of(theirs, 3, 7) : bytes_of(theirs, 0, 3);
    });
    all_reduce(ranks, none, {true, false});
    CHECK(on_cpu(none) == theirs);
    CHECK(received[0].empty());
  }
  emulation::play_peers({});
  CHECK_FALSE(emulation::peers_left_open());
}

TEST_CASE("peers: buckets leave while the backward pass computes others, with the bits of one process") {
  const Device gpu = cuda_device();
  ParamStore alone = params_on(gpu), shared = params_on(gpu);
  const std::vector<float> expected = gradients_of_step(alone, nullptr, nullptr);
  alone.zero_gradients();
  run_backward(alone, 0, gpu);
  const std::vector<float> theirs = on_cpu(alone.gradients());

  const ArenaBuckets buckets(shared, 2, false, 64);
  REQUIRE(buckets.all().size() == 3);
  // Rank 0, bucket by bucket from the last: it keeps the lower half, sends the upper one, then sends what it added.
  std::size_t bucket = 3;
  std::vector<float> added;
  emulation::play_peers([&](int, const std::vector<unsigned char>& sent, std::size_t) {
    if (!added.empty()) return bytes_of(std::exchange(added, {}), 0, kCount / 2);
    const BinaryTree& tree = buckets.all()[--bucket].tree;
    const BinaryTree::Part lower = tree.part(1, 0), upper = tree.part(1, 1);
    added = numbers_of(sent);
    for (std::size_t i = 0; i < added.size(); ++i)
      added[i] += theirs[static_cast<std::size_t>(lower.begin) + i];
    return bytes_of(theirs, upper.begin, upper.end);
  });
  int begun = 0;
  bool first_was_computed = true;
  {
    GpuRanks ranks(0, [&] {
      if (begun++ == 0) first_was_computed = grad(shared.parameters()[0].value).defined();
    });
    CHECK(gradients_of_step(shared, &ranks, &buckets) == expected);
  }
  CHECK(begun == 6);
  CHECK_FALSE(first_was_computed);
  emulation::play_peers({});
}

TEST_CASE("peers: one whose GPU hangs is named after train.rank_timeout, and the wait ends") {
  const std::string error = error_of_sum(0.05, PeerFault::hangs);
  CHECK(contains(error, "rank 1 waited"));
  CHECK(contains(error, "for the GPU of rank 0 within a step (it or its host hangs"));
}

TEST_CASE("peers: one that dies ends the wait at once, within a group of calls and after it") {
  CHECK(contains(error_of_sum(0, PeerFault::dies_later),
                 "rank 1 lost another GPU in an exchange with rank 0: remote process exited"));
  CHECK(contains(error_of_sum(0, PeerFault::dies), "ncclGroupEnd: remote process exited"));
}

TEST_CASE("peers: a call that fails within a group leaves none open") {
  CHECK(contains(error_of_sum(0, PeerFault::refuses), "ncclRecv: unhandled system error"));
}

TEST_CASE("peers: a rank that throws in its backward pass ends its exchanges, which write nothing any more") {
  const Device gpu = cuda_device();
  emulation::play_peers({}, PeerFault::hangs);
  {
    GpuRanks ranks;
    const auto step = [&] {
      const Tensor x = Tensor::zeros({8}, Dtype::f32, gpu);
      const TreeCollective sum(ranks, x, BinaryTree({0, 8}, 2), {true, true}, 1,
                               TreeCollective::Work::all_reduce);
      fail<ValueError>("a model that fails");
    };
    CHECK(error_of<ValueError>(step) == "a model that fails");
    CHECK(contains(error_of<DeviceError>([&] { ranks.peers().exchange(0, {}, {}); }),
                   "an error ended the exchange of the GPUs"));
    // The next tensor may get the memory of the sum.
    const Tensor next = Tensor::full({8}, 3, Dtype::f32, gpu);
    for (int i = 0; i < 16; ++i) static_cast<void>(Tensor::full({1000}, 1, Dtype::f32, gpu));
    CHECK(on_cpu(next) == std::vector<float>(8, 3));
  }
  emulation::play_peers({});
  CHECK_FALSE(emulation::peers_left_open());
}

TEST_CASE(
    "peers: what NCCL refuses is an error that says what to look at, and so is a rank that does not join") {
  static_cast<void>(cuda_device());
  const auto join = [](int rank) {
    static_cast<void>(join_peers(make_peers_id(), rank, 2, 0.05, name_of_rank));
  };
  CHECK(contains(error_of<DeviceError>([&] { join(2); }), "needs a GPU of its own"));
  emulation::play_peers({}, PeerFault::never_joins);
  CHECK(contains(error_of<DeviceError>([&] { join(1); }), "for the GPUs of all ranks to join"));
  emulation::play_peers({});
  CHECK_FALSE(emulation::peers_left_open());
}

TEST_CASE("peers: ranks with GPUs of one kind take the kernels of rank 0, and others refuse") {
  static_cast<void>(cuda_device());
  GpuRanks ranks;
  const auto error_with = [&](const std::string& kind, const std::string& kernels) {
    Message message;
    message.put(kind);
    message.put(kernels);
    message.put(ProductAlgorithms());
    return error_of<ConfigError>([&] { take_gpu(message, ranks); });
  };
  const auto now = [] { return describe(gpu_kernels().value()); };
  Message own;
  put_gpu(own);
  const std::string before = now();
  take_gpu(own, ranks);
  CHECK(now() == before);

  const std::string other = error_with("Other GPU, 8.0, cuBLASLt 12.4.2", before);
  CHECK(contains(other, "rank 1 has the GPU " + gpu_kind() + " and rank 0 has Other GPU, 8.0"));

  const std::string mma =
      "attention=mma,short_attention=mma,recurrence=plain,products=plain,gelu_products=plain,positions=plain,"
      "unit_recurrence=plain,tf32_attention=plain,wide_attention=plain,attention_backward=plain,algorithms=plain";
  Message message;
  message.put(gpu_kind());
  message.put(mma);
  message.put(ProductAlgorithms());
  take_gpu(message, ranks);
  CHECK(now() == mma);

  set_automatic_kernels("auto");
  refuse_gpu_kernels("attention=mma");
  CHECK(contains(error_with(gpu_kind(), mma), "attention=mma is refused on this GPU"));
  CHECK(now() == before);
  refuse_gpu_kernels("");
  set_gpu_kernels("attention=plain");
  CHECK(contains(error_with(gpu_kind(), mma), "which differ in their bits (the same EDDY_KERNELS"));
}

TEST_CASE("peers: ranks multiply by the algorithms of rank 0, and refuse what they cannot") {
  static_cast<void>(cuda_device());
  GpuRanks ranks;
  const Proposed four;
  set_gpu_kernels("plain,algorithms=timed");
  {
    const ProductTiming timing;
    const Tensor x = Tensor::full({4, 4}, 1, Dtype::f32, cuda_device());
    static_cast<void>(matmul(x, x));
  }
  const ProductAlgorithms algorithms = product_algorithms();
  REQUIRE(algorithms.size() == 2);
  Message own;
  put_gpu(own);
  set_product_algorithms({});
  take_gpu(own, ranks);
  CHECK(product_algorithms() == algorithms);

  Message damaged;
  damaged.put(gpu_kind());
  damaged.put(describe(gpu_kernels().value()));
  damaged.put(ProductAlgorithms{gpu_kind(), "none"});
  const std::string error = error_of<ConfigError>([&] { take_gpu(damaged, ranks); });
  CHECK(contains(error, "rank 1 cannot multiply as rank 0 does"));
  CHECK(contains(error, "EDDY_KERNELS=algorithms=plain"));
  CHECK(product_algorithms() == algorithms);
}
