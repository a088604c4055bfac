// Ranks over MPI, which only moves bytes. A program without a launcher never starts MPI.
#include "train/app/launch/launcher.h"

#include <cstdlib>

#include "tensor/base/format.h"
#include "train/ranks/launched.h"

#ifdef EDDY_MPI
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#include "ops/core/peers.h"
#include "tensor/system/processors.h"
#include "tensor/threads/pause.h"
#include "tensor/threads/thread_pool.h"
#include "train/step/clock.h"
#endif

namespace eddy::app {
using namespace training;

#ifdef EDDY_MPI
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 30;  // of one message: MPI counts in int

// What each rank says of itself at the start.
struct RankHost {
  std::array<char, MPI_MAX_PROCESSOR_NAME> host{};
  ProcessorSet processors;
};

class MpiRanks final : public Ranks {
 public:
  explicit MpiRanks(bool choose_threads) {
    int provided = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    RankHost local;
    int length = 0;
    MPI_Get_processor_name(local.host.data(), &length);
    local.processors = allowed_processors();
    hosts_.resize(static_cast<std::size_t>(size_));
    MPI_Allgather(&local, sizeof local, MPI_BYTE, hosts_.data(), sizeof local, MPI_BYTE, MPI_COMM_WORLD);
    if (choose_threads) set_thread_count(std::max(1, thread_count() / sharing(local)));
    choose_gpu(local);
  }
  ~MpiRanks() override { MPI_Finalize(); }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string name(int rank) const override {
    return fmt::format("rank {} on {}", rank, hosts_[static_cast<std::size_t>(rank)].host.data());
  }
  void set_timeout(double seconds) override {
    timeout_ = seconds;
    if (peers_ != nullptr) peers_->set_timeout(seconds);
  }

  std::unique_ptr<Exchange> begin(int other, std::span<const std::byte> out, std::span<std::byte> in,
                                  int tag) override {
    auto started = std::make_unique<MpiExchange>(*this, other, in.size());
    try {
      // The receives come first, so that their requests are at the front.
      for (std::size_t at = 0; at < in.size(); at += kMostBytes)
        check(other, MPI_Irecv(in.data() + at, static_cast<int>(std::min(in.size() - at, kMostBytes)),
                               MPI_BYTE, other, tag, MPI_COMM_WORLD, started->add_receive()));
      for (std::size_t at = 0; at < out.size(); at += kMostBytes)
        check(other, MPI_Isend(out.data() + at, static_cast<int>(std::min(out.size() - at, kMostBytes)),
                               MPI_BYTE, other, tag, MPI_COMM_WORLD, started->add_send()));
    } catch (const IoError&) {
      // The caller's memory goes with the error, and what comes later would be written into it.
      started->end();
      throw;
    }
    return started;
  }

  Peers& peers() override {
    if (peers_ == nullptr) {
      PeersId id{};
      if (rank_ == 0) id = make_peers_id();
      broadcast(*this, id);
      peers_ = join_peers(id, rank_, size_, timeout_, [this](int rank) { return name(rank); });
    }
    return *peers_;
  }

 private:
  // How many ranks of this host have a processor in common with this one, itself included.
  int sharing(const RankHost& local) const {
    return static_cast<int>(std::count_if(hosts_.begin(), hosts_.end(), [&](const RankHost& other) {
      return local.host == other.host && local.processors.meets(other.processors);
    }));
  }

  // Each rank of a host sees one of its GPUs, the next one for each; where a launcher has given it one, that.
  void choose_gpu(const RankHost& local) const {
    const auto before = static_cast<std::size_t>(
        std::count_if(hosts_.begin(), hosts_.begin() + rank_,
                      [&](const RankHost& other) { return local.host == other.host; }));
    const char* const variable = std::getenv("CUDA_VISIBLE_DEVICES");
    if (variable != nullptr && *variable == '\0') return;  // the user hides all of them
    std::vector<std::string> visible;
    for (std::istringstream list(variable != nullptr ? variable : ""); list.good();)
      if (std::string gpu; std::getline(list, gpu, ',')) visible.push_back(gpu);
    if (visible.size() == 1) return;
    const std::string chosen = visible.empty()           ? std::to_string(before)
                               : before < visible.size() ? visible[before]
                                                         : "-1";  // none is left: then cuda is refused
    ::setenv("CUDA_VISIBLE_DEVICES", chosen.c_str(), 1);
  }

