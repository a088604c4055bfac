// Table 1 of Hutchins et al., "Block-recurrent transformers" (2022): bits per byte on books, and step times.
#include <algorithm>
#include <filesystem>

#include "train/reproduce/tables.h"

namespace eddy {
namespace {

constexpr std::int64_t kTokensPerStep = 131072;  // as in the paper, for every segment length

// Bits per byte on PG19, and the step time relative to Slide:13L.
struct PaperRow {
  const char* name;
  const char* title;
  double bits, time;
};
constexpr PaperRow kRows[] = {
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

const PaperRow& paper_row(const std::string& name) {
  return *std::find_if(std::begin(kRows), std::end(kRows),
                       [&](const PaperRow& row) { return name == row.name; });
}

ReproduceRow row_of(const PaperRow& paper, const std::string& name, const std::string& title) {
  ReproduceRow row;
  row.name = name;
  row.title = title;
  row.published = {{paper.bits}, {paper.time}};
  return row;
}

// Training of all rows: whole books, bytes, Adafactor, no clipping and no decay.
void set_training(RunConfig& config) {
  config.data.order = "documents";
  config.data.tokenizer = "byte260";
  config.data.split = 0.925;  // 48 of 52 books
  TrainConfig& t = config.train;
  t.optimizer = "adafactor";
  t.schedule = "rsqrt";
  t.learning_rate = 1;
  t.weight_decay = 0;
  t.clip = 0;
}

std::vector<ReproduceRow> paper_rows() {
  std::vector<ReproduceRow> rows;
  for (const PaperRow& paper : kRows) {
    ReproduceRow row = row_of(paper, paper.name, paper.title);
    RunConfig& config = row.config;
    config.model = paper_model(std::string("br_150m_") + paper.name);
    set_training(config);
    TrainConfig& t = config.train;
    t.steps = 500'000;
    t.warmup = 1000;
    t.batch = kTokensPerStep / config.model.segment;
    t.eval_every = 5000;
    t.eval_batches = 50;
    rows.push_back(std::move(row));
  }
  return rows;
}

// Returns a size for a few CPU cores: 6 layers of 128, windows of 128; the layer before the last reads and
// writes the state.
ModelConfig small_slide(Scale scale) {
  ModelConfig c;
  c.family = "block_recurrent";
  c.model = "slide";
  c.layers = 6;
  c.dim = 128;
  c.heads = 4;
  c.head_dim = 32;
  c.mlp_dim = 512;
  c.context = c.segment = 512;
  c.window = c.states = 128;
  if (scale == Scale::tiny) {
    c.layers = 2;
    c.dim = 32;
    c.heads = 2;
    c.head_dim = 16;
    c.mlp_dim = 64;
    c.context = c.segment = 32;
    c.window = c.states = 8;
  }
  return c;
}

std::vector<ReproduceRow> small_rows(Scale scale) {
  const ModelConfig slide = small_slide(scale);
  std::vector<ReproduceRow> rows;
  const auto add = [&](const char* paper, const std::string& name, const std::string& title,
                       const ModelConfig& model) {
    ReproduceRow row = row_of(paper_row(paper), name, title);
    row.config.model = model;
    set_training(row.config);
    TrainConfig& t = row.config.train;
    t.batch = 8;
    t.steps = 2000;
    t.warmup = 200;
    t.learning_rate = 0.45;  // same peak as the paper: 0.45 / sqrt(200) = 1 / sqrt(1000)
    t.eval_every = t.checkpoint_every = 200;
    t.eval_batches = 40;
    if (scale == Scale::tiny) {
      t.batch = 4;
      t.steps = 12;
      t.warmup = 4;
      t.eval_every = 6;
      t.eval_batches = 2;
      t.checkpoint_every = 0;
      t.log_every = 1;
      t.sample_tokens = 0;
    }
    rows.push_back(std::move(row));
  };
  ModelConfig xl = slide;
  xl.model = "xl";
  xl.window = xl.segment;
  ModelConfig deeper = slide;
  ++deeper.layers;
  const std::int64_t windows = slide.segment / slide.window;
  add("xl_2048", "xl", "XL, " + std::to_string(windows) + " windows long", xl);
  add("slide_12l", "slide", "Slide", slide);
  add("slide_13l", "slide_plus_1", "Slide, 1 layer more", deeper);
  for (const char* gate : {"lstm", "fixed"})
    for (const char* cell : {"dual", "single", "skip"}) {
      ModelConfig recurrent = slide;
      recurrent.model = "block_recurrent";
      recurrent.recurrent_layers = {slide.layers - 2};
      recurrent.gate = gate;
      recurrent.cell = cell;
      const std::string name = std::string("rec_") + gate + "_" + cell;
      add(name.c_str(), name, std::string("Rec:") + gate + ":" + cell, recurrent);
    }
  return rows;
}

}  // namespace

ReproduceTable block_recurrent_table_1(const TableRequest& request) {
  ReproduceTable table;
  table.title = "Block-Recurrent Transformers (Hutchins et al. 2022), Table 1: books as bytes";
  table.columns = {{"bits per byte", "bits_per_byte"}, {"step time, relative", "step_ms", 1, true, 2}};
  const bool paper = request.scale == Scale::paper;
  table.rows = paper ? paper_rows() : small_rows(request.scale);
  table.reference = paper ? "slide_13l" : "slide_plus_1";
  const std::int64_t batches[] = {2, 400, 0};
  table.evaluation = measured_on("valid", batches[static_cast<int>(request.scale)]);
  table.chart_key = "bits_per_byte";
  std::string path = request.data;
  const std::string books = request.data_dir + "/books";
  std::error_code error;
  if (path.empty() && !request.data_dir.empty() && std::filesystem::exists(books, error)) path = books;
  if (path.empty()) {
    if (request.scale != Scale::tiny) books_missing();
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
