// Export: the same logits by PyTorch. Import: names, order of rows, and everything that does not fit in one error.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "models/weights.h"
#include "ops/core/warnings.h"
#include "tensor/base/error.h"
#include "tensor/base/format.h"
#include "tensor/files/safetensors.h"
#include "tests/models/every_model.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/processes.h"
#include "tests/support/program.h"
#include "tests/support/threads.h"
#include "tests/support/tiny_run.h"
#include "tests/train/app/exchange/python.h"
#include "train/app/exchange/export.h"
#include "train/app/exchange/import.h"
#include "train/app/exchange/name_map.h"
#include "train/run/checkpoint.h"
#include "train/text/stories/stories.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::app;
using namespace eddy::test;
namespace fs = std::filesystem;

std::unique_ptr<Model> f32_model(ModelConfig config) {
  config.init_std = 0.3;
  std::unique_ptr<Model> model = make_model(config);
  model->params().initialize(5);
  return model;
}

// The tensors of a causal Llama of Eddy's in the layout of another program: its names, and rotary pairs as halves.
std::map<std::string, Tensor> foreign_llama(const Model& llama, std::int64_t head_size) {
  static const std::vector<std::pair<std::string, std::string>> kNames{
      {"embed.weight", "model.embed_tokens.weight"},  {"final_norm.weight", "model.norm.weight"},
      {"attn_norm.weight", "input_layernorm.weight"}, {"mlp_norm.weight", "post_attention_layernorm.weight"},
      {"attn.wq.weight", "self_attn.q_proj.weight"},  {"attn.wk.weight", "self_attn.k_proj.weight"},
      {"attn.wv.weight", "self_attn.v_proj.weight"},  {"attn.wo.weight", "self_attn.o_proj.weight"},
      {"mlp.gate.weight", "mlp.gate_proj.weight"},    {"mlp.up.weight", "mlp.up_proj.weight"},
      {"mlp.down.weight", "mlp.down_proj.weight"}};
  std::map<std::string, Tensor> theirs;
  for (const auto& [name, tensor] : parameter_map(llama.params())) {
    std::string other = name;
    for (const auto& [own, foreign] : kNames)
      if (const std::size_t at = other.find(own);
          at != std::string::npos && (at == 0 || other[at - 1] == '.')) {
        other.replace(at, own.size(), foreign);
        break;
      }
    if (name.starts_with("layers.")) other = "model." + other;
    Tensor values = raw::copy(tensor);
    if (name.ends_with("wq.weight") || name.ends_with("wk.weight")) {
      // The inverse of halves_to_pairs, written the other way round.
      const std::int64_t width = values.dim(1), half = head_size / 2;
      const float* from = tensor.data<float>();
      float* to = values.mutable_data<float>();
      for (std::int64_t row = 0; row < values.dim(0); ++row) {
        const std::int64_t head = row / head_size, i = row % head_size / 2, second = row % 2;
        std::copy_n(from + row * width, width, to + (head * head_size + second * half + i) * width);
      }
    }
    theirs.emplace(other, values);
  }
  return theirs;
}

const std::string kLlamaMap = EDDY_SOURCE_DIR "/train/app/exchange/llama.toml";

ModelConfig llama_config(const char* model) {
  ModelConfig config = blockwise_config(model);
  config.init_std = 0.3;
  return config;
}

void save(const std::map<std::string, Tensor>& tensors, const std::string& path) {
  std::vector<SafetensorsItem> items;
  for (const auto& [name, tensor] : tensors) {
    SafetensorsItem item{name, tensor.dtype(), {}, tensor.raw_data()};
    for (int axis = 0; axis < tensor.rank(); ++axis) item.shape.push_back(tensor.dim(axis));
    items.push_back(item);
  }
  write_safetensors(path, items);
}

}  // namespace