  void check(int other, int status) const {
    if (status == MPI_SUCCESS) return;
    std::array<char, MPI_MAX_ERROR_STRING> text{};
    int length = 0;
    MPI_Error_string(status, text.data(), &length);
    fail<IoError>("ranks: {} does not get on with {}: {}", name(rank_), name(other), text.data());
  }

  class MpiExchange final : public Exchange {
   public:
    MpiExchange(const MpiRanks& ranks, int other, std::size_t expected)
        : ranks_(ranks), other_(other), expected_(expected) {}

    MPI_Request* add_receive() {
      ++receives_;
      return add_send();
    }
    MPI_Request* add_send() { return &requests_.emplace_back(MPI_REQUEST_NULL); }

    bool done() override {
      if (requests_.empty()) return true;
      std::vector<MPI_Status> statuses(requests_.size());
      int all = 0;
      ranks_.check(other_,
                   MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &all, statuses.data()));
      if (all == 0) return false;
      std::size_t received = 0;
      for (std::size_t i = 0; i < receives_; ++i) {
        int bytes = 0;
        MPI_Get_count(&statuses[i], MPI_BYTE, &bytes);
        received += static_cast<std::size_t>(bytes);
      }
      if (received != expected_)
        fail<IoError>("ranks: {} sent {} bytes to {}, which expected {}", ranks_.name(other_), received,
                      ranks_.name(ranks_.rank()), expected_);
      return true;
    }

    void wait(Patience patience) override {
      for (const Clock::time_point start = Clock::now(); !done();) {
        const double waited = seconds_between(start), most = ranks_.timeout_;
        if (patience == Patience::limited && most > 0 && waited > most)
          fail<IoError>(
              "ranks: {} waited {:.0f} s for {} within a step or an evaluation (it or its host hangs, or train.rank_timeout is too short)",
              ranks_.name(ranks_.rank()), waited, ranks_.name(other_));
        pause_after(waited);
      }
    }

    // Takes back what has begun, and waits for what is being moved; at most as long as a limited wait.
    void end() {
      for (const Clock::time_point start = Clock::now(); !take_back();) {
        const double waited = seconds_between(start), most = ranks_.timeout_;
        if (most > 0 && waited > most) return;
        pause_after(waited);
      }
    }

    // MPI takes back a receive for which nothing has come. What has begun to move may go on.
    bool take_back() override {
      bool is_free = true;
      for (std::size_t i = 0; i < requests_.size(); ++i) {
        if (requests_[i] == MPI_REQUEST_NULL) continue;
        int complete = 0;
        if (i < receives_) MPI_Cancel(&requests_[i]);
        MPI_Test(&requests_[i], &complete, MPI_STATUS_IGNORE);
        is_free = is_free && complete != 0;
      }
      return is_free;
    }

   private:
    const MpiRanks& ranks_;
    int other_;
    std::size_t expected_, receives_ = 0;
    std::vector<MPI_Request> requests_;
  };

  int rank_ = 0, size_ = 1;
  double timeout_ = 0;
  std::vector<RankHost> hosts_;
  std::unique_ptr<Peers> peers_;
};

}  // namespace

std::unique_ptr<Ranks> ranks_of_launcher(bool choose_threads) {
  const int started = launched().processes;
  if (started == 1) return nullptr;
  auto ranks = std::make_unique<MpiRanks>(choose_threads);
  if (ranks->size() != started)
    fail<ConfigError>(
        "ranks: the launcher started {} processes and MPI sees {} (to share one run: mpirun, or srun --mpi=pmix; for "
        "independent runs: EDDY_ALONE=1 lets each train alone)",
        started, ranks->size());
  return ranks;
}

void end_all_ranks(int status) {
  int begun = 0;
  MPI_Initialized(&begun);
  if (begun != 0) MPI_Abort(MPI_COMM_WORLD, status);
  std::_Exit(status);  // MPI may return before it ends this rank
}

const char* mpi_of_build() {
  static const std::string text = fmt::format("MPI {}.{}", MPI_VERSION, MPI_SUBVERSION);
  return text.c_str();
}

#else

std::unique_ptr<Ranks> ranks_of_launcher(bool /*choose_threads*/) {
  if (const int started = launched().processes; started > 1)
    fail<ConfigError>(
        "ranks: a launcher started {} processes and this build has no MPI: each would do the same alone (to share one "
        "run: install libopenmpi-dev and openmpi-bin and build again; for independent runs: EDDY_ALONE=1 lets each "
        "train alone)",
        started);
  return nullptr;
}

void end_all_ranks(int status) {
  std::_Exit(status);
}

const char* mpi_of_build() {
  return "none: libopenmpi-dev was not found";
}

#endif

}  // namespace eddy::app
