// Ranks over MPI, which only moves bytes. Launchers say in the environment how many processes they started, so that a
// program without one never starts MPI.
#include "train/launch/launcher.h"

#include <cstdlib>

#include "tensor/base/format.h"

#ifdef EDDY_MPI
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "tensor/threads/thread_pool.h"
#include "train/step/clock.h"
#endif

namespace eddy {

int launched_processes() {
  // OpenMPI; MPICH and Intel MPI; srun, which sets it for a step and not for a batch script.
  for (const char* const name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"})
    if (const char* const text = std::getenv(name); text != nullptr)
      if (const int size = std::atoi(text); size > 0) return size;
  return 1;
}

bool is_first_process() {
  if (launched_processes() == 1) return true;
  for (const char* const name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"})
    if (const char* const text = std::getenv(name); text != nullptr) return std::atoi(text) == 0;
  return true;
}

#ifdef EDDY_MPI
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 30;  // of one message: MPI counts in int

// What each rank says of itself at the start.
struct Place {
  std::array<char, MPI_MAX_PROCESSOR_NAME> host{};
  cpu_set_t processors{};
};

class MpiRanks final : public Ranks {
 public:
  explicit MpiRanks(bool choose_threads) {
    int provided = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    Place own;
    int length = 0;
    MPI_Get_processor_name(own.host.data(), &length);
    CPU_ZERO(&own.processors);
    sched_getaffinity(0, sizeof own.processors, &own.processors);
    places_.resize(static_cast<std::size_t>(size_));
    MPI_Allgather(&own, sizeof own, MPI_BYTE, places_.data(), sizeof own, MPI_BYTE, MPI_COMM_WORLD);
    if (choose_threads) set_thread_count(std::max(1, thread_count() / sharing(own)));
  }
  ~MpiRanks() override { MPI_Finalize(); }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string name(int rank) const override {
    return fmt::format("rank {} on {}", rank, places_[static_cast<std::size_t>(rank)].host.data());
  }
  void set_timeout(double seconds) override { timeout_ = seconds; }

  void exchange(int other, std::span<const std::byte> out, std::span<std::byte> in,
                Patience patience) override {
    const std::size_t most = std::max(out.size(), in.size());
    for (std::size_t at = 0; at < most; at += kMostBytes) {
      std::array<MPI_Request, 2> requests{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
      const auto part = [at](std::size_t size) { return at < size ? std::min(size - at, kMostBytes) : 0; };
      const std::size_t receives = part(in.size()), sends = part(out.size());
      if (receives > 0)
        check(other, MPI_Irecv(in.data() + at, static_cast<int>(receives), MPI_BYTE, other, 0, MPI_COMM_WORLD,
                               requests.data()));
      if (sends > 0)
        check(other, MPI_Isend(out.data() + at, static_cast<int>(sends), MPI_BYTE, other, 0, MPI_COMM_WORLD,
                               &requests[1]));
      wait(other, requests, receives, patience);
    }
  }

 private:
  // How many ranks of this host have a processor in common with this one, itself included.
  int sharing(const Place& own) const {
    return static_cast<int>(std::count_if(places_.begin(), places_.end(), [&](const Place& other) {
      cpu_set_t common;
      CPU_AND(&common, &own.processors, &other.processors);
      return own.host == other.host && CPU_COUNT(&common) > 0;
    }));
  }

  void check(int other, int status) const {
    if (status == MPI_SUCCESS) return;
    std::array<char, MPI_MAX_ERROR_STRING> text{};
    int length = 0;
    MPI_Error_string(status, text.data(), &length);
    fail<IoError>("ranks: {} does not get on with {}: {}", name(rank_), name(other), text.data());
  }

  // Waits without MPI's own loop, which would keep a processor busy that another rank may need.
  void wait(int other, std::array<MPI_Request, 2>& requests, std::size_t receives, Patience patience) const {
    constexpr double kSpin = 200e-6, kShort = 0.05;  // seconds: an exchange inside a step is short
    const Clock::time_point start = Clock::now();
    std::array<MPI_Status, 2> statuses{};
    for (;;) {
      int done = 0;
      check(other, MPI_Testall(2, requests.data(), &done, statuses.data()));
      if (done != 0) break;
      const double waited = seconds_between(start);
      if (patience == Patience::limited && timeout_ > 0 && waited > timeout_)
        fail<IoError>(
            "ranks: {} waited {:.0f} s for {} within a step (it or its host hangs, or train.rank_timeout is too short)",
            name(rank_), waited, name(other));
      if (waited < kSpin)
        std::this_thread::yield();
      else
        std::this_thread::sleep_for(std::chrono::microseconds(waited < kShort ? 20 : 500));
    }
    int received = 0;
    if (receives > 0) MPI_Get_count(&statuses[0], MPI_BYTE, &received);
    if (static_cast<std::size_t>(received) != receives)
      fail<IoError>("ranks: {} sent {} bytes to {}, which expected {}", name(other), received, name(rank_),
                    receives);
  }

  int rank_ = 0, size_ = 1;
  double timeout_ = 0;
  std::vector<Place> places_;
};

}  // namespace

std::unique_ptr<Ranks> ranks_of_launcher(bool choose_threads) {
  const int started = launched_processes();
  if (started == 1) return nullptr;
  auto ranks = std::make_unique<MpiRanks>(choose_threads);
  if (ranks->size() != started)
    fail<ConfigError>(
        "train: the launcher started {} processes and MPI sees {} (start with mpirun, or with srun --mpi=pmix)",
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
  if (const int started = launched_processes(); started > 1)
    fail<ConfigError>(
        "train: a launcher started {} processes and this build has no MPI: each would train the run alone (install "
        "libopenmpi-dev and openmpi-bin and build again, or start one process)",
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

}  // namespace eddy
