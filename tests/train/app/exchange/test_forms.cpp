// Llamas in the forms of other programs: what is written comes back with the same bits, other programs compute the same
// numbers from it, and what a form does not have is refused with the reason.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "models/weights.h"
#include "ops/ops.h"
#include "tensor/base/error.h"
#include "tests/models/every_model.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/processes.h"
#include "tests/support/program.h"
#include "tests/support/threads.h"
#include "tests/train/app/exchange/llamas.h"
#include "tests/train/app/exchange/python.h"
#include "train/app/exchange/export.h"
#include "train/app/exchange/foreign_llama.h"
#include "train/app/exchange/foreign_tokenizer.h"
#include "train/app/exchange/gguf.h"
#include "train/app/exchange/import.h"
#include "train/run/checkpoint.h"
#include "train/text/stories/stories.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::app;
using namespace eddy::test;
namespace fs = std::filesystem;

}  // namespace

TEST_CASE("forms: what is exported comes back with its sizes, its bits and its logits, without a map") {
  const OneThread one;
  for (const char* name : {"llama", "llama_window"})
    for (const bool tied : {false, true})
      for (const ModelForm form : {ModelForm::pytorch, ModelForm::huggingface, ModelForm::gguf}) {
        if (form == ModelForm::gguf && name == std::string("llama_window")) continue;
        CAPTURE(name);
        CAPTURE(static_cast<int>(form));
        CAPTURE(tied);
        const TempFolder folder;
        ModelConfig config = form_config(name);
        config.tied = tied;
        const std::unique_ptr<Model> model = form_model(config);
        static_cast<void>(export_model(*model, nullptr, folder.path("out"), form));
        const DescribedModel described = read_described_model(folder.path("out"));
        CHECK(described.tokenizer == nullptr);
        ModelConfig back = resolved(described.model);
        back.init_std = model->full_config().init_std;  // GGUF files have no initial values
        back.segment = model->full_config().segment;
        back.window = name == std::string("llama") ? model->full_config().window : back.window;
        CHECK(back == model->full_config());
        const std::unique_ptr<Model> same = model_back(described);
        const Tensor &before = model->params().values(), &after = same->params().values();
        CHECK(
            std::equal(before.data<float>(), before.data<float>() + before.elements(), after.data<float>()));
        CHECK(logits_in_form(*same) == logits_in_form(*model));
      }
}

TEST_CASE("forms: rotary pairs are halves in Hugging Face's files and pairs in GGUF files") {
  const TempFolder folder;
  const std::unique_ptr<Model> model = form_model(form_config("llama"));
  static_cast<void>(export_model(*model, nullptr, folder.path("halves"), ModelForm::huggingface));
  static_cast<void>(export_model(*model, nullptr, folder.path("pairs"), ModelForm::gguf));
  const std::vector<float> ours =
      parameter_map(model->params()).at("layers.1.attn.wk.weight").to_vector<float>();
  const std::vector<float> halves = read_described_model(folder.path("halves"))
                                        .tensors.at("model.layers.1.self_attn.k_proj.weight")
                                        .to_vector<float>();
  const std::vector<float> pairs =
      read_gguf(folder.path("pairs/model.gguf")).tensors.at("blk.1.attn_k.weight").to_vector<float>();
  CHECK(pairs == ours);
  constexpr std::size_t kWidth = 32, kHalf = 4;  // heads of 8 numbers
  for (std::size_t head = 0; head < 2; ++head)
    for (std::size_t i = 0; i < kHalf; ++i)
      for (std::size_t second = 0; second < 2; ++second)
        CHECK(halves[(head * 2 * kHalf + second * kHalf + i) * kWidth] ==
              ours[(head * 2 * kHalf + 2 * i + second) * kWidth]);
}