TEST_CASE(
    "export: PyTorch computes the same logits from the exported files, for each model that logits.py knows") {
  const std::string python = python_with("torch");
  if (python.empty()) return;
  const OneThread one;
  const TempFolder folder;
  std::vector<float> wanted;  // of all models, one after the other
  std::string script =
      "import sys\nsys.path.insert(0, 'out0')\nsys.dont_write_bytecode = True\nimport logits, torch\n";
  int known = 0;
  for (const ModelCase& c : every_case()) {
    if (!has_python(c.config.model) || c.config.readout != "all") continue;
    CAPTURE(c.name);
    const std::string out = "out" + std::to_string(known++);
    const std::unique_ptr<Model> model = f32_model(c.config);
    CHECK(export_model(*model, nullptr, folder.path(out)).has_program);
    std::vector<std::int64_t> ids;
    std::string list;
    for (std::int64_t i = 0; i < 11; ++i) {
      ids.push_back((7 * i + 3) % model->config().vocab);
      list += std::to_string(ids.back()) + ",";
    }
    const NoGrad no_grad;
    ForwardInput input;
    input.tokens = Tensor::from(ids, {1, std::ssize(ids)});
    const Tensor logits = raw::contiguous(model->forward(input).logits);
    wanted.insert(wanted.end(), logits.data<float>(), logits.data<float>() + logits.elements());
    script += "for x in logits.logits(*logits.load('" + out + "'), torch.tensor([[" + list +
              "]])).flatten(): print(repr(x.item()))\n";
  }
  CHECK(known > 5);
  folder.write("run.py", script);
  const double worst =
      largest_difference_of(output_of("cd " + folder.path() + " && " + python + " run.py"), wanted);
  CHECK(worst <= 1e-5);
  MESSAGE("largest difference of " << wanted.size() << " logits of " << known << " models: " << worst);
}

TEST_CASE("export: logits.py has the logits of the golden cases") {
  const std::string python = python_with("torch");
  if (python.empty()) return;
  const std::string script = R"(
import json, struct, sys
sys.path.insert(0, sys.argv[1] + "/train/app/exchange"); sys.dont_write_bytecode = True
import torch, logits
for case in sys.argv[2:]:
    data = bytearray(open(f"{sys.argv[1]}/tests/golden/{case}/case.safetensors", "rb").read())
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, e in json.loads(data[8:begin]).items():
        if name == "__metadata__": continue
        kind = {"I64": torch.int64, "F64": torch.float64}[e["dtype"]]
        first, last = e["data_offsets"]
        tensors[name] = torch.frombuffer(data[begin + first : begin + last], dtype=kind).reshape(e["shape"])
    config = json.load(open(f"{sys.argv[1]}/tests/golden/{case}/config.json"))
    weights = {n[6:]: t for n, t in tensors.items() if n.startswith("param.")}
    print(bool((logits.logits(config, weights, tensors["tokens"]) - tensors["logits"]).abs().max() <= 1e-10))
)";
  const TempFolder folder;
  const std::string file = folder.write("golden.py", script);
  CHECK(output_of(
            python + " " + file +
            " " EDDY_SOURCE_DIR " recurrent_transformer/regular recurrent_transformer/unit_forget "
            "blockwise_recurrent/llama blockwise_recurrent/slide_window blockwise_recurrent/memory_paper") ==
        "True\nTrue\nTrue\nTrue\nTrue\n");
}

TEST_CASE("export: what is there stays, and a model that logits.py does not know has the other files") {
  const TempFolder folder;
  const std::unique_ptr<Model> model = f32_model(even_config({"staircase", "staircase"}, 8, 32));
  CHECK_FALSE(has_python("staircase"));
  folder.write("out/mine.txt", "mine");
  CHECK(contains(error_of<IoError>([&] { export_model(*model, nullptr, folder.path("out")); }),
                 "no empty folder"));
  CHECK(folder.entries() == 1);
  fs::create_directory(folder.path("empty"));
  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer("char", "abcdefgh");
  const Exported exported = export_model(*model, tokenizer.get(), folder.path("empty"));
  CHECK(exported.files == std::vector<std::string>{"model.safetensors", "config.json", "tokenizer.json"});
  CHECK_FALSE(exported.has_program);
  ParamStore& params = model->params();
  const Tensor before = raw::copy(params.values());
  params.initialize(9);
  load_weights(params, folder.path("empty/model.safetensors"));
  CHECK(std::equal(before.data<float>(), before.data<float>() + before.elements(),
                   params.values().data<float>()));
}

TEST_CASE("export: logits.py has at most 120 lines") {
  const std::string text = read_bytes(EDDY_SOURCE_DIR "/train/app/exchange/logits.py");
  CHECK(std::count(text.begin(), text.end(), '\n') <= 120);
}

