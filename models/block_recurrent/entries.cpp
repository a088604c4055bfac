// The family's rows of the registry, the configurations of its paper (Hutchins et al. 2022, table 1 and the
// scaling study of table 4), and the rules between its config keys.
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "models/block_recurrent/block_recurrent.h"
#include "models/config_rules.h"
#include "models/families.h"
#include "tensor/base/format.h"

namespace eddy {
namespace {

using rules::at_least, rules::one_of;

constexpr std::int64_t kT5Vocab = 32128;

// A list of layers: each once, all there are.
void check_layers(const char* key, const std::vector<std::int64_t>& list, std::int64_t layers) {
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i] < 0 || list[i] >= layers)
      fail<ConfigError>("config: model.{} names layer {}, and the model has {} (0 to {})", key, list[i],
                        layers, layers - 1);
    if (std::find(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(i), list[i]) !=
        list.begin() + static_cast<std::ptrdiff_t>(i))
      fail<ConfigError>("config: model.{} names layer {} twice (each layer once)", key, list[i]);
  }
}

void check_sizes(const ModelConfig& c) {
  const std::int64_t segment = c.segment == 0 ? c.context : c.segment;
  const std::int64_t window = c.window == 0 ? segment : c.window;
  at_least("segment", c.segment, 0);
  at_least("window", c.window, 0);
  if (segment % window != 0)
    fail<ConfigError>("config: model.window must divide model.segment: window {}, segment {}", window,
                      segment);
  if ((c.model == "xl" || c.model == "vanilla") && window != segment)
    fail<ConfigError>(
        "config: model {} has one window per segment: window {}, segment {} (leave window out, or "
        "take slide)",
        c.model, window, segment);
  rules::one_kind_of_heads(c);
  at_least("rel_buckets", c.rel_buckets, 2);
  if (c.rel_max_distance <= c.rel_buckets / 2)
    fail<ConfigError>(
        "config: model.rel_max_distance must be more than half of rel_buckets: rel_max_distance {}, "
        "rel_buckets {}",
        c.rel_max_distance, c.rel_buckets);
  if (!(c.qk_eps >= 0)) fail<ConfigError>("config: model.qk_eps is {} (at least 0)", c.qk_eps);
  rules::below_one("attn_dropout", c.attn_dropout);
}

void check_recurrence(const ModelConfig& c) {
  if (c.model != "block_recurrent") return;
  check_layers("recurrent_layers", c.recurrent_layers, c.layers);
  if (c.recurrent_layers.empty())
    fail<ConfigError>(
        "config: model.recurrent_layers is empty (which of the {} layers recur; without any, take "
        "model slide)",
        c.layers);
  at_least("states", c.states, 1);
  one_of("gate", c.gate, {"fixed", "lstm"});
  one_of("cell", c.cell, {"dual", "single", "skip"});
  one_of("tanh_rule", c.tanh_rule, {"code", "paper"});
}

void check_memory(const ModelConfig& c) {
  if (c.model != "memorizing") return;
  check_layers("memory_layers", c.memory_layers, c.layers);
  if (c.memory_layers.empty())
    fail<ConfigError>(
        "config: model.memory_layers is empty (which of the {} layers have a memory; without any, "
        "take model xl)",
        c.layers);
  const std::int64_t segment = c.segment == 0 ? c.context : c.segment;
  if (c.memory_size < 1 || c.memory_size % segment != 0)
    fail<ConfigError>(
        "config: model.memory_size must be a multiple of model.segment: memory_size {}, segment {}",
        c.memory_size, segment);
  if (c.memory_topk < 1 || c.memory_topk > c.memory_size)
    fail<ConfigError>("config: model.memory_topk is {} (from 1 to memory_size, {})", c.memory_topk,
                      c.memory_size);
  one_of("memory_search", c.memory_search, {"bucket", "exact"});
}

// The 150M size of table 1 as Slide:12L; its logits are divided as in the code of that time.
ModelConfig paper_150m() {
  ModelConfig c;
  c.family = "block_recurrent";
  c.model = "slide";
  c.vocab = kT5Vocab;
  c.context = c.segment = 4096;
  c.window = 512;
  c.dim = 1024;
  c.layers = 12;
  c.heads = 8;
  c.head_dim = 128;
  c.mlp_dim = 4096;
  c.dropout = c.attn_dropout = 0.05;
  c.logit_divisor = "sqrt_vocab";
  return c;
}

ModelConfig xl(ModelConfig c, std::int64_t window) {
  c.model = "xl";
  c.context = c.segment = c.window = window;
  return c;
}

