// The one place that knows whether CUDA was built in.
#include "ops/backends.h"

namespace eddy {

#if defined(EDDY_HAS_CUDA)
namespace cuda {
std::string status();
}
std::string cuda_status() {
  return cuda::status();
}
#else
std::string cuda_status() {
  return "not in this build";
}
#endif

}  // namespace eddy