TEST_CASE(
    "forms: a model, a window or a tokenizer that a form does not have is refused, and nothing is left") {
  const TempFolder folder;
  const std::unique_ptr<Tokenizer> characters = make_tokenizer("char", "abcdefghijklmnopqrstuvw"),
                                   bytes = make_tokenizer("byte", "");
  const auto refusal = [&](const ModelConfig& config, const Tokenizer* tokenizer, ModelForm form) {
    const std::unique_ptr<Model> model = form_model(config);
    const std::string text = error_of<ConfigError>(
        [&] { static_cast<void>(export_model(*model, tokenizer, folder.path("out"), form)); });
    CHECK_FALSE(fs::exists(folder.path("out")));
    return text;
  };
  CHECK(contains(refusal(even_config({"staircase", "lstm"}, 23, 16), nullptr, ModelForm::huggingface),
                 "Hugging Face has no architecture of lstm"));
  CHECK(contains(refusal(form_config("memory_llama"), nullptr, ModelForm::gguf),
                 "llama.cpp has no architecture of memory_llama"));
  CHECK(contains(refusal(form_config("llama_window"), nullptr, ModelForm::gguf),
                 "no sliding window, and llama_window has one of 16 tokens"));
  CHECK(contains(refusal(form_config("llama_window"), nullptr, ModelForm::gguf), "--format pytorch"));
  CHECK(contains(refusal(form_config("llama"), characters.get(), ModelForm::gguf),
                 "no tokenizer of characters"));
  CHECK(contains(refusal(form_config("llama", 256), bytes.get(), ModelForm::gguf), "no tokenizer of bytes"));
  ModelConfig classes = form_config("llama");
  classes.n_out = 5;
  CHECK(contains(refusal(classes, nullptr, ModelForm::huggingface), "23 tokens and 5 classes"));
}

TEST_CASE("forms: tokenizers of characters, bytes and SentencePiece come back from the files") {
  const TempFolder folder;
  const auto back = [&](const Tokenizer& tokenizer, const char* name) {
    for (const auto& [file, text] : huggingface_tokenizer(tokenizer, 256))
      folder.write(std::string(name) + "/" + file, text);
    return tokenizer_of_folder(folder.path(name))->to_json();
  };
  const std::unique_ptr<Tokenizer> characters =
      make_tokenizer("char", "the \xc3\xa9t\xc3\xa9 \xe2\x82\xac\n\"\\")->with({U'A', U'\x1F600'});
  CHECK(back(*characters, "characters") == characters->to_json());
  for (const char* name : {"byte", "byte260"}) {
    const std::unique_ptr<Tokenizer> bytes = make_tokenizer(name, "");
    CHECK(back(*bytes, name) == bytes->to_json());
  }
  CHECK(tokenizer_of_folder(folder.path()) == nullptr);
  folder.write("other/tokenizer.json", R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}})");
  CHECK(contains(error_of<FormatError>([&] { static_cast<void>(tokenizer_of_folder(folder.path("other"))); }),
                 "is a tokenizer that is not read"));
  for (const char* type : {"bpe", "unigram"}) {
    CAPTURE(type);
    const std::unique_ptr<Tokenizer> pieces = pieces_of(type);
    CHECK(back(*pieces, type) == pieces->to_json());
    const GgufValues values = gguf_tokenizer(pieces.get(), 520);
    CHECK(*gguf_value<std::string>(values, "tokenizer.ggml.model") ==
          (type == std::string("bpe") ? "llama" : "t5"));
    const auto& tokens = *gguf_value<std::vector<std::string>>(values, "tokenizer.ggml.tokens");
    const auto& types = *gguf_value<std::vector<std::int32_t>>(values, "tokenizer.ggml.token_type");
    REQUIRE(tokens.size() == 520);
    REQUIRE(types.size() == 520);
    CHECK(tokens[1] == "<s>");
    CHECK(types[0] == 2);
    CHECK(types[1] == 3);
    CHECK(tokens[3 + 0x1F] == "<0x1F>");
    CHECK(types[3] == 6);
    CHECK(types[400] == 1);
    CHECK(types[519] == 5);
    CHECK(*gguf_value<std::uint32_t>(values, "tokenizer.ggml.eos_token_id") == 2);
    CHECK_FALSE(values.contains("tokenizer.ggml.padding_token_id"));
    CHECK_FALSE(*gguf_value<bool>(values, "tokenizer.ggml.add_space_prefix"));
    CHECK(tokenizer_of_gguf(values, "a.gguf")->to_json() == pieces->to_json());
  }
}

