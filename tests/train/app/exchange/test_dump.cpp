// `eddy dump`: the shapes its inputs may have, and what it refuses. That its numbers are right is the golden
// tests' matter.
#include "train/app/exchange/dump.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <limits>
#include <map>
#include <string>

#include "tensor/base/error.h"
#include "tensor/files/safetensors.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::app;
using namespace eddy::test;
using TensorMap = std::map<std::string, Tensor>;

constexpr const char* kCase = EDDY_SOURCE_DIR "/tests/golden/recurrent_transformer/unit_forget";

// The case of the tree, to be changed and dumped in a folder that goes with the test.
struct Bench {
  TempFolder folder;
  TensorMap tensors = load_safetensors(std::string(kCase) + "/case.safetensors");
  DumpOptions options;

  Bench() {
    options.config = std::string(kCase) + "/config.json";
    options.out = folder.path("out.safetensors");
    options.grads = true;
  }
  std::string save(const std::string& name, const TensorMap& map) const {
    save_safetensors(folder.path(name), map);
    return folder.path(name);
  }
  // The dump of `tensors` as they are now, in one file.
  TensorMap result() {
    options.weights = options.tokens = save("case.safetensors", tensors);
    return dumped();
  }
  TensorMap dumped() const {
    dump(options);
    return load_safetensors(options.out);
  }
  template <class E>
  std::string error() {
    std::filesystem::remove(options.out);
    const std::string text = error_of<E>([&] { result(); });
    CHECK(!std::filesystem::exists(options.out));
    return text;
  }
};

TensorMap part_of(const TensorMap& tensors, bool (*keep)(const std::string&)) {
  TensorMap part;
  for (const auto& [name, tensor] : tensors)
    if (keep(name)) part.emplace(name, tensor);
  return part;
}

bool is_parameter(const std::string& name) {
  return name.starts_with("param.");
}

void check_same(const TensorMap& a, const TensorMap& b) {
  REQUIRE(a.size() == b.size());
  for (const auto& [name, tensor] : a) {
    CAPTURE(name);
    REQUIRE(b.contains(name));
    CHECK(tensor.shape() == b.at(name).shape());
    CHECK(tensor.to_vector<double>() == b.at(name).to_vector<double>());
  }
}

}  // namespace

TEST_CASE("dump: one folder and separate files and plain names and i32 tokens give the same bytes") {
  Bench bench;
  const TensorMap expected = bench.result();
  CHECK(expected.contains("logits"));
  CHECK(expected.contains("loss"));
  CHECK(expected.contains("grad.layers.0.attn.wqkv.weight"));

  DumpOptions folder;
  folder.case_dir = kCase;
  folder.out = bench.folder.path("folder.safetensors");
  folder.grads = true;
  dump(folder);
  check_same(load_safetensors(folder.out), expected);

  bench.options.weights = bench.save("weights.safetensors", part_of(bench.tensors, is_parameter));
  bench.options.tokens =
      bench.save("tokens.safetensors", {{"tokens", raw::cast(bench.tensors.at("tokens"), Dtype::i32)},
                                        {"targets", raw::cast(bench.tensors.at("targets"), Dtype::i32)}});
  check_same(bench.dumped(), expected);

  TensorMap plain;
  for (const auto& [name, tensor] : part_of(bench.tensors, is_parameter))
    plain.emplace(name.substr(6), tensor);
  bench.options.weights = bench.save("plain.safetensors", plain);
  check_same(bench.dumped(), expected);
  // Plain names in a file that holds the rest of a case too.
  for (const char* name : {"tokens", "targets", "logits", "loss"})
    plain.emplace(name, bench.tensors.at(name));
  bench.options.weights = bench.options.tokens = bench.save("plain_case.safetensors", plain);
  check_same(bench.dumped(), expected);
}

TEST_CASE("dump: without targets there are logits alone") {
  Bench bench;
  bench.tensors.erase("targets");
  bench.options.grads = false;
  const TensorMap result = bench.result();
  CHECK(result.size() == 1);
  CHECK(result.contains("logits"));
}

TEST_CASE("dump: without grads there is a loss and no gradient") {
  Bench bench;
  bench.options.grads = false;
  const TensorMap result = bench.result();
  CHECK(result.size() == 2);
  CHECK(result.contains("loss"));
}

TEST_CASE("dump: gradients without targets are refused") {
  Bench bench;
  bench.tensors.erase("targets");
  CHECK(contains(bench.error<ValueError>(), "--grads needs targets"));
}

