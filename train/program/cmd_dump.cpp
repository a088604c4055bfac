// `eddy dump`: writes logits, loss, gradients and states of one case, to compare with other implementations.
#include <CLI/CLI.hpp>
#include <memory>

#include "train/program/commands.h"
#include "train/study/dump.h"

namespace eddy {

void add_dump_command(CLI::App& app, std::function<int()>& action) {
  CLI::App* command =
      app.add_subcommand("dump", "Write logits, loss, gradients and states of one case to a file");
  const auto options = std::make_shared<DumpOptions>();
  const auto add_file = [&](const char* name, std::string& file, const char* help) {
    return add_option(*command, name, file, help, not_empty());
  };
  add_file("--case", options->case_dir, "Folder with config.json and case.safetensors");
  add_file("--config", options->config, "config.json of a case, or a run's config (TOML or JSON)");
  add_file("--weights", options->weights, "Safetensors with param.<name> or <name>");
  add_file("--tokens", options->tokens, "Safetensors with tokens, and targets to get a loss");
  add_file("--state", options->state, "Safetensors with state.<name> or next_state.<name>");
  add_file("--out", options->out, "The file to write")->required();
  add_option(*command, "--precision", options->precision, "Arithmetic and output",
             CLI::IsMember({"f64", "f32"}));
  add_option(*command, "--device", options->device, "Where to compute; cuda takes --precision f32",
             CLI::IsMember({"cpu", "cuda"}));
  command->add_flag("--grads", options->grads, "Also write the gradient of every parameter");
  on_chosen(*command, action, [options] {
    check_output("dump", options->out, kOwnDump);
    const std::string warning = dump(*options);
    if (!warning.empty()) say("dump: " + warning);
    print_line("wrote {}", options->out);
    return 0;
  });
}

}  // namespace eddy
