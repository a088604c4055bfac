// The variables of launchers, and EDDY_ALONE, which overrides them.
#include "train/ranks/launched.h"

#include <cstdlib>
#include <string_view>

#include "tensor/base/error.h"
#include "tensor/base/format.h"

namespace eddy::training {
namespace {

// The first of these variables that holds a number of at least `least`; `otherwise` where none does.
int first_number(const char* const (&names)[3], int least, int otherwise) {
  for (const char* const name : names)
    if (const char* const text = std::getenv(name); text != nullptr)
      if (const int number = std::atoi(text); number >= least) return number;
  return otherwise;
}

std::string_view alone_variable() {
  const char* const given = std::getenv("EDDY_ALONE");
  return given == nullptr ? "" : given;
}

}  // namespace

Launched launched() {
  if (alone_variable() == "1") return {};
  // OpenMPI; MPICH and Intel MPI; srun, which sets them for a step and not for a batch script.
  const int processes = first_number({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}, 1, 1);
  if (processes == 1) return {};
  return {processes, first_number({"OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"}, 0, 0)};
}

void check_alone_variable() {
  const std::string_view given = alone_variable();
  if (!given.empty() && given != "0" && given != "1")
    fail<ConfigError>(
        "EDDY_ALONE: '{}' (1: this process shares nothing with others of its launcher; 0 or unset)", given);
}

}  // namespace eddy::training