TEST_CASE("dump: targets that are all unscored give a loss of zero and zero gradients") {
  Bench bench;
  bench.tensors["targets"] = Tensor::full(bench.tensors.at("targets").shape(), -1, Dtype::i64);
  for (const auto& [name, tensor] : bench.result()) {
    if (name == "logits") continue;
    CAPTURE(name);
    for (const double value : tensor.to_vector<double>()) CHECK(value == 0);
  }
}

TEST_CASE("dump: all missing and unexpected and mis-shaped names are named at once") {
  Bench bench;
  bench.tensors.erase("param.final_norm.weight");
  bench.tensors.erase("param.layers.0.attn.wo.weight");
  bench.tensors["param.layers.0.attn.wq.weight"] = Tensor::zeros({16, 16}, Dtype::f64);
  bench.tensors["param.layers.0.mlp.up.weight"] = Tensor::zeros({16, 64}, Dtype::f64);
  bench.tensors["param.layers.0.mlp.down.weight"] = Tensor::zeros({16, 64}, Dtype::i64);
  const std::string text = bench.error<FormatError>();
  for (const char* part : {"final_norm.weight [16] is missing", "layers.0.attn.wo.weight [16, 16] is missing",
                           "layers.0.attn.wq.weight [16, 16] is not in the model",
                           "layers.0.mlp.up.weight is [16, 64] in the file and [64, 16]",
                           "layers.0.mlp.down.weight holds i64", "case.safetensors"})
    CHECK_MESSAGE(contains(text, part), part);
}

TEST_CASE("dump: tokens that are missing or no integers or of a wrong shape are refused") {
  Bench bench;
  const Tensor tokens = bench.tensors.at("tokens");
  bench.tensors.erase("tokens");
  CHECK(contains(bench.error<FormatError>(), "holds no tokens"));
  bench.tensors["tokens"] = raw::cast(tokens, Dtype::f32);
  CHECK(contains(bench.error<FormatError>(), "tokens"));
  bench.tensors["tokens"] = raw::reshape(tokens, {tokens.elements()});
  CHECK(!bench.error<ShapeError>().empty());
  bench.tensors["tokens"] = Tensor::full(tokens.shape(), 17, Dtype::i64);
  CHECK(contains(bench.error<ValueError>(), "17"));
}

TEST_CASE("dump: targets that do not fit the logits are refused") {
  Bench bench;
  const Tensor targets = bench.tensors.at("targets");
  bench.tensors["targets"] = raw::copy(raw::narrow(targets, 1, 0, 5));
  CHECK(contains(bench.error<ShapeError>(), "one target per row"));
  bench.tensors["targets"] = raw::copy(raw::narrow(targets, 0, 0, 1));
  CHECK(contains(bench.error<ShapeError>(), "targets"));
  bench.tensors["targets"] = Tensor::full({}, 1, Dtype::i64);
  CHECK(contains(bench.error<ShapeError>(), "targets"));
  bench.tensors["targets"] = Tensor::full(targets.shape(), 17, Dtype::i64);
  CHECK(contains(bench.error<ValueError>(), "17"));
  bench.tensors["targets"] = raw::cast(targets, Dtype::f64);
  CHECK(contains(bench.error<FormatError>(), "targets"));
}

TEST_CASE("dump: readout tail takes its rows from the targets and is refused without") {
  Bench bench;
  bench.options.config = bench.folder.write(
      "tail.json",
      R"({"family": "recurrent_transformer", "model": "unit_forget", "vocab": 17, "dim": 16, "heads": 2,
                       "context": 32, "readout": "tail"})");
  bench.tensors["targets"] = raw::copy(raw::narrow(bench.tensors.at("targets"), 1, 18, 6));
  CHECK(bench.result().at("logits").shape() == Shape{2, 6, 17});
  bench.tensors.erase("targets");
  bench.options.grads = false;
  CHECK(contains(bench.error<ValueError>(), "readout tail"));
}

TEST_CASE("dump: a run's config leaves the vocabulary to the table of the weights") {
  Bench bench;
  const TensorMap expected = bench.result();
  bench.options.config = bench.folder.write(
      "run.toml", "[model]\nmodel = \"unit_forget\"\ndim = 16\nheads = 2\n[train]\nsteps = 3\n");
  check_same(bench.result(), expected);
  bench.tensors.erase("param.embed.weight");
  CHECK(contains(bench.error<ConfigError>(), "vocab"));
}