TEST_CASE("forms: config.json of another architecture, or of what Eddy's Llama does not have, is refused") {
  const nlohmann::json good = huggingface_config(form_model(form_config("llama"))->full_config());
  const auto refusal = [&](const char* key, const nlohmann::json& value) {
    nlohmann::json changed = good;
    changed[key] = value;
    return error_of<ConfigError>([&] { static_cast<void>(model_of_huggingface(changed, "config.json")); });
  };
  CHECK(refusal("vocab_size", 23).empty());
  CHECK(contains(refusal("model_type", "gpt2"), "its model_type is \"gpt2\""));
  CHECK(contains(refusal("hidden_act", "gelu"), "hidden_act is \"gelu\""));
  CHECK(contains(refusal("head_dim", 16), "4 heads of 16 numbers are not hidden_size, 32"));
  CHECK(contains(refusal("attention_bias", true), "attention_bias is true"));
  CHECK(contains(refusal("rope_scaling", {{"rope_type", "llama3"}}), "rotary positions are scaled"));
  CHECK(
      contains(refusal("hidden_size", "wide"), "hidden_size is \"\\\"wide\\\"\", which has the wrong type"));
  CHECK(contains(refusal("hidden_size", nullptr), "has no hidden_size"));
  nlohmann::json five = good;  // version 5 of transformers
  five.erase("rope_theta");
  five["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 77.0}};
  CHECK(model_of_huggingface(five, "config.json").rope_theta == 77);
}

TEST_CASE("forms: weights of other kinds are named by their file and by its folder") {
  const TempFolder folder;
  const std::unique_ptr<Model> model = form_model(form_config("llama"));
  static_cast<void>(export_model(*model, nullptr, folder.path("hf"), ModelForm::huggingface));
  fs::remove(folder.path("hf/model.safetensors"));
  const auto refusal = [&](const char* path) {
    return error_of<FormatError>([&] { static_cast<void>(read_described_model(folder.path(path), true)); });
  };
  write_bytes(folder.path("hf/flax_model.msgpack"), "\x82\xa7params and more");
  for (const char* const path : {"hf", "hf/flax_model.msgpack"})
    CHECK_MESSAGE(contains(refusal(path), "flax_model.msgpack: this is MessagePack"), refusal(path));
  write_bytes(folder.path("hf/pytorch_model.bin"), "PK\x03\x04" + std::string(60, 'a'));
  for (const char* const path : {"hf", "hf/pytorch_model.bin"})
    CHECK_MESSAGE(contains(refusal(path), "pytorch_model.bin: this is a PyTorch pickle"), refusal(path));
}

TEST_CASE("gguf: values and tensors come back, and quantised, damaged and other files are refused") {
  const TempFolder folder;
  GgufFile file;
  file.values = {{"a", true},
                 {"b", std::uint32_t{7}},
                 {"c", 0.5f},
                 {"d", "text"},
                 {"e", std::vector<std::string>{"x", "", "yz"}},
                 {"f", std::vector<float>{1, 2}},
                 {"g", std::vector<std::int32_t>{-1}}};
  file.tensors = {{"one", Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3})},
                  {"two", Tensor::from(std::vector<float>{7}, {1})}};
  const std::string path = folder.path("a.gguf");
  write_gguf(path, file);
  const GgufFile back = read_gguf(path);
  CHECK(back.values == file.values);
  REQUIRE(back.tensors.size() == 2);
  CHECK(back.tensors.at("one").shape() == Shape{2, 3});
  CHECK(back.tensors.at("one").to_vector<float>() == std::vector<float>{1, 2, 3, 4, 5, 6});
  const std::string bytes = read_bytes(path);
  CHECK(bytes.size() % 32 == 0);

  const auto refusal = [&](const std::string& changed) {
    write_bytes(path, changed);
    return error_of<FormatError>([&] { static_cast<void>(read_gguf(path)); });
  };
  std::string typed = bytes;
  const std::size_t type = typed.find("two") + 3 + 4 + 8;  // behind the name, the number of axes and one size
  typed[type] = 12;
  CHECK(contains(refusal(typed), "two (Q4_K)"));
  typed[type] = 1;  // F16: its first two bytes are those of the f32
  write_bytes(path, typed);
  CHECK(read_gguf(path).tensors.at("two").to_vector<float>() == std::vector<float>{0});
  typed[type] = 30;
  write_bytes(path, typed);
  CHECK(read_gguf(path).tensors.at("two").dtype() == Dtype::bf16);
  CHECK(contains(refusal("GGML" + bytes.substr(4)), "is no GGUF file"));
  typed = bytes;
  typed[4] = 9;
  CHECK(contains(refusal(typed), "has version 9"));
  for (std::size_t size = 24; size < bytes.size() - 28; size += 5)
    CHECK_MESSAGE(!refusal(bytes.substr(0, size)).empty(), size);
}