TEST_CASE("name map: rows of halves become rows of pairs, head by head") {
  const Tensor x = Tensor::from(std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {12, 1});
  const Tensor pairs = halves_to_pairs(x, 6);
  CHECK(std::vector<float>(pairs.data<float>(), pairs.data<float>() + 12) ==
        std::vector<float>{0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11});
  CHECK_THROWS_AS(halves_to_pairs(x, 5), ShapeError);
  CHECK_THROWS_AS(halves_to_pairs(x, 8), ShapeError);
}

TEST_CASE("name map: patterns match one part, and a map that is none is refused with its place") {
  std::string part;
  CHECK(matches("layers.*.w", "layers.12.w", part));
  CHECK(part == "12");
  CHECK(matches("a", "a", part));
  CHECK_FALSE(matches("layers.*.w", "layers.12.b", part));
  CHECK_FALSE(matches("aa*aa", "aaa", part));
  const TempFolder folder;
  for (const auto& [text, why] : std::vector<std::pair<std::string, std::string>>{
           {"frsh = []", "unknown key \"frsh\" (nearest: fresh"},
           {"fresh = [1]", "fresh is [1], which has the wrong type (a text, or"},
           {"[names]\n\"a.*\" = \"b\"", "differ in their '*'"},
           {"[names]\n\"a.*.*\" = \"b.*.*\"", "several '*'"},
           {"names = 3", "names is 3, which has the wrong type"},
           {"[names]\na = 3", "map.toml:2:1: names is a table"}}) {
    CAPTURE(text);
    const std::string file = folder.write("map.toml", text);
    const std::string error = error_of<ConfigError>([&] { read_name_map(file); });
    CHECK_MESSAGE(contains(error, why), error);
    CHECK_MESSAGE(contains(error, "map.toml:"), error);
  }
}

TEST_CASE("import: a Llama in another layout has the same logits here, and begins a memory_llama") {
  const OneThread one;
  const ModelConfig config = llama_config("llama");
  const std::unique_ptr<Model> llama = f32_model(config);
  const std::int64_t head_size = llama->config().dim / llama->config().heads;
  const std::map<std::string, Tensor> theirs = foreign_llama(*llama, head_size);
  const NameMap map = read_name_map(kLlamaMap);
  const std::unique_ptr<Model> same = make_model(config);
  same->params().initialize(77);
  load_parameters(same->params(), mapped_weights(map, theirs, same->params(), head_size).values, "map.toml");
  const Tensor &before = llama->params().values(), &after = same->params().values();
  CHECK(std::equal(before.data<float>(), before.data<float>() + before.elements(), after.data<float>()));
  CHECK(theirs.at("model.layers.0.self_attn.q_proj.weight").data<float>()[1] !=
        parameter_map(llama->params()).at("layers.0.attn.wq.weight").data<float>()[head_size]);

  const std::unique_ptr<Model> memory = f32_model(llama_config("memory_llama"));
  const std::map<std::string, Tensor> fresh = parameter_map(memory->params()),
                                      mapped =
                                          mapped_weights(map, theirs, memory->params(), head_size).values;
  const auto equal = [](const Tensor& a, const Tensor& b) {
    return std::equal(a.data<float>(), a.data<float>() + a.elements(), b.data<float>());
  };
  CHECK(equal(mapped.at("layers.1.memory.wk.weight"), mapped.at("layers.1.attn.wk.weight")));
  CHECK(equal(mapped.at("layers.1.memory.mlp.up.weight"), fresh.at("layers.1.memory.mlp.up.weight")));
  CHECK(equal(mapped.at("layers.1.mlp.up.weight"), theirs.at("model.layers.1.mlp.up_proj.weight")));
}