TEST_CASE("dump: a config that contradicts the weights is refused with both sizes") {
  Bench bench;
  bench.options.config = bench.folder.write(
      "wide.json",
      R"({"family": "recurrent_transformer", "model": "unit_forget", "vocab": 17, "dim": 32, "heads": 2})");
  CHECK(
      contains(bench.error<FormatError>(), "embed.weight is [17, 16] in the file and [17, 32] in the model"));
}

TEST_CASE("dump: parts that are missing on the command line are asked for") {
  DumpOptions options;
  CHECK(contains(error_of<ValueError>([&] { dump(options); }), "--case"));
  options.case_dir = kCase;
  CHECK(contains(error_of<ValueError>([&] { dump(options); }), "--out"));
  options.out = "/nowhere/out.safetensors";
  CHECK(contains(error_of<IoError>([&] { dump(options); }), "/nowhere/out.safetensors"));
  options.case_dir = "/nowhere";
  CHECK(contains(error_of<IoError>([&] { dump(options); }), "/nowhere"));
}

TEST_CASE("dump: f32 writes f32 and an unknown precision is refused") {
  Bench bench;
  bench.options.precision = "f32";
  for (const auto& [name, tensor] : bench.result()) CHECK_MESSAGE(tensor.dtype() == Dtype::f32, name);
  bench.options.precision = "bf16";
  CHECK(contains(bench.error<ValueError>(), "bf16"));
}

TEST_CASE("dump: tensors that it does not read may be of a dtype that Eddy does not have") {
  Bench bench;
  const TensorMap expected = bench.result();
  bench.tensors.emplace("mask", Tensor::zeros({3}, Dtype::u8));
  const auto with_mask_of_i8 = [&](const char* name, const TensorMap& tensors) {
    const std::string path = bench.save(name, tensors);
    std::string bytes = read_bytes(path);
    bytes.replace(bytes.find("\"U8\""), 4, "\"I8\"");
    write_bytes(path, bytes);
    return path;
  };
  bench.options.weights = bench.options.tokens = with_mask_of_i8("case.safetensors", bench.tensors);
  check_same(bench.dumped(), expected);
  // Without a prefix it counts as a parameter.
  TensorMap plain;
  for (const auto& [name, tensor] : bench.tensors)
    plain.emplace(is_parameter(name) ? name.substr(6) : name, tensor);
  bench.options.weights = with_mask_of_i8("plain.safetensors", plain);
  CHECK(contains(error_of<DtypeError>([&] { static_cast<void>(bench.dumped()); }),
                 "tensor \"mask\": dtype I8 is not supported"));
}

TEST_CASE("dump: weights that hold a NaN give a file that holds it") {
  Bench bench;
  bench.tensors.at("param.final_norm.weight").mutable_data<double>()[0] =
      std::numeric_limits<double>::quiet_NaN();
  const TensorMap result = bench.result();
  CHECK(result.at("loss").item() != result.at("loss").item());
}

TEST_CASE("dump: a next state beside tokens is the state when it is named for one and an answer in a case") {
  const std::string folder = EDDY_SOURCE_DIR "/tests/golden/blockwise_recurrent/memory_paper";
  Bench bench;
  bench.tensors = load_safetensors(folder + "/case.safetensors");
  bench.options.config = folder + "/config.json";
  bench.options.grads = false;
  const TensorMap answers = bench.tensors;
  // The case begins cold, also when all of it is named for the state.
  bench.options.state = bench.folder.path("case.safetensors");
  const std::vector<double> cold = bench.result().at("logits").to_vector<double>();
  CHECK(cold.size() == answers.at("logits").to_vector<double>().size());
  // A file of its own that looks like the case is not read either, and that is said.
  DumpOptions apart = bench.options;
  apart.state = folder + "/case.safetensors";
  CHECK(contains(dump(apart), "its next_state is taken for an answer"));
  // One file with weights, tokens and an earlier dump's next state.
  for (const char* answer : {"logits", "loss"}) bench.tensors.erase(answer);
  const std::vector<double> carried = bench.result().at("logits").to_vector<double>();
  CHECK(carried != cold);
  TensorMap named = bench.tensors;
  named.emplace("state.memory", named.at("next_state.memory"));
  named.erase("next_state.memory");
  bench.tensors = named;
  CHECK(bench.result().at("logits").to_vector<double>() == carried);
  // A state beside the tokens needs no flag.
  bench.options.state.clear();
  CHECK(bench.result().at("logits").to_vector<double>() == carried);
}

