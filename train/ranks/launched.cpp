#include "train/ranks/launched.h"

#include <cstdlib>
#include <string_view>

namespace eddy::training {
namespace {

// The first of these variables that holds a number of at least `least`; `otherwise` where none does.
int first_number(const char* const (&names)[3], int least, int otherwise) {
  for (const char* const name : names)
    if (const char* const text = std::getenv(name); text != nullptr)
      if (const int number = std::atoi(text); number >= least) return number;
  return otherwise;
}

}  // namespace

Launched launched() {
  const char* const alone = std::getenv("EDDY_ALONE");
  if (alone != nullptr && std::string_view(alone) == "1") return {};
  // OpenMPI; MPICH and Intel MPI; srun, which sets them for a step and not for a batch script.
  const int processes = first_number({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}, 1, 1);
  if (processes == 1) return {};
  return {processes, first_number({"OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"}, 0, 0)};
}

}  // namespace eddy::training
