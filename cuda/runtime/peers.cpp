// Exchanges over NCCL, which only moves bytes: a send and a receive, grouped, so that both are on their way at once.
//
// A peer that hangs or has ended must not hang this process. So the communicator does not block: NCCL's calls return at
// once, and are asked how they go until they are through. The host waits for the GPU by asking too, with a time limit,
// and never enqueues work of the GPU's stream behind an exchange that may not end.
#include "cuda/runtime/peers.h"

#include "tensor/base/error.h"
#include "tensor/base/format.h"

#ifdef EDDY_NCCL
#include <nccl.h>

#include <chrono>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include "cuda/runtime/stream.cuh"
#include "tensor/threads/pause.h"

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 14, 0)
#error "nccl.h is older than 2.14, which has no communicators that do not block: install a newer libnccl-dev"
#endif
#endif

namespace eddy::cuda {

#ifdef EDDY_NCCL
namespace {

using WaitClock = std::chrono::steady_clock;

double seconds_since(WaitClock::time_point start) {
  return std::chrono::duration<double>(WaitClock::now() - start).count();
}

void check_nccl(ncclResult_t result, const char* call) {
  if (result == ncclSuccess) return;
  fail<DeviceError>(
      "ranks: {}: {} (each process of a host needs a GPU of its own; NCCL_DEBUG=INFO says more)", call,
      ncclGetErrorString(result));
}

// A stream beside the GPU's own, and events for both. Without errors when it ends: what failed was said before.
class StreamBeside {
 public:
  StreamBeside() {
    static_cast<void>(stream());  // opens the GPU
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  }
  ~StreamBeside() {
    for (const cudaEvent_t event : all_) cudaEventDestroy(event);
    cudaStreamDestroy(stream_);
  }
  StreamBeside(const StreamBeside&) = delete;
  StreamBeside& operator=(const StreamBeside&) = delete;

  cudaStream_t get() const { return stream_; }
  // Records an event behind what the stream has so far; give it back with give_event.
  cudaEvent_t mark() {
    const cudaEvent_t event = take_event();
    check(cudaEventRecord(event, stream_), "cudaEventRecord");
    return event;
  }
  void give_event(cudaEvent_t event) { unused_.push_back(event); }
  // What this stream gets from now on waits for what the GPU's stream has so far.
  void follow() { order(stream_, stream()); }
  // The other way round.
  void lead() { order(stream(), stream_); }
  static bool reached(cudaEvent_t event) {
    const cudaError_t now = cudaEventQuery(event);
    if (now != cudaErrorNotReady) check(now, "cudaEventQuery");
    return now == cudaSuccess;
  }

 private:
  cudaEvent_t take_event() {
    if (unused_.empty()) {
      cudaEvent_t event = nullptr;
      check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
      all_.push_back(event);
      unused_.push_back(event);
    }
    const cudaEvent_t event = unused_.back();
    unused_.pop_back();
    return event;
  }
  void order(cudaStream_t later, cudaStream_t earlier) {
    const cudaEvent_t event = take_event();  // once it is waited for it may be recorded anew
    unused_.push_back(event);
    check(cudaEventRecord(event, earlier), "cudaEventRecord");
    check(cudaStreamWaitEvent(later, event, 0), "cudaStreamWaitEvent");
  }

  cudaStream_t stream_ = nullptr;
  std::vector<cudaEvent_t> all_, unused_;
};

// Calls of NCCL that begin together. It is closed also when one of them throws: an open group would keep back every
// call after it.
class Group {
 public:
  Group() { check_nccl(ncclGroupStart(), "ncclGroupStart"); }
  ~Group() {
    if (open_) static_cast<void>(ncclGroupEnd());
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ncclResult_t end() {
    open_ = false;
    return ncclGroupEnd();
  }

 private:
  bool open_ = true;
};

class NcclPeers final : public Peers {
 public:
  NcclPeers(const PeersId& id, int rank, int size, double timeout, std::function<std::string(int)> name)
      : rank_(rank), timeout_(timeout), name_(std::move(name)) {
    ncclUniqueId unique;
    static_assert(sizeof unique == sizeof(PeersId));
    std::memcpy(&unique, id.data(), sizeof unique);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    or_abort([&] {
      settle(ncclCommInitRankConfig(&comm_, size, unique, rank, &config), "ncclCommInitRankConfig",
             [] { return std::string("the GPUs of all ranks to join"); });
    });
    wait_also([this] { finish(); });
  }

  ~NcclPeers() override {
    wait_also(nullptr);
    if (comm_ == nullptr) return;
    // The others may have ended by an error, and do not answer.
    constexpr double kLeave = 10;
    if (!(timeout_ > 0 && timeout_ < kLeave)) timeout_ = kLeave;
    try {
      settle(ncclCommFinalize(comm_), "ncclCommFinalize", [] { return std::string("the others to leave"); });
      ncclCommDestroy(std::exchange(comm_, nullptr));
    } catch (const Error&) {
      abort();
    }
  }

  void exchange(int peer, const Tensor& out, const Tensor& in) override {
    const auto has_bytes = [](const Tensor& x) { return x.defined() && x.bytes() > 0; };
    const auto bytes = [](const Tensor& x) { return static_cast<std::size_t>(x.bytes()); };
    or_abort([&] {
      // A launch waits where a stream has some thousand already, and would not end where an exchange does not.
      constexpr std::size_t kMostPending = 64;
      wait_until([&] { return pending_.size() < kMostPending; });
      beside_.follow();
      Pending next{peer, beside_.mark()};
      Group group;
      if (has_bytes(out))
        check_nccl(ncclSend(out.raw_data(), bytes(out), ncclUint8, peer, comm_, beside_.get()), "ncclSend");
      if (has_bytes(in))
        check_nccl(ncclRecv(in.raw_data(), bytes(in), ncclUint8, peer, comm_, beside_.get()), "ncclRecv");
      // Once it is settled, its kernel is on the stream. The first of two ranks waits for the other to come.
      settle(group.end(), "ncclGroupEnd", [&] { return gpu_of(peer); });
      next.done = beside_.mark();
      pending_.push_back(next);
    });
  }