TEST_CASE("dump: the case before hands on its next state") {
  const std::string golden = EDDY_SOURCE_DIR "/tests/golden/blockwise_recurrent/";
  Bench bench;
  bench.tensors = load_safetensors(golden + "memory_paper_carried/case.safetensors");
  bench.options.config = golden + "memory_paper_carried/config.json";
  bench.options.grads = false;
  const std::vector<double> wanted = bench.result().at("logits").to_vector<double>();
  bench.options.state = golden + "memory_paper/case.safetensors";
  CHECK(bench.result().at("logits").to_vector<double>() == wanted);
}

TEST_CASE("dump: a file that is named for the state and holds none is refused") {
  Bench bench;
  bench.options.state = bench.save("plain.safetensors", {{"memory", Tensor::zeros({2, 3})}});
  CHECK(contains(bench.error<FormatError>(), "holds neither state.<name> nor next_state.<name>"));
}

TEST_CASE("dump: an output replaces a dump and nothing else") {
  Bench bench;
  for (int twice = 0; twice < 2; ++twice) CHECK(bench.result().contains("logits"));
  bench.options.out = bench.save("mine.safetensors", {{"logits", Tensor::zeros({2, 3})}});
  CHECK(contains(error_of<IoError>([&] { bench.result(); }),
                 "mine.safetensors exists and is not a dump of Eddy's"));
  CHECK(load_safetensors(bench.options.out).size() == 1);
}

TEST_CASE("dump: a dump of another format is refused as an input") {
  Bench bench;
  bench.result();
  const std::string file = bench.folder.path("later");
  save_safetensors(file, load_safetensors(bench.options.out), {{"format", "eddy dump 2"}});
  bench.options.state = file;
  CHECK(contains(error_of<FormatError>([&] { bench.result(); }),
                 "has format \"eddy dump 2\", and this program reads \"eddy dump 1\""));
}

TEST_CASE("dump: an output that is one of the inputs is refused and the input stays") {
  Bench bench;
  const std::string file = bench.save("case.safetensors", bench.tensors);
  const std::string config = bench.folder.path("config.json");
  std::filesystem::copy_file(bench.options.config, config);
  std::filesystem::create_hard_link(file, bench.folder.path("other_name"));
  const auto before = std::filesystem::file_size(file);
  DumpOptions options;
  options.case_dir = bench.folder.path();
  for (const std::string& out :
       {file, config, bench.folder.path("other_name"), bench.folder.path() + "/./case.safetensors"}) {
    CAPTURE(out);
    options.out = out;
    CHECK(contains(error_of<ValueError>([&] { dump(options); }), "--out " + out + " is the input "));
  }
  CHECK(std::filesystem::file_size(file) == before);
  CHECK_NOTHROW(load_safetensors(file));
}

TEST_CASE("dump: document starts are refused where they change nothing and where they are no flags") {
  Bench bench;
  const std::int64_t rows = bench.tensors.at("tokens").dim(0);
  bench.tensors.insert_or_assign("start", Tensor::full({rows, 1}, 1, Dtype::i64));
  CHECK(contains(bench.error<ValueError>(), "unit_forget carries no state"));
  bench.tensors.insert_or_assign("start", Tensor::full({rows, 1}, 2, Dtype::i64));
  CHECK(contains(bench.error<FormatError>(), "start in"));
  CHECK(contains(bench.error<FormatError>(), "holds 2"));
}

TEST_CASE("dump writes the values whose paths fit a pattern, and says what there is where none fits") {
  Bench bench;
  bench.options.grads = false;
  bench.options.capture = {"layers.*.gate", "*.state"};
  const TensorMap out = bench.result();
  REQUIRE(out.contains("captured.layers.0.gate"));
  REQUIRE(out.contains("captured.layers.0.state"));
  for (const double gate : out.at("captured.layers.0.gate").to_vector<double>())
    CHECK((gate >= 0 && gate <= 1));
  CHECK(out.contains("logits"));

  bench.options.literal = true;
  bench.options.capture = {"layers.0.attn.probabilities"};
  CHECK(bench.dumped().contains("captured.layers.0.attn.probabilities.1"));

  bench.options.literal = false;
  CHECK(bench.error<ValueError>().find("this run names layers.0.gate") != std::string::npos);
  CHECK(bench.error<ValueError>().find("--literal may name others") != std::string::npos);
}
