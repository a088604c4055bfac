// Counted operations are those of the forward pass, two for a multiply-add.
#include "train/app/reproduce/sample_cost.h"

#include <memory>

#include "models/eddy/registry.h"
#include "train/tasks/copy_data.h"
#include "train/tasks/task.h"

namespace eddy::app {
using namespace training;

void add_sample_cost(const RunConfig& config, RowResult& result) {
  ModelConfig model = config.model;
  std::int64_t tokens = segment_length(config), scored = 1;
  if (const auto noise = result.values.find("noise"); noise != result.values.end()) {
    const auto length = static_cast<std::int64_t>(noise->second);
    scored = config.data.extensions.get<CopyKeys>().symbols;
    tokens = 2 * scored + length;
    model.block = copy_block(length, model.block);
  }
  result.values["batch"] = static_cast<double>(config.train.batch * config.train.accumulate);
  const std::unique_ptr<Model> counted = make_unallocated_model(model);
  result.values["recurrent_steps"] = static_cast<double>(counted->recurrent_steps());
  result.values["sample_operations"] = forward_cost(model, tokens, false, scored).flops;
  result.values["paper_operations"] = counted->paper_operations(tokens);
}

}  // namespace eddy::app