  void beside(const std::function<void()>& work) override {
    or_abort([&] {
      beside_.follow();
      const OnStream here(beside_.get());
      work();
    });
  }

  void finish() override {
    or_abort([&] {
      const cudaEvent_t last = beside_.mark();
      wait_until([&] { return StreamBeside::reached(last); });
      beside_.give_event(last);
    });
  }

  void abort() noexcept override {
    if (comm_ == nullptr) return;
    ncclCommAbort(std::exchange(comm_, nullptr));  // its kernels on this GPU end
    if (why_ended_.empty()) why_ended_ = "an error ended the exchange of the GPUs";
    try {
      // The sums that were enqueued are still made, in memory that others may get.
      beside_.lead();
    } catch (const Error&) {
      // The GPU failed, and does nothing any more.
    }
  }

  void set_timeout(double seconds) override { timeout_ = seconds; }

 private:
  // An exchange on its way: the stream has come to it, and it is done.
  struct Pending {
    int peer;
    cudaEvent_t begins;
    cudaEvent_t done = nullptr;
    bool begun = false;
    WaitClock::time_point since{};  // it was seen to have begun
  };

  // Does what may fail. Once something has, all exchanges end.
  template <class Work>
  void or_abort(const Work& work) {
    if (!why_ended_.empty()) fail<DeviceError>("{}", why_ended_);
    try {
      work();
    } catch (const Error& error) {
      why_ended_ = error.what();
      abort();
      throw;
    }
  }

  std::string gpu_of(int peer) const { return "the GPU of " + name_(peer) + " within a step"; }

  template <class Who>
  [[noreturn]] void give_up(double waited, const Who& who) const {
    fail<DeviceError>(
        "ranks: {} waited {:.0f} s for {} (it or its host hangs, or train.rank_timeout is too short)",
        name_(rank_), waited, who());
  }

  // Waits until what a call of NCCL has begun is enqueued; the next call must not come before.
  template <class Who>
  void settle(ncclResult_t result, const char* call, const Who& who) {
    for (const auto start = WaitClock::now(); result == ncclInProgress;) {
      check_nccl(ncclCommGetAsyncError(comm_, &result), "ncclCommGetAsyncError");
      const double waited = seconds_since(start);
      if (result == ncclInProgress && timeout_ > 0 && waited > timeout_) give_up(waited, who);
      if (result == ncclInProgress) pause_after(waited);
    }
    check_nccl(result, call);
  }

  template <class Condition>
  void wait_until(const Condition& is_so) {
    for (const auto start = WaitClock::now(); look(), !is_so();) pause_after(seconds_since(start));
  }

  // Forgets the exchanges that are done, and ends all where one does not go on.
  void look() {
    while (!pending_.empty() && StreamBeside::reached(pending_.front().done)) {
      beside_.give_event(pending_.front().begins);
      beside_.give_event(pending_.front().done);
      pending_.pop_front();
    }
    ncclResult_t state = ncclSuccess;
    check_nccl(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError");
    if (state != ncclSuccess && state != ncclInProgress)
      fail<DeviceError>(
          "ranks: {} lost another GPU{}: {} (its rank ended, or its host is out of reach; NCCL_DEBUG=INFO says more)",
          name_(rank_), pending_.empty() ? "" : " in an exchange with " + name_(pending_.front().peer),
          ncclGetErrorString(state));
    if (pending_.empty()) return;
    Pending& first = pending_.front();
    // Until then this GPU has work of its own to do.
    if (!first.begun && StreamBeside::reached(first.begins)) {
      first.begun = true;
      first.since = WaitClock::now();
    }
    if (!first.begun || !(timeout_ > 0)) return;
    if (const double waited = seconds_since(first.since); waited > timeout_)
      give_up(waited, [&] { return gpu_of(first.peer); });
  }

  int rank_;
  double timeout_;
  std::function<std::string(int)> name_;
  StreamBeside beside_;
  ncclComm_t comm_ = nullptr;
  std::deque<Pending> pending_;
  std::string why_ended_;
};

}  // namespace

std::string why_no_peers() {
  return "";
}

PeersId make_peers_id() {
  ncclUniqueId unique;
  check_nccl(ncclGetUniqueId(&unique), "ncclGetUniqueId");
  PeersId id;
  std::memcpy(id.data(), &unique, sizeof unique);
  return id;
}

std::unique_ptr<Peers> join_peers(const PeersId& id, int rank, int size, double timeout,
                                  std::function<std::string(int)> name) {
  return std::make_unique<NcclPeers>(id, rank, size, timeout, std::move(name));
}

#else

std::string why_no_peers() {
  return "this build has no NCCL: install libnccl-dev and build again";
}

PeersId make_peers_id() {
  fail<DeviceError>("peers: {}", why_no_peers());
}

std::unique_ptr<Peers> join_peers(const PeersId&, int, int, double, std::function<std::string(int)>) {
  fail<DeviceError>("peers: {}", why_no_peers());
}

#endif

}  // namespace eddy::cuda
