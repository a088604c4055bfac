// `eddy export` and `eddy import`: models for other programs, and from them. `eddy dump`: one case,
// to compare with another implementation.
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "tensor/base/format.h"
#include "train/app/exchange/dump.h"
#include "train/app/exchange/export.h"
#include "train/app/exchange/import.h"
#include "train/app/program/commands.h"
#include "train/text/sentencepiece_tokenizer.h"
#include "train/words/program_name.h"

namespace eddy::app {
using namespace training;
namespace {

struct ExportFlags {
  RunOptions run;
  std::string out, form = value_name(ModelForm::pytorch);
};

int run_export(const ExportFlags& flags) {
  const ModelForm form = value_named<ModelForm>(flags.form).value();
  const LoadedRun run = load_run("export", flags.run);
  const Exported exported = export_model(*run.model, run.tokenizer.get(), flags.out, form);
  print_line("{}: {}", flags.out, fmt::join(exported.files, ", "));
  if (form == ModelForm::pytorch && !exported.has_program)
    say(fmt::format(
        "logits.py is left out: it does not know {} (train/app/exchange/README.md says how to add a model)",
        run.config.model.model));
  return 0;
}

struct ImportFlags {
  NewRunOptions run;
  ImportRequest request;
};

int run_import(ImportFlags& flags, const CLI::App& app) {
  ImportRequest& request = flags.request;
  std::vector<std::string> notes;
  request.command_line = command_line_of(app);
  const std::map<std::string, std::string> given = flags.run.texts("import");
  const auto tokenizer = given.find("data.tokenizer");
  if (request.map.empty()) {
    if (request.weights.size() != 1)
      fail<ValueError>("import: {} names after --weights (without --map one: a folder or a GGUF file)",
                       request.weights.size());
    request.described = read_described_model(request.weights.front(),
                                             tokenizer != given.end() && tokenizer->second == kIdsTokenizer);
  }
  request.config =
      flags.run.gathered("import", notes, nullptr, request.described ? &request.described->model : nullptr);
  if (request.described && request.described->tokenizer != nullptr && tokenizer == given.end()) {
    const std::string name = request.described->tokenizer->name();
    request.config.data.tokenizer =
        name == kSentencePiece ? (std::filesystem::path(request.run_dir) / "tokenizer.model").string() : name;
  }
  if (request.described && request.described->tokenizer == nullptr && tokenizer == given.end() &&
      request.config.data.path.empty())
    fail<ValueError>(
        "import: {} has no tokenizer that Eddy reads: give a text as token ids, by --data ids.txt --data.tokenizer ids "
        "(train/app/exchange/README.md shows how the model's own tokenizer makes them), or a text with its tokenizer",
        request.weights.front());
  take_threads(request.config, app);
  validate(request.config);
  for (const std::string& note : notes) say(note);
  print_line("{}", import_run(request));
  return 0;
}

Described describe_export_model(CLI::App& command) {
  const auto flags = std::make_shared<ExportFlags>();
  add_run_argument(command, flags->run.path);
  add_option(command, "--out", flags->out,
             "Folder to make; may exist if it is empty, or if an export into it was interrupted", not_empty())
      ->required();
  add_option(
      command, "--format", flags->form,
      "pytorch: weights, sizes and code that reads them; huggingface: of a llama or llama_window; gguf: of a llama, "
      "for llama.cpp",
      CLI::IsMember(value_names<ModelForm>()));
  add_checkpoint_option(command, flags->run.checkpoint, "Checkpoint of the run");
  return {[flags] { return run_export(*flags); }};
}

Described describe_import_model(CLI::App& command) {
  const auto flags = std::make_shared<ImportFlags>();
  add_option(command, "--run,--out", flags->request.run_dir, "Folder of the new run; must not exist",
             not_empty())
      ->required();
  command
      .add_option(
          "--weights", flags->request.weights,
          "A folder that export wrote, in any of its forms, a Llama of Hugging Face's, or a GGUF file; with --map safetensors files with the weights, the index of several, or their folder")
      ->required()
      ->check(not_empty());
  add_option(
      command, "--map", flags->request.map,
      "TOML file that says which tensor becomes which parameter; without it the weights say what their model is",
      not_empty());
  flags->run.add_to(command);
  command.footer(fmt::format(
      "The configuration and --data are as for {} train; without --map the model and the tokenizer are those of the weights. "
      "train/app/exchange/README.md explains the map.",
      program_name()));
  return {[flags, &app = *command.get_parent()] {
    return naming_flags(flags->run.given_short(), [&] { return run_import(*flags, app); });
  }};
}

Described describe_dump(CLI::App& command) {
  const auto options = std::make_shared<DumpOptions>();
  const auto add_file = [&](const char* name, std::string& file, const char* help) {
    return add_option(command, name, file, help, not_empty());
  };
  add_file("--case", options->case_dir, "Folder with config.json and case.safetensors");
  add_file("--config", options->config, "config.json of a case, or a run's config (TOML or JSON)");
  add_file("--weights", options->weights, "Safetensors with param.<name> or <name>");
  add_file("--tokens", options->tokens, "Safetensors with tokens, and targets to get a loss");
  add_file("--state", options->state, "Safetensors with state.<name> or next_state.<name>");
  add_file("--out", options->out, "The file to write")->required();
  add_option(command, "--precision", options->precision, "Arithmetic and output",
             CLI::IsMember(value_names<DumpPrecision>()));
  add_option(command, "--device", options->device, "Where to compute; cuda takes --precision f32",
             CLI::IsMember(value_names<DeviceChoice>()));
  command.add_flag("--grads", options->grads, "Also write the gradient of every parameter");
  add_option(
      command, "--capture", options->capture,
      "Also write values inside the model whose path fits a pattern, such as 'layers.*.attn.probabilities'",
      not_empty());
  command.add_flag("--literal", options->literal, "Compute by the equations word for word");
  return {[options] {
    check_output("dump", options->out, kDumpFile);
    const std::string warning = dump(*options);
    if (!warning.empty()) say("dump: " + warning);
    print_line("wrote {}", options->out);
    return 0;
  }};
}

}  // namespace

Command commands::export_model() {
  return {"export", "Write a trained model for other programs: weights, sizes, tokenizer, PyTorch code",
          Computes::products, Results::printed, describe_export_model};
}

Command commands::import_model() {
  return {"import", "Begin a run with the weights of another program", Computes::products, Results::printed,
          describe_import_model};
}

Command commands::dump() {
  return {"dump", "Write logits, loss, gradients and states of one case to a file", Computes::products,
          Results::printed, describe_dump};
}

}  // namespace eddy::app
