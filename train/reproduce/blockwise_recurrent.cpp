// Tables 1 and 2 of S. Liang, "Block-wise Recurrent Transformer": the loss on the last 256 tokens of windows
// of growing length, for four ways to train a memory, and for Llama with and without a sliding window. Both
// tables show parts of the same six rows; a chart of them is the paper's Figure 1.
#include <filesystem>

#include "tensor/base/format.h"
#include "train/reproduce/tables.h"

namespace eddy {
namespace {

constexpr std::int64_t kPublishedLengths = 5;  // 256 to 4096; longer windows are ours

// The model's sizes, text and training that all rows share.
const ScaleSettings kShared = {
    "data.tokenizer=byte train.batch=32 train.accumulate=16 train.steps=100000 train.learning_rate=5e-4 "
    "train.schedule=cosine train.warmup=1000 train.warmup_from=0 train.eval_every=2000 "
    "train.eval_batches=100 train.checkpoint_every=500",
    "model.dim=128 model.layers=4 model.heads=4 train.batch=16 train.accumulate=1 train.steps=3000 "
    "train.learning_rate=1e-3 train.warmup=100 train.eval_every=300 "
    "train.checkpoint_every=300 train.eval_batches=20",
    "model.dim=32 model.layers=2 model.heads=2 model.context=32 model.chunk=8 train.batch=4 "
    "train.accumulate=1 train.steps=12 train.learning_rate=1e-3 train.warmup=4 train.eval_every=6 "
    "train.eval_batches=2 train.checkpoint_every=0 train.log_every=1 train.sample_tokens=0"};

}  // namespace

ReproduceTable blockwise_recurrent_tables(const TableRequest& request) {
  ReproduceTable table;
  table.folder = "blockwise-recurrent/tables-1-2";
  table.title = "Block-wise recurrent transformer (Liang), Tables 1 and 2: loss by length";
  const Scale scale = request.scale;
  const char *learned = "blockwise_memory_shared_learned", *zero = "blockwise_memory_shared_zero";
  const Published out_of_memory{.remark = "out of memory"};
  table.rows = make_rows(
      request, kShared,
      {{"mem", "Mem: shuffled, cleared", learned, "", {{1.0540}, {0.8138}, {0.8153}, {0.8153}, {0.8153}}},
       {"only_data",
        "only data: continuous, cleared",
        zero,
        "data.order=stream train.carry_state=never",
        {{1.1189}, {0.8845}, {0.8853}, {0.8853}, {0.8853}}},
       {"only_model",
        "only model: shuffled, carried",
        zero,
        "train.carry_state=always",
        {{1.1238}, {0.9338}, {0.9394}, {0.9394}, {0.9394}}},
       {"full",
        "full stateful: continuous, carried",
        zero,
        "data.order=stream",
        {{1.1631}, {0.7235}, {0.7010}, {0.7009}, {0.7009}}},
       {"llama", "Llama", "blockwise_llama", "", {{1.04}, {1.28}, {3.60}, {5.25}, out_of_memory}},
       {"llama_window",
        "Llama, sliding window",
        "blockwise_llama",
        "model.model=llama_window",
        {{1.04}, {0.81}, {0.83}, {0.83}, out_of_memory}}});
  ReproduceRow& window = table.rows.back();
  window.weights_of = "llama";
  window.config.model.window = window.config.model.context;

  table.last = window.config.model.context;
  for (std::int64_t i = 0, length = table.last; i < (scale == Scale::tiny ? 3 : kPublishedLengths);
       ++i, length *= 2)
    table.lengths.push_back(length);
  if (scale != Scale::tiny)
    for (const std::int64_t length : {16384, 65536}) table.lengths.push_back(length);
  for (ReproduceRow& row : table.rows)
    if (row.config.model.model == "llama" && scale != Scale::tiny)
      row.longest = 16384;  // its work is quadratic in the length
  for (const std::int64_t length : table.lengths)
    table.columns.push_back(
        {fmt::format("last {} of {}", table.last, length), fmt::format("last_{}", length)});
  if (scale == Scale::tiny)
    for (ReproduceRow& row : table.rows) row.published.clear();  // they are for other lengths
  const std::int64_t windows[] = {4, 128, 32'000};
  table.windows = windows[static_cast<int>(scale)];

  const bool repeat = request.task != "plain";
  table.text.kind = repeat ? ReproduceText::Kind::repeat : ReproduceText::Kind::plain;
  table.text.source = request.data;
  const std::string stories = request.data_dir + "/tinystories";
  std::error_code error;
  if (table.text.source.empty() && !request.data_dir.empty() && std::filesystem::exists(stories, error))
    table.text.source = stories;
  if (scale == Scale::tiny) table.text.source_bytes = 100'000;
  table.text.generated_bytes = scale == Scale::tiny ? 20'000 : std::int64_t{4} << 20;
  // The stories of the paper have some 200 tokens of its vocabulary. As bytes they would have more, so they
  // are cut to about as many bytes: then the repeated text lies as far back.
  const bool subwords = request.tokenizer.ends_with(".model");
  if (!subwords) table.text.most_bytes = scale == Scale::tiny ? 24 : 220;
  if (!repeat)
    table.notes.emplace_back(
        "plain stories: here a few hundredths are all that is to be gained; the published numbers are almost "
        "certainly those of the repeat text (--task repeat)");
  else if (subwords)
    table.notes.emplace_back("every story is told twice, with \"Repeat above.\" in between");
  else
    table.notes.push_back(fmt::format(
        "every story is told twice, with \"Repeat above.\" in between; tokens are bytes, and stories are cut "
        "into pieces of at most {}, so that the copy lies as many tokens back as in the paper",
        table.text.most_bytes));
  if (!subwords)
    table.notes.emplace_back(
        "losses are nats per byte, the paper's nats per token of 4096 pieces: compare rows and trends, not "
        "digits; with a vocabulary of pieces: --set data.tokenizer=FILE.model");
  table.notes.push_back(
      "the sliding window is put over Llama's weights when they are measured, as in the paper");
  add_scale_note(table, scale);
  return table;
}

}  // namespace eddy
