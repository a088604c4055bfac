// Reads a case, runs one forward pass (and one backward pass), and writes the results.
#include "train/app/exchange/dump.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string_view>

#include "autograd/named_values.h"
#include "autograd/tape.h"
#include "models/eddy/registry.h"
#include "models/weights.h"
#include "ops/loss/cross_entropy.h"
#include "tensor/base/format.h"
#include "tensor/files/safetensors.h"
#include "train/config/run_config.h"

namespace eddy::app {
using namespace training;
namespace {

using TensorMap = std::map<std::string, Tensor>;

constexpr const char* kFormat = "eddy dump 1";

// What the metadata of a file says of its format; "" where they say nothing.
std::string format_of(const SafetensorsFile& file) {
  const auto format = file.metadata().find("format");
  return format == file.metadata().end() ? "" : format->second;
}

// Returns the entries called `<prefix><name>`, by name.
TensorMap with_prefix(const TensorMap& tensors, std::string_view prefix) {
  TensorMap found;
  for (const auto& [name, tensor] : tensors)
    if (name.starts_with(prefix)) found.emplace(name.substr(prefix.size()), tensor);
  return found;
}

// The names that a case file may hold besides parameters.
bool belongs_to_a_case(const std::string& name) {
  for (const char* word : {"tokens", "targets", "start", "logits", "loss"})
    if (name == word) return true;
  for (const char* prefix : {"state.", "next_state.", "grad.", "captured."})
    if (name.starts_with(prefix)) return true;
  return false;
}

// The tensors of a file that dump reads: those of a case, and with `parameters` those too. Others may be of
// any dtype.
// errors: as SafetensorsFile::open; FormatError for a dump of another format.
TensorMap load_parts(const std::string& path, bool parameters) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  if (const std::string format = format_of(file); format.starts_with("eddy dump ") && format != kFormat)
    fail<FormatError>("dump: {} has format {:?}, and this program reads {:?}", path, format, kFormat);
  const auto& entries = file.entries();
  const bool prefixed = std::any_of(entries.begin(), entries.end(), [](const SafetensorsEntry& entry) {
    return entry.name.starts_with("param.");
  });
  return load_safetensors(file, [&](const std::string& name) {
    return belongs_to_a_case(name) || (parameters && (!prefixed || name.starts_with("param.")));
  });
}

TensorMap parameters_of(const TensorMap& file) {
  TensorMap named = with_prefix(file, "param.");
  if (!named.empty()) return named;
  for (const auto& [name, tensor] : file)
    if (!belongs_to_a_case(name)) named.emplace(name, tensor);
  return named;
}

const Tensor* find_integers(const TensorMap& file, const std::string& name, const std::string& path) {
  const auto found = file.find(name);
  if (found == file.end()) return nullptr;
  if (found->second.dtype() != Dtype::i64 && found->second.dtype() != Dtype::i32)
    fail<FormatError>("dump: {} in {} is {} (I64 or I32)", name, path, dtype_name(found->second.dtype()));
  return &found->second;
}

// The flags of document starts in a file; null if it has none.
const Tensor* find_starts(const TensorMap& file, const std::string& path) {
  const Tensor* const start = find_integers(file, "start", path);
  if (start != nullptr)
    for (const std::int64_t flag : raw::contiguous(raw::cast(*start, Dtype::i64)).to_vector<std::int64_t>())
      if (flag != 0 && flag != 1)
        fail<FormatError>("dump: start in {} holds {} (1 where a row begins a document, else 0)", path, flag);
  return start;
}

// Whether a file is the case itself: it holds the same tokens and their expected logits.
bool is_the_case(const TensorMap& file, const Tensor& tokens, const std::string& path) {
  const Tensor* const own = find_integers(file, "tokens", path);
  const auto numbers = [](const Tensor& x) {
    return raw::contiguous(raw::cast(x, Dtype::i64)).to_vector<std::int64_t>();
  };
  return own != nullptr && file.contains("logits") && own->shape() == tokens.shape() &&
         numbers(*own) == numbers(tokens);
}

// Returns the state from the file of --state (`named`), or else from the file of the tokens, which may hold
// one.
State state_of(const TensorMap& file, const DevicePrecision& placement, const Tensor& tokens, bool named,
               const std::string& path) {
  TensorMap carried = with_prefix(file, "state.");
  // The next_state of an earlier dump or case is this state. In the case itself next_state is an expected
  // result.
  if (carried.empty() && named && !is_the_case(file, tokens, path))
    carried = with_prefix(file, "next_state.");
  if (carried.empty() && named && with_prefix(file, "next_state.").empty())
    fail<FormatError>("dump: {} holds neither state.<name> nor next_state.<name>", path);
  State state;
  for (const auto& [name, tensor] : carried)
    state.set(name, raw::to_device(is_floating(tensor.dtype()) ? raw::cast(tensor, placement.dtype) : tensor,
                                   placement.device));
  return state;
}

// The values that `run` names by these patterns.
// errors: ValueError that says what there is, and where there may be more.
NamedValues captured_by(const std::vector<std::string>& patterns, bool literal,
                        const std::function<void()>& run) {
  try {
    return capture_values(patterns, run);
  } catch (const CaptureError& error) {
    fail<ValueError>("{}{}", error.what(), literal ? "" : "; --literal may name others");
  }
}

}  // namespace

const OutputKind kDumpFile{"a dump of Eddy's", [](const std::string& path) {
                             return format_of(SafetensorsFile::open(path)) == kFormat;
                           }};