TEST_CASE(
    "name map: a pattern that fits no name is refused with its place, unless it ends in a question mark") {
  const TempFolder folder;
  const std::unique_ptr<Model> llama = f32_model(llama_config("llama"));
  const std::int64_t head_size = llama->config().dim / llama->config().heads;
  const std::map<std::string, Tensor> theirs = foreign_llama(*llama, head_size);
  const std::string text = read_bytes(kLlamaMap);
  const std::string names = text.substr(text.find("[names]"));
  for (
      const auto& [list, why] : std::vector<std::pair<std::string, std::string>>{
          {"halves_to_pairs = [\n\"layers.*.attn.wqq.weight\"]",
           "map.toml:2:1: halves_to_pairs has \"layers.*.attn.wqq.weight\", which fits no parameter of the model "
           "(nearest: layers.0.attn.wq.weight;"},
          {"fresh = \"layers.*.memory.*\"", "map.toml:1:1: fresh has \"layers.*.memory.*\""},
          {"unused = [\"*.inv_freq\"]", "map.toml:1:11: unused has \"*.inv_freq\", which fits no tensor"}}) {
    CAPTURE(list);
    const NameMap map = read_name_map(folder.write("map.toml", list + "\n" + names));
    const std::string error =
        error_of<ConfigError>([&] { mapped_weights(map, theirs, llama->params(), head_size); });
    CHECK_MESSAGE(contains(error, why), error);
  }
  const NameMap lenient = read_name_map(folder.write("map.toml", "unused = [\"*.inv_freq?\"]\n" + names));
  CHECK_NOTHROW(mapped_weights(lenient, theirs, llama->params(), head_size));
}

TEST_CASE("import: everything that does not fit is in one error") {
  const TempFolder folder;
  const std::unique_ptr<Model> llama = f32_model(llama_config("llama"));
  const std::int64_t head_size = llama->config().dim / llama->config().heads;
  std::map<std::string, Tensor> theirs = foreign_llama(*llama, head_size);
  theirs.erase("model.layers.1.mlp.up_proj.weight");
  theirs["other.weight"] = Tensor::zeros({2, 2});
  theirs["model.layers.0.rotary_emb.inv_freq"] = Tensor::zeros({2});
  theirs["model.norm.weight"] = Tensor::zeros({3});
  const NameMap map = read_name_map(kLlamaMap);
  const std::string error =
      error_of<FormatError>([&] { mapped_weights(map, theirs, llama->params(), head_size); });
  for (const char* part : {"llama.toml does not fit", "not fresh: layers.1.mlp.up.weight",
                           "not unused: other.weight", "model.norm.weight [3] for final_norm.weight ["})
    CHECK_MESSAGE(contains(error, part), error);
  CHECK_FALSE(contains(error, "inv_freq"));
}

TEST_CASE(
    "import: a head of the file's own asks for an untied model, and a copy of the embedding is left out") {
  const std::unique_ptr<Model> llama = f32_model(llama_config("llama"));
  REQUIRE(llama->config().tied);
  const std::int64_t head_size = llama->config().dim / llama->config().heads;
  std::map<std::string, Tensor> theirs = foreign_llama(*llama, head_size);
  const NameMap map = read_name_map(kLlamaMap);
  theirs["lm_head.weight"] = raw::copy(theirs.at("model.embed_tokens.weight"));
  const MappedWeights copied = mapped_weights(map, theirs, llama->params(), head_size);
  CHECK(copied.copies == std::vector<std::string>{"lm_head.weight is a copy of model.embed_tokens.weight"});
  theirs.at("lm_head.weight").mutable_data<float>()[3] += 1;
  const std::string error =
      error_of<FormatError>([&] { mapped_weights(map, theirs, llama->params(), head_size); });
  CHECK_MESSAGE(contains(error, "lm_head.weight (model.tied = true"), error);
  CHECK_MESSAGE(contains(error, "set model.tied = false"), error);
  ModelConfig config = llama_config("llama");
  config.tied = false;
  const std::unique_ptr<Model> untied = f32_model(config);
  CHECK(mapped_weights(map, theirs, untied->params(), head_size).copies.empty());
}

TEST_CASE("import: a map whose names begin otherwise than those of the file is told how") {
  const std::unique_ptr<Model> llama = f32_model(llama_config("llama"));
  const std::int64_t head_size = llama->config().dim / llama->config().heads;
  std::map<std::string, Tensor> wrapped, bare;
  for (const auto& [name, tensor] : foreign_llama(*llama, head_size)) {
    wrapped["_orig_mod." + name] = tensor;
    bare[name.substr(std::string("model.").size())] = tensor;
  }
  const NameMap map = read_name_map(kLlamaMap);
  const auto error_for = [&](const std::map<std::string, Tensor>& theirs) {
    return error_of<FormatError>([&] { mapped_weights(map, theirs, llama->params(), head_size); });
  };
  CHECK(contains(error_for(wrapped), "its names lack \"_orig_mod.\""));
  CHECK(contains(error_for(bare), "its names begin with \"model.\""));
}

