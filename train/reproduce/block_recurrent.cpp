// Table 1 of Hutchins et al., "Block-recurrent transformers" (2022): bits per byte on books, and step times.
#include <filesystem>

#include "tensor/base/format.h"
#include "train/reproduce/tables.h"

namespace eddy {
namespace {

constexpr std::int64_t kTokensPerStep = 131072;  // as in the paper, for every segment length

// Bits per byte on PG19, and the step time relative to Slide:13L.
struct PublishedRow {
  const char* name;
  const char* title;
  double bits, time;
};
constexpr PublishedRow kRows[] = {
    {"xl_512", "XL:512", 1.01, 0.88},
    {"xl_1024", "XL:1024", 0.997, 1.20},
    {"xl_2048", "XL:2048", 0.990, 2.11},
    {"slide_12l", "Slide:12L", 0.989, 0.93},
    {"slide_13l", "Slide:13L", 0.989, 1.00},
    {"rec_lstm_dual", "Rec:lstm:dual", 0.985, 1.06},
    {"rec_lstm_single", "Rec:lstm:single", 0.962, 1.05},
    {"rec_lstm_skip", "Rec:lstm:skip", 0.969, 1.00},
    {"rec_fixed_dual", "Rec:fixed:dual", 0.957, 1.01},
    {"rec_fixed_single", "Rec:fixed:single", 0.966, 1.02},
    {"rec_fixed_skip", "Rec:fixed:skip", 0.952, 0.99},
    {"feedback_lstm_single", "Feedback:lstm:single", 0.977, 1.40},
    {"feedback_fixed_skip", "Feedback:fixed:skip", 0.935, 1.35},
    {"memorizing", "Memorizing 64k", 0.950, 1.94},
};

// Training of all rows: whole books (48 of 52 to train on), bytes, Adafactor, no clipping and no decay. At the
// smaller scales the layer before the last reads and writes the state, and the learning rate has the paper's
// peak: 0.45 / sqrt(200) = 1 / sqrt(1000).
const std::string kBooks =
    "data.order=documents data.tokenizer=byte260 data.split=0.925 train.optimizer=adafactor "
    "train.schedule=rsqrt train.weight_decay=0 train.clip=0 ";
const ScaleSettings kPaper = {kBooks +
                                  "train.steps=500000 train.warmup=1000 train.learning_rate=1 "
                                  "train.eval_every=5000 train.eval_batches=50",
                              "", ""};
const ScaleSettings kSmaller = {
    kBooks + "train.learning_rate=0.45 model.family=block_recurrent model.model=slide",
    "model.layers=6 model.dim=128 model.heads=4 model.head_dim=32 model.mlp_dim=512 model.context=512 "
    "model.segment=512 model.window=128 model.states=128 train.batch=8 train.steps=2000 train.warmup=200 "
    "train.eval_every=200 train.checkpoint_every=200 train.eval_batches=40",
    "model.layers=2 model.dim=32 model.heads=2 model.head_dim=16 model.mlp_dim=64 model.context=32 "
    "model.segment=32 model.window=8 model.states=8 train.batch=4 train.steps=12 train.warmup=4 "
    "train.eval_every=6 train.eval_batches=2 train.checkpoint_every=0 train.log_every=1 train.sample_tokens=0"};

std::vector<ReproduceRow> paper_rows(const TableRequest& request) {
  std::vector<PaperRow> papers;
  for (const PublishedRow& row : kRows)
    papers.push_back({row.name, row.title, std::string("br_150m_") + row.name, "", {{row.bits}, {row.time}}});
  std::vector<ReproduceRow> rows = make_rows(request, kPaper, papers);
  for (ReproduceRow& row : rows) row.config.train.batch = kTokensPerStep / row.config.model.segment;
  return rows;
}

std::vector<ReproduceRow> small_rows(const TableRequest& request) {
  std::vector<PaperRow> papers;
  const auto add = [&](const std::string& of, const std::string& name, const std::string& title,
                       const std::string& settings) {
    for (const PublishedRow& row : kRows)
      if (of == row.name) papers.push_back({name, title, "", settings, {{row.bits}, {row.time}}});
  };
  add("xl_2048", "xl", "XL, 4 windows long", "model.model=xl");
  add("slide_12l", "slide", "Slide", "");
  add("slide_13l", "slide_plus_1", "Slide, 1 layer more", "");
  for (const std::string gate : {"lstm", "fixed"})
    for (const std::string cell : {"dual", "single", "skip"})
      add("rec_" + gate + "_" + cell, "rec_" + gate + "_" + cell, "Rec:" + gate + ":" + cell,
          "model.model=block_recurrent model.gate=" + gate + " model.cell=" + cell);
  std::vector<ReproduceRow> rows = make_rows(request, kSmaller, papers);
  for (ReproduceRow& row : rows) {
    ModelConfig& model = row.config.model;
    if (model.model == "xl") model.window = model.segment;
    if (model.model == "block_recurrent") model.recurrent_layers = {model.layers - 2};
    if (row.name == "slide_plus_1") ++model.layers;
  }
  return rows;
}

}  // namespace

ReproduceTable block_recurrent_table_1(const TableRequest& request) {
  ReproduceTable table;
  table.title = "Block-Recurrent Transformers (Hutchins et al. 2022), Table 1: books as bytes";
  table.columns = {{"bits per byte", "bits_per_byte"}, {"step time, relative", "step_ms", 1, true, 2}};
  const bool paper = request.scale == Scale::paper;
  table.rows = paper ? paper_rows(request) : small_rows(request);
  table.reference = paper ? "slide_13l" : "slide_plus_1";
  const std::int64_t batches[] = {2, 400, 0};
  table.evaluation = measured_on("valid", batches[static_cast<int>(request.scale)]);
  table.chart_key = "bits_per_byte";
  std::string path = request.data;
  const std::string books = request.data_dir + "/books";
  std::error_code error;
  if (path.empty() && !request.data_dir.empty() && std::filesystem::exists(books, error)) path = books;
  if (path.empty()) {
    if (request.scale != Scale::tiny)
      fail<IoError>(
          "reproduce: block-recurrent/table-1 needs books, one text file each (--data FOLDER, or EDDY_DATA_DIR "
          "with a folder books)");
    table.text.kind = ReproduceText::Kind::documents;
    table.text.generated_bytes = 20'000;
    table.notes.push_back("the books are stories written by Eddy");
  }
  for (ReproduceRow& row : table.rows) row.config.data.path = path;
  table.notes.push_back(
      "the paper's numbers are bits per byte of PG19, ours of the books given: compare rows, not columns");
  table.notes.push_back("step times are medians, relative to " + table.reference);
  if (!paper)
    table.notes.push_back(
        "the paper's numbers are those of XL:2048, Slide:12L, Slide:13L and the recurrent models of its "
        "size; all rows train on as many tokens");
  add_scale_note(table, request.scale);
  return table;
}

}  // namespace eddy