TEST_CASE("eddy export --format and eddy import: a run comes back from each form without a map") {
  if (!has_program()) return;
  const OneThread one;
  const TempFolder folder;
  folder.write("book.txt", generate_stories(1, 20000));
  const auto start = [&](const std::string& line) {
    const Ended ended = run_program({words_of(line), folder.path()});
    CHECK_MESSAGE(ended.status == 0, line << ": " << ended.err);
    return ended;
  };
  const std::string few =
      " --data book.txt --train.batch 2 --train.eval_every 0 --train.sample_tokens 0 --train.threads 1";
  write_bytes(folder.path("v.model"), pieces_of("bpe")->model_file());
  const auto weights = [&](const std::string& run) {
    const LoadedRun loaded = load_run(folder.path(run));
    return std::pair(loaded.model->params().values().to_vector<float>(), loaded.tokenizer->to_json());
  };
  for (const std::string tokenizer : {"char", "v.model"}) {
    CAPTURE(tokenizer);
    const std::string run = tokenizer + "-run";
    start("train --run " + run +
          " --model llama --model.dim 16 --model.heads 2 --model.context 16 --train.steps 2" +
          " --data.tokenizer " + tokenizer + few);
    for (const std::string form : {"pytorch", "huggingface", "gguf"}) {
      if (form == "gguf" && tokenizer != "v.model") continue;
      CAPTURE(form);
      const std::string out = run + "-" + form;
      start("export " + run + " --out " + out + " --format " + form);
      start("import --weights " + out + " --run " + out + "-back --train.steps 1" + few);
      CHECK(weights(out + "-back") == weights(run));
      if (form == "huggingface") start("train --resume " + out + "-back");
    }
  }
}