TEST_CASE("import: weights that are not finite are refused by name and number") {
  const std::unique_ptr<Model> llama = f32_model(llama_config("llama"));
  const std::int64_t head_size = llama->config().dim / llama->config().heads;
  std::map<std::string, Tensor> theirs = foreign_llama(*llama, head_size);
  const std::int64_t width = llama->config().dim;
  theirs.at("model.norm.weight").mutable_data<float>()[1] = NAN;
  theirs.at("model.norm.weight").mutable_data<float>()[2] = INFINITY;
  // Finite in the file, and not in the model.
  std::vector<double> large(static_cast<std::size_t>(width), 1);
  large[0] = 1e300;
  theirs["model.layers.0.input_layernorm.weight"] = Tensor::from(large, {width});
  const NameMap map = read_name_map(kLlamaMap);
  const std::string error =
      error_of<FormatError>([&] { mapped_weights(map, theirs, llama->params(), head_size); });
  const std::string of = " of " + std::to_string(width) + ")";
  for (const std::string& part : {std::string("not finite"), "model.norm.weight (2" + of,
                                  "model.layers.0.input_layernorm.weight (1" + of})
    CHECK_MESSAGE(contains(error, part), error);
}

TEST_CASE(
    "import: the files of an index are read, alone or in their folder, and one that does not fit is refused") {
  const OneThread one;
  const TempFolder folder;
  ImportRequest request;
  request.config = tiny_run(folder, "").config;
  request.config.model = llama_config("llama");
  request.config.model.vocab = 0;
  request.config.data.tokenizer = "byte";
  request.map = kLlamaMap;
  ModelConfig config = request.config.model;
  config.vocab = 256;
  std::map<std::string, Tensor> first = foreign_llama(*f32_model(config), config.dim / config.heads), second;
  for (const char* name : {"model.norm.weight", "model.layers.0.mlp.up_proj.weight"})
    second.insert(first.extract(name));
  fs::create_directory(folder.path("hub"));
  save(first, folder.path("hub/a.safetensors"));
  save(second, folder.path("hub/b.safetensors"));
  nlohmann::json index{{"metadata", {{"total_size", 1}}}};
  for (const auto& [name, tensor] : first) index["weight_map"][name] = "a.safetensors";
  for (const auto& [name, tensor] : second) index["weight_map"][name] = "b.safetensors";
  const std::string file = folder.write("hub/model.safetensors.index.json", index.dump());
  const auto import = [&](const std::string& weights, const char* run) {
    request.weights = {weights};
    request.run_dir = folder.path(run);
    const Quiet quiet;
    return import_run(request);
  };
  CHECK(contains(import(file, "by_index"), "tensors read"));
  CHECK(contains(import(folder.path("hub"), "by_folder"), "tensors read"));
  fs::rename(folder.path("hub/b.safetensors"), folder.path("b"));
  CHECK(contains(error_of<IoError>([&] { import(file, "lost"); }),
                 "names 2 files, of which b.safetensors is not there"));
  fs::rename(folder.path("b"), folder.path("hub/b.safetensors"));
  index["weight_map"]["lost.weight"] = "b.safetensors";
  write_bytes(file, index.dump());
  CHECK(contains(error_of<FormatError>([&] { import(file, "lost"); }),
                 "lost.weight is in b.safetensors, which lacks"));
  index["weight_map"]["lost.weight"] = "../b.safetensors";
  write_bytes(file, index.dump());
  CHECK(contains(error_of<FormatError>([&] { import(file, "lost"); }), "a file beside the index"));
  write_bytes(file, "{\"a\": 1}");
  CHECK(contains(error_of<FormatError>([&] { import(file, "lost"); }), "no \"weight_map\""));
  CHECK(contains(error_of<IoError>([&] { import(folder.path(), "lost"); }), "without model.safetensors"));
  // Weights that say what their model is, and not what its tokens are.
  static_cast<void>(export_model(*f32_model(config), nullptr, folder.path("alone"), ModelForm::huggingface));
  request.described = read_described_model(folder.path("alone"));
  request.config.data.tokenizer = "char";
  reset_warnings();
  CHECK(contains(error_of<FormatError>([&] { import(folder.path("alone"), "lost"); }), "shapes that differ"));
  const std::vector<std::string> warnings = take_warnings();
  REQUIRE(warnings.size() == 1);
  CHECK(contains(warnings[0], "alone has no tokenizer"));
  CHECK_FALSE(fs::exists(folder.path("lost")));
}

