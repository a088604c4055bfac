// Tables of Ju et al., "Staircase Attention for Recurrent Processing of Sequences" (2021). Table 1: state
// tracking, with sizes and training of the published script for Algorithm, and its suggestions for Random Walk.
// Tables 2 and 3: what the recurrent steps N and the forward size C bring and cost, on text.

#include "tensor/base/format.h"
#include "train/reproduce/tables.h"

namespace eddy {
namespace {

struct PublishedRow {
  const char* name;
  const char* title;
  const char* config;
  Published algorithm, walk;
};

const PublishedRow kRows[] = {
    {"lstm", "LSTM", "algorithm_lstm", {1.0, "quoted there, other data"}, {0.6}},
    {"transformer_xl", "Transformer-XL", "algorithm_xl", {48.7, "the paper's data"}, {84.1}},
    {"transformer_xl_deep", "Transformer-XL, twice as deep, as scripted", "algorithm_xl_8", {58.44}, {}},
    {"feedback", "Feedback", "algorithm_feedback", {0.2, "the paper's data"}, {0.1}},
    {"staircase", "Staircase", "algorithm_staircase", {3.6}, {0.1}},
    {"cached_staircase", "Cached Staircase", "algorithm_cached", {1.2, "the paper's data"}, {0.1}}};

// Shrinks a row to a few CPU cores (small), or to a quick trial (tiny). The small Random Walk has 100 actions
// on 4 x 4 cells, a size at which one core shows the pattern of the paper. A model without recurrence sees as
// many actions, but has too few layers to follow them. Chunks are short, since inside a chunk only the layers
// carry the walk on; a segment has many chunks, since gradients end with it.
void shrink(RunConfig& config, Scale scale) {
  ModelConfig& m = config.model;
  const bool cached = m.model == "cached_staircase", chunked = cached || m.model == "staircase";
  const bool deeper = m.layers == 8, tiny = scale == Scale::tiny;
  const bool walk = !tiny && config.data.name == "random_walk";
  const std::int64_t dim = tiny ? 16 : 128, window = tiny ? 4 : 32;
  m.dropout = walk ? 0 : 0.1;
  m.segment = m.context = chunked ? 2 * window : window;
  m.chunk = walk ? 8 : window;
  if (m.model == "lstm") {
    // This width gives as many parameters as the other models have; for Random Walk half the width suffices.
    m.dim = walk ? dim : 2 * dim;
    m.embed_dim = m.dim / 2;
  } else {
    m.dim = dim;
    m.mlp_dim = 4 * dim;
    m.heads = tiny ? 2 : 4;
    m.layers = deeper ? 4 : 2;
    if (walk && cached) {  // one pass for each token: half the chunk, for twice as many steps
      m.chunk /= 2;
      m.steps *= 2;
    }
    m.span = chunked ? m.steps * m.chunk : window + window / 2;
  }
  TrainConfig& t = config.train;
  const std::int64_t tokens = tiny ? 64 : 4096;
  t.batch = tokens / m.segment;
  t.learning_rate = !walk ? 5e-4 : m.model == "lstm" ? 2e-3 : 1e-3;
  set_keys(config, tiny ? "train.steps=12 train.warmup=4 train.eval_every=6 train.checkpoint_every=0 "
                          "train.log_every=1 data.examples=40 data.valid_examples=8 data.test_examples=8 "
                          "data.statements=10 data.walk_length=40"
                   : walk
                       ? "train.steps=4500 train.warmup=100 train.eval_every=500 train.checkpoint_every=500 "
                         "data.walk_grid=4 data.walk_length=100"
                       : "train.steps=6000 train.warmup=200 train.eval_every=500 train.checkpoint_every=500");
}

}  // namespace

ReproduceTable staircase_table_1(const TableRequest& request) {
  if (!request.data.empty()) refuse_data("staircase/table-1");
  ReproduceTable table;
  const bool walk = request.task == "random-walk";
  table.title = std::string("Staircase Attention (Ju et al. 2021), Table 1: ") +
                (walk ? "Random Walk" : "Algorithm, 3 variables");
  table.columns = {{"error, %", "error_percent", 1, false, 2}};
  const ScaleSettings shared = {
      std::string("train.optimizer=adam train.learning_rate=1e-4 train.beta2=0.999 train.weight_decay=0 "
                  "train.clip=0.1 train.warmup=1000 train.sample_tokens=0 data.name=") +
          (walk ? "random_walk" : "algorithm"),
      "", ""};
  std::vector<PaperRow> papers;
  for (const PublishedRow& row : kRows)
    papers.push_back({row.name, row.title, row.config, "", {walk ? row.walk : row.algorithm}});
  table.rows = make_rows(request, shared, papers);
  for (ReproduceRow& row : table.rows) {
    RunConfig& config = row.config;
    const bool chunked = config.model.segment == 128;
    set_keys(config, chunked ? "train.batch=256 train.steps=100000 train.eval_every=2000"
                             : "train.batch=512 train.steps=50000 train.eval_every=1000");
    if (request.scale != Scale::paper) shrink(config, request.scale);
  }
  table.evaluation = measured_on("test", 0);
  table.chart_key = "error_percent";
  if (walk)
    table.notes = {
        "the walks are of our own definition, since the paper's is not published: compare the pattern, "
        "not digits"};
  else
    table.notes = {
        "58.44 and 3.6 are the published script's numbers for these data; the paper's own data "
        "differ slightly"};
  table.notes.emplace_back(
      "the paper took the best of several seeds by validation; ours is one seed, measured at its best "
      "validation loss. Rows of a batch begin inside an example, whose first labels then cannot be known: "
      "it raises the error of all models alike");
  add_scale_note(table, request.scale);
  return table;
}

namespace {

// Validation perplexity and milliseconds of a batch on Reddit; 0 where the paper has no such row.
struct TextRow {
  const char* model;
  std::int64_t n, c;  // steps or repeats, and forward size; 0: the model has none
  double perplexity, ms;
};
constexpr double kXlMs = 178;
constexpr TextRow kTextRows[] = {{"transformer_xl", 0, 0, 26.5, kXlMs},
                                 {"feedback", 0, 0, 25.8, 3260},
                                 {"staircase", 1, 32, 0, 0},
                                 {"staircase", 1, 64, 0, 0},
                                 {"staircase", 1, 128, 0, 0},
                                 {"staircase", 2, 32, 0, 0},
                                 {"staircase", 2, 64, 25.2, 310},
                                 {"staircase", 2, 128, 25.0, 297},
                                 {"staircase", 4, 32, 23.8, 605},
                                 {"staircase", 4, 64, 23.7, 580},
                                 {"staircase", 4, 128, 0, 0},
                                 {"staircase", 8, 32, 22.9, 1147},
                                 {"cached_staircase", 9, 32, 26.4, 489},
                                 {"cached_staircase", 5, 64, 26.4, 318},
                                 {"cached_staircase", 3, 128, 26.4, 246},
                                 {"ladder", 2, 0, 0, 0},
                                 {"universal", 2, 0, 39.9, 51},
                                 {"universal", 4, 0, 34.9, 88},
                                 {"universal", 8, 0, 32.3, 163},
                                 {"universal", 16, 0, 31.5, 328}};

// The sizes of the paper follow from its parameter counts; its data and its training are not published.
const ScaleSettings kText = {
    "model.family=staircase model.dim=1024 model.mlp_dim=4096 model.heads=16 model.layers=8 "
    "model.segment=512 model.context=512 model.span=512 model.dropout=0 data.order=stream "
    "train.steps=100000 train.batch=64 train.optimizer=adam train.learning_rate=5e-4 train.beta2=0.999 "
    "train.weight_decay=0 train.clip=0.1 train.warmup=1000 train.eval_every=0 train.sample_tokens=0 "
    "train.state_gain_batches=0 train.log_every=1 train.checkpoint_every=50",
    "model.dim=64 model.mlp_dim=256 model.heads=4 model.layers=2 model.segment=128 model.context=128 "
    "model.span=128 data.tokenizer=char train.steps=200 train.batch=16 "
    "train.learning_rate=2e-3 train.warmup=50",
    "model.dim=8 model.mlp_dim=32 model.heads=2 model.layers=1 model.segment=16 model.context=16 "
    "model.span=16 data.tokenizer=char train.steps=3 train.batch=2 train.warmup=1"};

}  // namespace

ReproduceTable staircase_tables_2_3(const TableRequest& request) {
  ReproduceTable table;
  table.title = "Staircase Attention (Ju et al. 2021), Tables 2 and 3: steps N and forward size C on text";
  table.columns = {{"bits per byte", "bits_per_byte"},
                   {"time of a batch, relative", "step_ms", 1, true, 2},
                   {"kept for backward, MiB", "saved_bytes", 1.0 / (1 << 20), false, 1},
                   {"forward, kFLOP a token", "flops_per_token", 1e-3, false, 1}};
  table.across = 1;
  table.reference = "transformer_xl";
  std::vector<PaperRow> papers;
  for (const TextRow& row : kTextRows) {
    const std::int64_t c = row.c / (request.scale == Scale::paper   ? 1
                                    : request.scale == Scale::small ? 2
                                                                    : 16);
    const std::string model = row.model, n = std::to_string(row.n);
    PaperRow& paper = papers.emplace_back();
    paper.title = model == "transformer_xl" ? "Transformer-XL" : model;
    paper.name = model;
    paper.settings = "model.model=" + model;
    if (model == "feedback") paper.settings += " model.shared_kv=true";
    if (c > 0) {
      paper.title += fmt::format(", N {}, C {}", n, c);
      paper.name += fmt::format("-n{}-c{}", n, c);
      paper.settings += fmt::format(" model.steps={} model.chunk={}", n, c);
    } else if (row.n > 0) {
      paper.title += ", N " + n;
      paper.name += "-n" + n;
      paper.settings += " model.repeats=" + n;
    }
    if (row.ms > 0)
      paper.published = {{.remark = fmt::format("perplexity {}", row.perplexity)}, {row.ms / kXlMs}};
  }
  table.rows = make_rows(request, kText, papers);
  for (ReproduceRow& row : table.rows) {
    ModelConfig& m = row.config.model;
    if (m.model.ends_with("staircase")) m.span = 0;  // steps * chunk
    if (m.model == "universal") m.layers = 1;
  }
  table.evaluation = measured_on("valid", 0);
  table.notes = {
      "the paper's numbers are validation perplexities of Reddit, which is not published: compare rows, not columns",
      "kept for backward: what the graph of a step saves, with the weights",
      "forward: the operations of products with a carried state, counted",
      "another N or C: --rows staircase-n4-c32 --set model.steps=N --set model.chunk=C --runs FOLDER"};
  if (request.scale != Scale::paper)
    table.notes.emplace_back("the forward sizes are the paper's divided by the same number as the segment");
  add_scale_note(table, request.scale);
  return table;
}

}  // namespace eddy