TEST_CASE("eddy import: weights whose tokenizer is not read work on token ids") {
  if (!has_program()) return;
  const OneThread one;
  const TempFolder folder;
  const std::unique_ptr<Model> model = form_model(form_config("llama"));  // of 23 tokens
  static_cast<void>(export_model(*model, nullptr, folder.path("hf"), ModelForm::huggingface));
  const std::string untold =
      "import: hf has no tokenizer that Eddy reads: give a text as token ids, by --data ids.txt";
  CHECK(contains(run_program({words_of("import --weights hf --run back"), folder.path()}).err, untold));
  folder.write("hf/tokenizer.json", R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}})");
  std::string ids;
  for (int i = 0; i < 600; ++i) ids += std::to_string(i * i % 11) + (i % 9 == 8 ? "\n" : " ");
  folder.write("ids.txt", ids);
  const auto run = [&](const std::string& line) { return run_program({words_of(line), folder.path()}); };

  const Ended not_run = run("generate hf");
  CHECK(not_run.status == 1);
  CHECK(contains(not_run.err, "hf holds no checkpoint (it has the weights of a model; "));
  CHECK(contains(not_run.err, " import --weights hf --data TEXT --run RUN makes a run of them)"));
  CHECK(contains(run("inspect hf/model.safetensors --text ids.txt").err, "import --weights hf --data"));
  CHECK(contains(run("import --weights hf/model.safetensors --run back --data ids.txt").err,
                 "name its folder hf, which has config.json"));

  const std::string import = "import --weights hf --run back --train.batch 2 --data ids.txt";
  CHECK(contains(run(import).err, "with --data.tokenizer ids texts are token ids"));
  const Ended imported = run(import + " --data.tokenizer ids --train.steps 1 --train.eval_every 0");
  REQUIRE_MESSAGE(imported.status == 0, imported.err);
  CHECK(load_run(folder.path("back")).tokenizer->vocab_size() == 23);
  const std::string generate = "generate back --tokens 5 --temperature 0 --prompt ";
  const Ended written = run_program(
      {{"generate", "back", "--tokens", "5", "--temperature", "0", "--prompt", "7 22 1"}, folder.path()});
  REQUIRE_MESSAGE(written.status == 0, written.err);
  CHECK(contains(written.err,
                 "step 0: nothing was trained (the text is noise, unless the weights were imported)"));
  const std::vector<std::int32_t> drawn = ids_tokenizer(23)->encode(written.out);
  REQUIRE(drawn.size() == 5);
  // What the model itself finds the most probable, each from all before.
  std::vector<std::int64_t> seen{7, 22, 1};
  const NoGrad no_grad;
  for (const std::int32_t id : drawn) {
    ForwardInput input;
    input.tokens = Tensor::from(seen, {1, std::ssize(seen)});
    CHECK(argmax(model->forward(input).logits[0][-1]).item_int() == id);
    seen.push_back(id);
  }
  CHECK(contains(run(generate + "the").err, "\"the\" at byte offset 0 is no id"));
  CHECK(run("train --resume back").status == 0);
  CHECK(run("export back --out again --format huggingface").status == 0);
  CHECK_FALSE(fs::exists(folder.path("again/tokenizer.json")));
  CHECK(run("export back --out cpp --format gguf").status == 0);
}

TEST_CASE("forms: the package gguf reads the values and the tensors of a GGUF file") {
  const std::string python = python_with("numpy, gguf");
  if (python.empty()) return;
  const TempFolder folder;
  const std::unique_ptr<Model> model = form_model(form_config("llama", 512));
  const std::unique_ptr<Tokenizer> pieces = pieces_of("bpe");
  static_cast<void>(export_model(*model, pieces.get(), folder.path("out"), ModelForm::gguf));
  const std::string script = R"py(
import sys, gguf
r = gguf.GGUFReader(sys.argv[1])
f = r.fields
print(bytes(f["general.architecture"].parts[-1]).decode(), int(f["llama.block_count"].parts[-1][0]), len(f["tokenizer.ggml.tokens"].data))
t = {t.name: t for t in r.tensors}
x = t["blk.1.attn_k.weight"]
print(x.tensor_type.name, [int(n) for n in x.shape], len(t), repr(float(x.data.reshape(-1)[5])))
)py";
  const float number = parameter_map(model->params()).at("layers.1.attn.wk.weight").to_vector<float>()[5];
  std::istringstream printed(
      output_of(python + " " + folder.write("read.py", script) + " " + folder.path("out/model.gguf")));
  std::string first, second;
  std::getline(printed, first);
  std::getline(printed, second);
  CHECK(first == "llama 2 512");
  CHECK(contains(second, "F32 [32, 16] 21 "));
  CHECK(static_cast<float>(std::strtod(second.c_str() + second.rfind(' '), nullptr)) == number);
}