std::string dump(const DumpOptions& given) {
  DumpOptions options = given;
  if (!options.case_dir.empty()) {
    const std::filesystem::path folder(options.case_dir);
    if (options.config.empty()) options.config = (folder / "config.json").string();
    for (std::string* part : {&options.weights, &options.tokens})
      if (part->empty()) *part = (folder / "case.safetensors").string();
  }
  if (options.state.empty()) options.state = options.tokens;
  if (options.config.empty() || options.weights.empty() || options.tokens.empty())
    fail<ValueError>("dump: give --case DIR, or --config, --weights and --tokens");
  if (options.out.empty()) fail<ValueError>("dump: --out is missing (the file to write)");
  const auto precision = value_named<DumpPrecision>(options.precision);
  if (!precision)
    fail<ValueError>("dump: the precision is {} ({})", options.precision, value_choice<DumpPrecision>());
  if (value_is(options.device, DeviceChoice::cuda) && precision == DumpPrecision::f64)
    fail<ConfigError>("dump: --precision is f64 and --device cuda (f64 is for the CPU: add --precision f32)");
  const DevicePrecision placement =
      choose_device_precision({"dump", "--device", "--precision"}, options.device, options.precision);
  const Dtype dtype = placement.dtype;
  const Device device = placement.device;

  for (const std::string& input : {options.config, options.weights, options.tokens, options.state}) {
    std::error_code error;  // ignored: a missing file is not the same file
    if (std::filesystem::equivalent(options.out, input, error))
      fail<ValueError>("dump: --out {} is the input {} (name another file)", options.out, input);
  }

  const TensorMap weights_file = load_parts(options.weights, true);
  const TensorMap tokens_file =
      options.tokens == options.weights ? weights_file : load_parts(options.tokens, false);
  const TensorMap weights = parameters_of(weights_file);

  ModelConfig config = load_run_config(options.config).model;
  if (config.vocab == 0) {  // a run's config leaves it to the tokenizer: take it from the table
    const auto table = weights.find("embed.weight");
    if (table != weights.end() && table->second.rank() == 2) config.vocab = table->second.dim(0);
  }
  const std::unique_ptr<Model> model = make_model(config, dtype, device, placement.matmul);
  load_parameters(model->params(), weights, options.weights);

  const Tensor* tokens = find_integers(tokens_file, "tokens", options.tokens);
  if (tokens == nullptr) fail<FormatError>("dump: {} holds no tokens [batch, time]", options.tokens);
  const Tensor* targets = find_integers(tokens_file, "targets", options.tokens);
  const Tensor* start = find_starts(tokens_file, options.tokens);
  if (options.grads && targets == nullptr)
    fail<ValueError>("dump: --grads needs targets, and {} holds none", options.tokens);

  ForwardInput input;
  input.tokens = raw::to_device(*tokens, device);
  input.literal = options.literal;
  if (start != nullptr) input.start = *start;
  const bool separate_state = options.state != options.tokens;
  const TensorMap state_file = separate_state ? load_parts(options.state, false) : tokens_file;
  input.state = state_of(state_file, placement, *tokens, !given.state.empty(), options.state);
  std::string warning;
  if (separate_state && input.state.empty() && !with_prefix(state_file, "next_state.").empty())
    warning = fmt::format(
        "{} holds these tokens and their logits, so its next_state is taken for an answer and the state is "
        "empty; to carry it on, name a file without the logits",
        options.state);
  if (targets != nullptr) {
    if (targets->rank() != 2 || targets->dim(0) != tokens->dim(0))
      fail<ShapeError>("dump: targets {} for tokens {} ([batch, rows])", to_string(targets->shape()),
                       to_string(tokens->shape()));
    input.tail = targets->dim(1);
  } else if (value_is(model->full_config().readout, Readout::tail)) {
    fail<ValueError>("dump: readout tail takes its rows from targets, and {} holds none", options.tokens);
  }

  TensorMap out;
  Tensor loss;
  {
    std::unique_ptr<NoGrad> frozen;
    if (!options.grads) frozen = std::make_unique<NoGrad>();
    std::optional<ForwardOutput> output;
    const auto run = [&] { output.emplace(model->forward(input)); };
    if (options.capture.empty()) {
      run();
    } else {
      for (const auto& [path, values] : captured_by(options.capture, options.literal, run))
        for (std::size_t i = 0; i < values.size(); ++i)
          out.emplace("captured." + (values.size() == 1 ? path : fmt::format("{}.{}", path, i)), values[i]);
    }
    const ForwardOutput& result = *output;
    if (start != nullptr && result.state.empty() && input.state.empty())
      fail<ValueError>(
          "dump: {} holds start, and {} carries no state that a document could begin anew (leave it out)",
          options.tokens, model->config().model);
    out.emplace("logits", detach(result.logits));
    for (const auto& [name, tensor] : result.state) out.emplace("next_state." + name, detach(tensor));
    if (targets != nullptr) {
      if (targets->dim(1) != result.logits.dim(1))
        fail<ShapeError>("dump: targets {} for logits {} (one target per row)", to_string(targets->shape()),
                         to_string(result.logits.shape()));
      loss = cross_entropy(result.logits, raw::to_device(*targets, device));
      out.emplace("loss", raw::reshape(detach(loss), {1}));
    }
  }
  if (options.grads) {
    if (requires_grad(loss)) backward(loss);
    for (const Parameter& parameter : model->params().parameters()) {
      const Tensor gradient = grad(parameter.value);
      out.emplace("grad." + parameter.name,
                  gradient.defined() ? gradient : Tensor::zeros(parameter.shape, dtype));
    }
  }
  for (auto& [name, tensor] : out) tensor = raw::to_device(tensor, kCpu);
  refuse_foreign_file("dump", options.out, kDumpFile);
  save_safetensors(options.out, out, {{"format", kFormat}});
  return warning;
}

}  // namespace eddy::app
