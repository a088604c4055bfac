// `eddy dump`: writes logits, loss, gradients and states of one case, to compare with other implementations.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "train/program/commands.h"
#include "train/program/path_options.h"
#include "train/study/dump.h"

namespace eddy {

void add_dump_command(CLI::App& app, std::function<int()>& action) {
  CLI::App* command =
      app.add_subcommand("dump", "Write logits, loss, gradients and states of one case to a file");
  const auto options = std::make_shared<DumpOptions>();
  command->add_option("--case", options->case_dir, "Folder with config.json and case.safetensors")
      ->check(not_empty());
  command->add_option("--config", options->config, "config.json of a case, or a run's config (TOML or JSON)")
      ->check(not_empty());
  command->add_option("--weights", options->weights, "Safetensors with param.<name> or <name>")
      ->check(not_empty());
  command->add_option("--tokens", options->tokens, "Safetensors with tokens, and targets to get a loss")
      ->check(not_empty());
  command->add_option("--state", options->state, "Safetensors with state.<name> or next_state.<name>")
      ->check(not_empty());
  command->add_option("--out", options->out, "The file to write")->required()->check(not_empty());
  command->add_option("--precision", options->precision, "Arithmetic and output")
      ->check(CLI::IsMember({"f64", "f32"}))
      ->capture_default_str();
  command->add_option("--device", options->device, "Where to compute; cuda takes --precision f32")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  command->add_flag("--grads", options->grads, "Also write the gradient of every parameter");
  command->callback([options, &action] {
    action = [options] {
      check_output("dump", options->out);
      const std::string warning = dump(*options);
      if (!warning.empty()) std::fprintf(stderr, "dump: %s\n", warning.c_str());
      std::printf("wrote %s\n", options->out.c_str());
      return 0;
    };
  });
}

}  // namespace eddy
