// What ranks compare before they compute together, and what they do when one fails.
#include "train/app/launch/team.h"

#include <array>
#include <exception>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "ops/cpu/isa.h"
#include "tensor/base/format.h"
#include "train/app/launch/launcher.h"
#include "train/eval/rank_work.h"
#include "train/files/digest.h"
#include "train/plan/environment.h"
#include "train/process/stop_signal.h"
#include "train/step/shared_steps.h"
#include "train/words/program_name.h"

namespace eddy::app {
using namespace training;
namespace {

// What must be the same on all ranks, besides what rank 0 sends them.
struct Fingerprint {
  std::array<char, 64> program{};  // a digest of the program's file
  std::array<char, 32> level{};    // of the CPU kernels
  std::array<char, 256> blas{};    // OpenBLAS: its version and kernels
};

Fingerprint fingerprint_of_this() {
  Fingerprint own;
  program_digest().copy(own.program.data(), own.program.size() - 1);
  blas_in_use().copy(own.blas.data(), own.blas.size() - 1);
  std::string_view(isa_name(isa_level())).copy(own.level.data(), own.level.size() - 1);
  return own;
}

// Rank 0 compares the fingerprints of the others, of any number of them, with its own.
// errors: ConfigError that names the first rank which differs.
void compare_fingerprints(Ranks& ranks) {
  const Fingerprint own = fingerprint_of_this();
  std::vector<Fingerprint> all(static_cast<std::size_t>(ranks.size()), own);
  for (int rank = 1; rank < ranks.size(); ++rank)
    ranks.receive(rank, std::as_writable_bytes(std::span(&all[static_cast<std::size_t>(rank)], 1)));
  for (int rank = 1; rank < ranks.size(); ++rank) {
    const Fingerprint& other = all[static_cast<std::size_t>(rank)];
    if (own.program != other.program)
      fail<ConfigError>("ranks: {} runs another build of {} than {} (the same file on all hosts)",
                        ranks.name(rank), program_name(), ranks.name(0));
    if (own.level != other.level)
      fail<ConfigError>(
          "ranks: {} has CPU kernels for {} and {} for {}, which differ in their bits (EDDY_CPU_LEVEL={} on all, or the "
          "lower of both)",
          ranks.name(rank), other.level.data(), ranks.name(0), own.level.data(), other.level.data());
    if (own.blas != other.blas)
      fail<ConfigError>(
          "ranks: {} multiplies with {} and {} with {}, which differ in their bits (the same library on all hosts, and "
          "the same OPENBLAS_CORETYPE)",
          ranks.name(rank), other.blas.data(), ranks.name(0), own.blas.data());
  }
}

void send_fingerprint(Ranks& ranks) {
  const Fingerprint own = fingerprint_of_this();
  ranks.send(0, std::as_bytes(std::span(&own, 1)));
}

// Rank 0's status is that of all: a launcher that saw another one fail would end this one too, before it has said why.
int lead(Ranks& ranks, const std::function<int(Ranks*)>& command,
         const std::function<void(std::string_view)>& say) {
  try {
    compare_fingerprints(ranks);
    const int status = command(&ranks);
    end_work(ranks);
    return status;
  } catch (const std::exception& error) {
    if (ranks.in_exchange) {  // the others wait for the rest of an exchange, which does not come
      say(fmt::format("error: {}", error.what()));
      end_all_ranks(1);
    }
    end_work(ranks);
    throw;
  }
}

// Another rank. Signals are rank 0's to answer.
int follow(Ranks& ranks, const std::function<void(std::string_view)>& say) {
  const StopOnSignal signals;
  try {
    send_fingerprint(ranks);
    work(ranks);
    return 0;
  } catch (const std::exception& error) {
    say(fmt::format("error: {}: {}", ranks.name(ranks.rank()), error.what()));
    end_all_ranks(1);
  }
}

}  // namespace

int run_on_ranks(bool choose_threads, const std::function<int(Ranks*)>& command,
                 const std::function<void(std::string_view)>& say) {
  const std::unique_ptr<Ranks> ranks = ranks_of_launcher(choose_threads);
  if (ranks == nullptr) return command(nullptr);
  return ranks->rank() == 0 ? lead(*ranks, command, say) : follow(*ranks, say);
}

}  // namespace eddy::app
