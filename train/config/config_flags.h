// Command line flags for described keys:
//
//   --model.layers 6   --model.positions true   --section.list 1,2,3
//
// A key that has its section's name also has that alone: --model slide.
// CLI11 only splits the command line; the texts are parsed and checked like the values of a file. The last
// call wins: first the defaults, then a file, then apply().
#pragma once

#include <map>
#include <string>

#include "train/config/config.h"

namespace CLI {
class App;
}

namespace eddy::training {

// The text of a flag that gives several: the one text, or a list as a file has it.
std::string text_of_list(const ConfigField::Texts& texts);

class ConfigFlags {
 public:
  // Adds one option per key to the program (or subcommand), with help, rule and default. --help shows those of
  // every run, --help-all the others too. Parsing writes into this object, which must live until then.
  void add_to(CLI::App& app, const ConfigKeys& keys);
  // Writes the values of the flags given into the structs.
  // errors: ConfigError for a bad value.
  void apply(ConfigKeys& keys) const;
  // The flags given: full key to text.
  const std::map<std::string, std::string>& given() const { return given_; }

  ConfigFlags() = default;
  ConfigFlags(const ConfigFlags&) = delete;
  ConfigFlags& operator=(const ConfigFlags&) = delete;

 private:
  std::map<std::string, std::string> given_;  // "section.key" to text
};

}  // namespace eddy::training
