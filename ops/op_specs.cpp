// The samples of all ops, and the page docs/ops.md.
#include <iterator>

#include "ops/core/op_spec.h"
#include "ops/op_list.h"

namespace eddy {

#define EDDY_DECLARE(folder, name) std::vector<OpSpec> name##_specs();
EDDY_OPS(EDDY_DECLARE)

std::vector<OpGroup> op_groups() {
#define EDDY_GROUP(folder, name) {"ops/" #folder "/" #name ".h", name##_specs()},
  return {EDDY_OPS(EDDY_GROUP)};
}

std::vector<OpSpec> op_specs() {
  std::vector<OpSpec> all;
  for (OpGroup& group : op_groups())
    std::move(group.specs.begin(), group.specs.end(), std::back_inserter(all));
  return all;
}

}  // namespace eddy
