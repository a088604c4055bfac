// Tables 3, 4 and 6 of Kausik, "Recurrent Transformers" (2025): tiny Shakespeare, CIFAR-10, copying. At paper
// scale the rows are the configurations in examples/configs.
#include "train/reproduce/tables.h"

namespace eddy {
namespace {

const ScaleSettings kShakespeare = {
    "train.eval_every=125 train.checkpoint_every=25 train.log_every=1",
    "train.batch=64 train.steps=1000 train.eval_every=100 train.checkpoint_every=100 "
    "model.dim=192 model.context=128 model.dropout=0.1",
    "train.batch=8 train.steps=20 train.eval_every=10 train.eval_batches=4 train.checkpoint_every=0 "
    "train.sample_tokens=0 model.dim=24 model.heads=2 model.context=32"};

// Training of the CIFAR and copy runs: Adam without decay.
const std::string kPlainAdam =
    "train.optimizer=adam train.learning_rate=5e-4 train.beta1=0.9 train.beta2=0.999 "
    "train.weight_decay=0 train.clip=0 ";

const ScaleSettings kCifar = {
    kPlainAdam +
        "data.name=cifar10 data.stop_loss=0.1 train.steps=80000 "
        "train.eval_every=1000 train.checkpoint_every=250",
    "train.batch=32 train.steps=4000 train.eval_every=500 train.checkpoint_every=500 train.eval_batches=30",
    "train.batch=4 train.steps=6 train.eval_every=3 train.eval_batches=2 train.checkpoint_every=0 "
    "train.log_every=1 model.dim=16 model.heads=2"};

// The curriculum runs the validation. At scale small it ends the run at a loss at which all symbols are right:
// its learning rate is then too small to go on.
const ScaleSettings kCopying = {
    kPlainAdam + "train.eval_every=0 train.checkpoint_every=50 train.log_every=1 train.sample_tokens=0",
    "data.noise_max=256 data.curriculum_batches=10 data.stop_loss=0.025 train.log_every=10",
    "data.symbols=4 data.noise=8 data.noise_max=16 data.curriculum_every=10 data.curriculum_batches=2 "
    "train.batch=8 train.steps=20 train.checkpoint_every=0 model.dim=24 model.heads=2 model.block=8"};

}  // namespace

ReproduceTable recurrent_transformers_table_3(const TableRequest& request) {
  ReproduceTable table;
  table.title = "Recurrent Transformers (Kausik 2025), Table 3: tiny Shakespeare";
  table.columns = {{"best validation loss", "loss"}};
  table.rows = make_rows(
      request, kShakespeare,
      {{"regular_1",
        "regular, 1 layer",
        "shakespeare_regular_1",
        "train.batch=128 train.steps=8500",
        {{1.5697}}},
       {"regular_6",
        "regular, 6 layers",
        "shakespeare_regular_6",
        "train.batch=64 train.steps=2500",
        {{1.4815}}},
       {"unit_positions",
        "unit, positions",
        "shakespeare_unit_pos",
        "train.batch=256 train.steps=5000",
        {{1.4738}}},
       {"unit", "unit, no positions", "shakespeare_unit", "train.batch=256 train.steps=5000", {{1.4699}}}});
  table.evaluation = measured_on("valid", request.scale == Scale::tiny ? 4 : 0);
  table.notes = {
      "ours is measured on every window of the validation split, the paper's is the lowest of many estimates "
      "on 80 random batches, whose standard error is about 0.003",
      "the best step is chosen by the validation loss, ours and the paper's"};
  add_scale_note(table, request.scale);
  return table;
}

ReproduceTable recurrent_transformers_table_4(const TableRequest& request) {
  ReproduceTable table;
  table.title = "Recurrent Transformers (Kausik 2025), Table 4: CIFAR-10 as 1024 grey values";
  table.columns = {{"accuracy of all test images, %", "accuracy", 100, false, 2},
                   {"loss of all", "loss"},
                   {"estimated accuracy, %", "sampled_accuracy", 100, false, 2},
                   {"estimated loss", "sampled_loss"}};
  const Published none{.remark = "not given"};  // the paper only gives estimates
  table.rows = make_rows(
      request, kCifar,
      {{"regular_4", "regular, 4 layers", "cifar_regular", "train.batch=40", {none, none, {42.9}, {1.615}}},
       {"block",
        "block forget, 16 to 48",
        "cifar_block",
        "train.batch=256 data.block_min=16 data.block_max=48",
        {none, none, {43.09}, {1.631}}}});
  table.evaluation = measured_on("test", request.scale == Scale::tiny ? 2 : 0);
  table.sampled_batches = request.scale == Scale::tiny ? 3 : 100;
  table.chart_key = "accuracy";
  table.chart_factor = 100;
  table.notes = {
      "estimated, as the paper does: the mean over 100 random test batches of the row's training batch. The "
      "paper's numbers are the best of some 500 such estimates, which flatters the loss by about 0.02; ours "
      "is one, at the step with the lowest loss on the test images"};
  add_scale_note(table, request.scale);
  return table;
}

ReproduceTable recurrent_transformers_table_6(const TableRequest& request) {
  if (!request.data.empty()) refuse_data("recurrent-transformers/table-6");
  ReproduceTable table;
  table.title = "Recurrent Transformers (Kausik 2025), Table 6: copying";
  table.columns = {{"validation loss", "loss"},
                   {"symbols right, %", "accuracy", 100, false, 2},
                   {"noise", "noise", 1, false, 0}};
  table.rows = make_rows(request, kCopying,
                         {{"copy",
                           "copy",
                           "copy",
                           "data.name=copy train.steps=1000",
                           {{0.006}, {100}, {4096}},
                           "train.steps=3000"},
                          {"selective_copy",
                           "selective copy",
                           "copy",
                           "data.name=selective_copy train.steps=40000",
                           {{0.022}, {99.6}, {4096}},
                           "train.steps=10000"}});
  for (ReproduceRow& row : table.rows)
    row.config.model.context = 2 * row.config.data.symbols + row.config.data.noise_max;
  const std::int64_t batches[] = {2, 20, 100};
  table.evaluation = measured_on("valid", batches[static_cast<int>(request.scale)]);
  table.chart_key = "noise";
  table.notes = {
      "measured on fresh examples at the noise length that the curriculum has come to, which is a column of "
      "its own: a loss at less noise than the paper's is no match for it"};
  add_scale_note(table, request.scale);
  return table;
}

}  // namespace eddy
