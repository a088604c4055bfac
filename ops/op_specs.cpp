// The list of all ops. A new op adds its line here.
#include <iterator>

#include "ops/adafactor.h"
#include "ops/attention.h"
#include "ops/cast.h"
#include "ops/cross_entropy.h"
#include "ops/dropout.h"
#include "ops/gates.h"
#include "ops/gather.h"
#include "ops/layer_norm.h"
#include "ops/linear_cross_entropy.h"
#include "ops/lstm_cell.h"
#include "ops/matmul.h"
#include "ops/memory_search.h"
#include "ops/memory_write.h"
#include "ops/op_spec.h"
#include "ops/optimizer.h"
#include "ops/pointwise.h"
#include "ops/reduce.h"
#include "ops/relu_mlp.h"
#include "ops/rms_norm.h"
#include "ops/rotary.h"
#include "ops/softmax.h"
#include "ops/unit_norm.h"
#include "ops/unit_recurrence.h"
#include "ops/views.h"
#include "ops/where.h"
#include "ops/window_attention.h"

namespace eddy {

std::vector<OpSpec> op_specs() {
  std::vector<OpSpec> all;
  for (std::vector<OpSpec> (*specs)() : {pointwise_specs,
                                         where_specs,
                                         cast_specs,
                                         reduce_specs,
                                         views_specs,
                                         gather_specs,
                                         matmul_specs,
                                         relu_mlp_specs,
                                         softmax_specs,
                                         layer_norm_specs,
                                         rms_norm_specs,
                                         unit_norm_specs,
                                         cross_entropy_specs,
                                         linear_cross_entropy_specs,
                                         dropout_specs,
                                         attention_specs,
                                         rotary_specs,
                                         gates_specs,
                                         lstm_cell_specs,
                                         unit_recurrence_specs,
                                         window_attention_specs,
                                         memory_search_specs,
                                         memory_write_specs,
                                         optimizer_specs,
                                         adafactor_specs}) {
    std::vector<OpSpec> some = specs();
    std::move(some.begin(), some.end(), std::back_inserter(all));
  }
  return all;
}

}  // namespace eddy