TEST_CASE("export: what an interrupted one left is replaced, and what is the user's stays") {
  const TempFolder folder;
  const std::unique_ptr<Model> model = f32_model(llama_config("llama"));
  for (const char* name : {"out/model.safetensors", "out/config.json", "out/logits.py.tmp-999999999-4"})
    folder.write(name, "part");
  CHECK_THROWS_AS(export_model(*model, nullptr, folder.path("out")), IoError);  // nothing says whose they are
  folder.write("out/export.tmp-999999999-0", "");
  const Exported exported = export_model(*model, nullptr, folder.path("out"));
  CHECK(exported.files == std::vector<std::string>{"model.safetensors", "config.json", "logits.py"});
  CHECK(content_of(folder.path("out")).size() == 3);
  // Of a process that lives, or beside a file of the user's.
  folder.write("busy/export.tmp-" + std::to_string(::getppid()) + "-0", "");
  CHECK_THROWS_AS(export_model(*model, nullptr, folder.path("busy")), IoError);
  folder.write("mixed/export.tmp-999999999-0", "");
  folder.write("mixed/notes.txt", "mine");
  CHECK_THROWS_AS(export_model(*model, nullptr, folder.path("mixed")), IoError);
  CHECK(read_bytes(folder.path("mixed/notes.txt")) == "mine");
}

TEST_CASE("eddy export and eddy import: files of a run, and a run from files that trains on") {
  if (!has_program()) return;
  const OneThread one;
  const TempFolder folder;
  folder.write("book.txt", generate_stories(1, 20000));
  fs::copy_file(kLlamaMap, folder.path("map.toml"));
  const std::string sizes =
      " --data book.txt --data.tokenizer byte --model.dim 16 --model.heads 2 --model.layers 2 --model.chunk 4 "
      "--model.segment 16 --train.batch 2 --train.eval_every 0 --train.sample_tokens 0 --train.threads 1 ";
  const auto start = [&](const std::string& line) { return run_program({words_of(line), folder.path()}); };
  const Ended trained = start("train --run llama --model llama --train.steps 3" + sizes);
  REQUIRE_MESSAGE(trained.status == 0, trained.err);
  const Ended exported = start("export llama --out out");
  CHECK_MESSAGE(exported.status == 0, exported.err);
  CHECK(contains(exported.out, "out: model.safetensors, config.json, tokenizer.json, logits.py"));
  CHECK(start("export llama --out out").status == 1);
  const LoadedRun llama = load_run(folder.path("llama"));
  save(foreign_llama(*llama.model, 8), folder.path("theirs.safetensors"));
  const Ended imported = start(
      "import --weights theirs.safetensors --map map.toml --run begun --model memory_llama "
      "--train.steps 2" +
      sizes);
  CHECK_MESSAGE(imported.status == 0, imported.err);
  CHECK(contains(imported.out, "go on with: eddy train --resume begun"));
  const auto weight = [](const LoadedRun& run, const char* name) {
    const Tensor values = parameter_map(run.model->params()).at(name);
    return std::vector<float>(values.data<float>(), values.data<float>() + values.elements());
  };
  const LoadedRun begun = load_run(folder.path("begun"));
  CHECK(weight(begun, "layers.1.attn.wq.weight") == weight(llama, "layers.1.attn.wq.weight"));
  const Ended resumed = start("train --resume begun");
  CHECK_MESSAGE(resumed.status == 0, resumed.err);
  CHECK(contains(read_bytes(folder.path("begun/metrics.jsonl")),
                 "weights of theirs.safetensors, named by map.toml"));
  const Ended wrong =
      start("import --weights out/model.safetensors --map map.toml --run other --model memory_llama" + sizes);
  CHECK(wrong.status == 1);
  CHECK_MESSAGE(contains(wrong.err, "does not fit"), wrong.err);
  CHECK_FALSE(fs::exists(folder.path("other")));
}
