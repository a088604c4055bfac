// `eddy models`: lists the models of this build, and the configurations of the papers with their numbers of
// parameters. It only counts parameters and allocates nothing, so any size works. --explain also runs a small model.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "models/eddy/registry.h"
#include "tensor/base/format.h"
#include "train/app/inspect/model_outline.h"
#include "train/app/program/commands.h"
#include "train/app/views/svg_picture.h"
#include "train/app/views/table.h"
#include "train/config/config_flags.h"
#include "train/config/new_config.h"
#include "train/tasks/task.h"
#include "train/text/tokenizer.h"
#include "train/words/human_text.h"
#include "train/words/program_name.h"

namespace eddy::app {
using namespace training;
namespace {

struct ModelsOptions {
  std::string config, explain, svg;
  std::int64_t vocab = 0, params = 0;
  ModelConfig defaults;
  ConfigFlags keys;

  bool names_one() const { return !config.empty() || !keys.given().empty(); }
};

std::int64_t without_token_table(const ParamStore& counted) {
  return counted.count() - counted.get("embed.weight").shape.elements();
}

int list_models() {
  Table models;
  for (const ModelEntry& entry : model_registry())
    models.rows.push_back({fmt::format("{}/{}", entry.family, entry.model), entry.summary});
  print("Models of this build:\n" + to_text(models, 2));
  // Papers count with or without the embedding table, whose size depends on the vocabulary.
  Table papers{{"name", "model", "parameters", "without table", "expected", ""}, {}, "llrrrl"};
  bool differs = false;
  for (const NamedConfig& named : paper_configs()) {
    const ParamStore counted = count_parameters(named.config);
    const bool same = counted.count() == named.parameters;
    differs = differs || !same;
    papers.rows.push_back({named.name, named.config.model, std::to_string(counted.count()),
                           std::to_string(without_token_table(counted)), std::to_string(named.parameters),
                           same ? "" : "DIFFERS"});
  }
  print("\nConfigurations of the papers:\n" + to_text(papers, 2));
  return differs ? 1 : 0;
}

constexpr std::int64_t kBytes = 256;  // the vocabulary where nothing says another

// The size of a tokenizer's vocabulary; of one that a text decides, that of bytes.
std::int64_t usual_vocab(const std::string& tokenizer) {
  return tokenizer == kCharTokenizer ? kBytes : make_tokenizer(tokenizer, "")->vocab_size();
}

// The sizes at which every model has so many parameters.
int list_sizes(const ModelsOptions& options) {
  const std::int64_t vocab = options.vocab > 0 ? options.vocab : kBytes;
  Table sizes{{"model", "dim", "mlp_dim", "parameters"}, {}, "lr"}, none;
  for (const ModelEntry& entry : model_registry()) {
    const std::string name = fmt::format("{}/{}", entry.family, entry.model);
    ModelConfig config = preset_model(name, "models");
    config.vocab = vocab;
    config.params = options.params;
    try {
      const ModelConfig full = resolved(config);
      const bool has_mlp = reads_key(full, "mlp_dim");
      sizes.rows.push_back({name, std::to_string(full.dim), has_mlp ? std::to_string(full.mlp_dim) : "-",
                            grouped(count_parameters(full).count())});
    } catch (const ConfigError& refused) {
      none.rows.push_back({name, refused.what()});
    }
  }
  const std::string at = fmt::format("{} parameters, a vocabulary of {}, and else those of a new run",
                                     grouped(options.params), vocab);
  if (!sizes.rows.empty()) print("Sizes at " + at + ":\n" + to_text(sizes, 2));
  if (!none.rows.empty()) print("No sizes have " + at + ":\n" + to_text(none, 2));
  return sizes.rows.empty() ? 1 : 0;
}

// The one model that the options describe.
RunConfig described(const ModelsOptions& options) {
  NewConfig gathered;
  if (!options.explain.empty())
    for (const char* const key : {"model.model", "model.family"})
      if (options.keys.given().contains(key))
        fail<ConfigError>("models: --explain {} names the model, and --{} another (leave out one)",
                          options.explain, key);
  if (!options.explain.empty()) gathered.merge_preset(options.explain, "models");
  if (!options.config.empty()) gathered.merge_file(options.config);
  gathered.merge_flags(options.keys.given());
  RunConfig config = gathered.completed();
  if (options.vocab > 0) config.model.vocab = options.vocab;
  if (config.model.vocab == 0) config.model.vocab = usual_vocab(config.data.tokenizer);
  return config;
}

int explain_model(const ModelsOptions& options) {
  const RunConfig config = described(options);
  if (constexpr std::int64_t kMostLayers = 256; config.model.layers > kMostLayers)
    fail<ValueError>(
        "models: --explain shows every layer, and {} are too many (model.layers {} or less: they are alike)",
        grouped(config.model.layers), kMostLayers);
  if (!options.svg.empty()) check_output("models", options.svg, kPictureFile);
  const ModelOutline outline = outline_model(config.model, segment_length(config));
  print(to_text(outline));
  if (!options.svg.empty()) {
    write_output_file("models", options.svg, draw_outline(outline), kPictureFile);
    print_line("picture: {}", options.svg);
  }
  return 0;
}

int list_parameters(const ModelsOptions& options) {
  const RunConfig config = described(options);
  const ParamStore counted = count_parameters(config.model);
  Table table{{}, {}, "llr"};
  for (const Parameter& parameter : counted.parameters())
    table.rows.push_back(
        {parameter.name, to_string(parameter.shape), std::to_string(parameter.shape.elements())});
  print(to_text(table));
  print_line("{}/{}: {} parameters in {} tensors, {} without the token table", config.model.family,
             config.model.model, counted.count(), counted.parameters().size(), without_token_table(counted));
  return 0;
}

Described describe_models(CLI::App& command) {
  const auto options = std::make_shared<ModelsOptions>();
  add_option(command, "--config", options->config,
             "List the parameters of this configuration (TOML or JSON) instead", not_empty());
  command
      .add_option("--vocab", options->vocab,
                  "Size of the vocabulary, if the configuration leaves it to the text (default: 256)")
      ->transform(whole_number(1, 1'000'000'000));
  command
      .add_option("--params", options->params,
                  "List instead the sizes at which every model has so many parameters, within 3 %")
      ->transform(whole_number(1, 1'000'000'000'000'000));
  add_option(
      command, "--explain", options->explain,
      "Explain instead a model or configuration of a paper, by its name: what reads what, the work and the "
      "parameters of each part, the state, and how far back it sees",
      not_empty());
  add_option(command, "--svg", options->svg, "With --explain, write the same as a picture to this file too",
             not_empty());
  options->keys.add_to(command, keys_of(options->defaults));
  command.footer(fmt::format(
      "With --config, a key of a model, or both, it lists the parameters of that one: {} models --model staircase "
      "--model.layers 2 --vocab 65",
      program_name()));
  return {[options] {
    if (options->params > 0 && options->names_one())
      fail<ValueError>("models: --params lists all models (for one: --model.params {})", options->params);
    if (options->params > 0 && !options->explain.empty())
      fail<ValueError>("models: --params lists all models, --explain is about one (give one of them)");
    if (!options->svg.empty() && options->explain.empty())
      fail<ValueError>("models: --svg draws one model (name it by --explain)");
    if (options->params > 0) return list_sizes(*options);
    if (!options->explain.empty()) return explain_model(*options);
    if (options->vocab > 0 && !options->names_one())
      fail<ValueError>("models: --vocab is for one model (name it by --config or --model), or for --params");
    return options->names_one() ? list_parameters(*options) : list_models();
  }};
}

}  // namespace

Command commands::models() {
  return {"models", "List models and their numbers of parameters", Computes::nothing, Results::printed,
          describe_models};
}

}  // namespace eddy::app
