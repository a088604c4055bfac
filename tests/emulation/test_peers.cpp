// Sums over the GPUs of several processes, whose calls of NCCL the emulation answers.
#include <doctest/doctest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "ops/backends.h"
#include "ops/core/peers.h"
#include "tensor/base/error.h"
#include "tests/emulation/emulation.h"
#include "tests/support/errors.h"
#include "train/ranks/tree_collective.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

// Rank 1 of two, with peers for the memory of its GPU.
class GpuRanks final : public Ranks {
 public:
  GpuRanks() : peers_(join_peers(make_peers_id(), 1, 2)) {}
  int rank() const override { return 1; }
  int size() const override { return 2; }
  std::string name(int rank) const override { return "rank " + std::to_string(rank); }
  void set_timeout(double) override {}
  std::unique_ptr<Exchange> begin(int, std::span<const std::byte>, std::span<std::byte>, int) override {
    return std::make_unique<Enqueued>();
  }
  std::unique_ptr<Exchange> begin_on_device(int other, const Tensor& out, const Tensor& in, int) override {
    peers_->exchange(other, out, in);
    return std::make_unique<Enqueued>();
  }

 private:
  class Enqueued final : public Exchange {
   public:
    bool done() override { return true; }
    void wait(Patience) override {}
    bool take_back() override { return true; }
  };
  std::unique_ptr<Peers> peers_;
};

std::vector<unsigned char> bytes_of(const std::vector<float>& numbers, std::size_t begin, std::size_t end) {
  std::vector<unsigned char> bytes((end - begin) * sizeof(float));
  std::memcpy(bytes.data(), numbers.data() + begin, bytes.size());
  return bytes;
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
  GpuRanks ranks;
  const Tensor x = raw::to_device(Tensor::from(own, {7}), gpu);
  all_reduce(ranks, x, {true, true});
  CHECK(raw::to_device(x, kCpu).to_vector<float>() == std::vector<float>{11, 22, 33, 44, 55, 66, 77});
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
  CHECK(raw::to_device(none, kCpu).to_vector<float>() == theirs);
  CHECK(received[0].empty());
  emulation::play_peers({});
}

TEST_CASE("peers: what NCCL refuses is an error that says what to look at") {
  static_cast<void>(cuda_device());
  CHECK(contains(error_of<DeviceError>([] { static_cast<void>(join_peers(make_peers_id(), 2, 2)); }),
                 "needs a GPU of its own"));
}
