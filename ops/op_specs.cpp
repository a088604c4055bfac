// The list of all ops. A new op adds its line here.
#include <iterator>

#include "ops/attention/attention.h"
#include "ops/attention/rotary.h"
#include "ops/attention/window_attention.h"
#include "ops/cast/cast.h"
#include "ops/core/op_spec.h"
#include "ops/index/gather.h"
#include "ops/loss/cross_entropy.h"
#include "ops/loss/linear_cross_entropy.h"
#include "ops/memory/memory_search.h"
#include "ops/memory/memory_write.h"
#include "ops/norm/layer_norm.h"
#include "ops/norm/rms_norm.h"
#include "ops/norm/unit_norm.h"
#include "ops/optimizer/adafactor.h"
#include "ops/optimizer/optimizer.h"
#include "ops/pointwise/dropout.h"
#include "ops/pointwise/pointwise.h"
#include "ops/pointwise/where.h"
#include "ops/product/matmul.h"
#include "ops/product/relu_mlp.h"
#include "ops/recurrence/gates.h"
#include "ops/recurrence/lstm_cell.h"
#include "ops/recurrence/unit_recurrence.h"
#include "ops/reduce/reduce.h"
#include "ops/reduce/softmax.h"
#include "ops/views/views.h"

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