ModelConfig recurrent(ModelConfig c, const char* gate, const char* cell) {
  c.model = "block_recurrent";
  c.recurrent_layers = {9};
  if (c.layers == 24) c.recurrent_layers = {9, 19};
  c.gate = gate;
  c.cell = cell;
  return c;
}

ModelConfig with_feedback(ModelConfig c) {
  c.feedback = true;
  return c;
}

struct ScalingRow {
  const char* label;
  std::int64_t layers, dim, heads, head_dim, mlp_dim;  // of Rec; XL has a twelfth more layers
  std::int64_t recurrent, xl;                          // parameters without the token table
};
constexpr ScalingRow kScaling[] = {
    {"40m", 12, 512, 8, 64, 2048, 40'387'192, 40'911'720},
    {"80m", 12, 512, 8, 128, 4096, 80'233'080, 81'806'184},
    {"160m", 12, 1024, 8, 128, 4096, 160'462'968, 163'608'936},
    {"320m", 12, 1024, 16, 128, 8192, 319'849'712, 327'190'224},
    {"650m", 24, 1024, 16, 128, 8192, 639'698'400, 654'379'424},
    {"1.3b", 24, 2048, 16, 128, 8192, 1'279'384'032, 1'308'745'120},
};

}  // namespace

std::vector<ModelEntry> block_recurrent_models() {
  const auto entry = [](const char* model, const char* summary) {
    return model_entry<BlockRecurrent>("block_recurrent", model, summary);
  };
  return {entry("slide", "sliding-window transformer: gradients between the blocks of a segment"),
          entry("xl", "one window per segment, keys of the last one cached"),
          entry("vanilla", "one window per segment, no cache"),
          entry("block_recurrent", "recurrent cells over blocks of tokens, optionally with feedback"),
          entry("memorizing", "external memory of past keys and values")};
}

std::vector<NamedConfig> block_recurrent_configs() {
  const ModelConfig base = paper_150m();
  ModelConfig slide_13 = base;
  slide_13.layers = 13;
  ModelConfig memorizing = xl(base, 512);
  memorizing.model = "memorizing";
  memorizing.memory_layers = {8};
  memorizing.memory_size = 65536;
  std::vector<NamedConfig> configs{
      {"br_150m_xl_512", xl(base, 512), 183'922'784},
      {"br_150m_xl_1024", xl(base, 1024), 183'922'784},
      {"br_150m_xl_2048", xl(base, 2048), 183'922'784},
      {"br_150m_slide_12l", base, 183'922'784},
      {"br_150m_slide_13l", slide_13, 196'508'008},
      {"br_150m_rec_lstm_dual", recurrent(base, "lstm", "dual"), 214'337'656},
      {"br_150m_rec_lstm_single", recurrent(base, "lstm", "single"), 212'237'432},
      {"br_150m_rec_lstm_skip", recurrent(base, "lstm", "skip"), 197'557'368},
      {"br_150m_rec_fixed_dual", recurrent(base, "fixed", "dual"), 201'752'696},
      {"br_150m_rec_fixed_single", recurrent(base, "fixed", "single"), 203'847'800},
      {"br_150m_rec_fixed_skip", recurrent(base, "fixed", "skip"), 193'362'040},
      {"br_150m_feedback_lstm_single", with_feedback(recurrent(base, "lstm", "single")), 235'306'192},
      {"br_150m_feedback_fixed_skip", with_feedback(recurrent(base, "fixed", "skip")), 216'430'800},
      {"br_150m_memorizing", memorizing, 183'922'792},
  };
  for (const ScalingRow& row : kScaling) {
    ModelConfig c = base;
    c.layers = row.layers;
    c.dim = row.dim;
    c.heads = row.heads;
    c.head_dim = row.head_dim;
    c.mlp_dim = row.mlp_dim;
    c.logit_divisor = "sqrt_d";
    const std::int64_t table = kT5Vocab * row.dim;
    const std::string name = std::string("br_scaling_") + row.label;
    configs.push_back({name + "_rec_fixed_skip", recurrent(c, "fixed", "skip"), row.recurrent + table});
    c.layers += row.layers / 12;
    configs.push_back({name + "_xl", xl(c, 512), row.xl + table});
  }
  return configs;
}

void check_block_recurrent(const ModelConfig& c) {
  check_sizes(c);
  check_recurrence(c);
  check_memory(c);
  one_of("logit_divisor", c.logit_divisor, {"sqrt_d", "sqrt_vocab", "none"});
}

}  // namespace eddy
