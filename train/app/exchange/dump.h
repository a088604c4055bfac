// `eddy dump`: runs one case through a model and writes to one file what another implementation can compare.
#pragma once

#include <string>
#include <vector>

#include "models/value_names.h"
#include "train/config/run_config.h"
#include "train/files/output_file.h"

namespace eddy::app {

// What a dump computes in and writes.
enum class DumpPrecision { f64, f32 };

}  // namespace eddy::app

// Their names, in the order of the values.
template <>
struct eddy::ValueNames<eddy::app::DumpPrecision> {
  static constexpr const char* all[] = {"f64", "f32"};
};

namespace eddy::app {

// Paths of the inputs and of the output; one file may hold several of the inputs.
struct DumpOptions {
  std::string case_dir;  // a folder with config.json and case.safetensors, for the paths left empty
  std::string config;    // a golden config.json or a run's config (TOML or JSON)
  std::string weights;   // param.<name> or <name>
  std::string tokens;  // tokens [batch, time], optionally targets [batch, rows], start [batch, segments] and
                       // state.<name>
  std::string state;   // state.<name>, or next_state.<name> of an earlier dump or case; optional
  std::string out;
  std::string device = value_name(training::DeviceChoice::cpu);
  std::string precision = value_name(DumpPrecision::f64);
  bool grads = false;                  // also grad.<name> of every parameter; needs targets
  bool literal = false;                // compute by the equations word for word (models/*/literal.cpp)
  std::vector<std::string> capture{};  // patterns of named values (autograd/named_values.h), also written
};

// Runs the case in evaluation mode and writes to `out`: logits; with targets loss [1]; with grads grad.<name>
// (zeros where a parameter has no influence); next_state.<name>; and captured.<path> of named values, or, where a path
// has several, captured.<path>.<number>, from 0 in the order of the run. Returns a warning for the user, mostly "".
// errors: IoError, FormatError, ConfigError, DeviceError; ValueError for an `out` that is one of the inputs;
// ValueError and ShapeError that name all missing, unexpected or mis-shaped parameters at once.
std::string dump(const DumpOptions& options);

// A file that dump wrote, which its metadata "format" says.
extern const training::OutputKind kDumpFile;

}  // namespace eddy::app
