// Both directions with the programs themselves: folders that transformers wrote give its logits here, and a model that
// Eddy trained gives Eddy's logits and tokens there, read from its folder or, by the package gguf, from its GGUF file.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/files.h"
#include "tests/support/processes.h"
#include "tests/support/program.h"
#include "tests/support/threads.h"
#include "tests/train/app/exchange/llamas.h"
#include "tests/train/app/exchange/python.h"
#include "train/app/exchange/export.h"
#include "train/app/exchange/foreign_tokenizer.h"
#include "train/app/exchange/import.h"
#include "train/run/checkpoint.h"
#include "train/text/stories/stories.h"
#include "train/text/tokenizer.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::app;
using namespace eddy::test;

// Logits of f32 that two programs compute by sums in other orders: below 10, over some hundred terms.
constexpr double kTolerance = 1e-4;

// What the tests' scripts begin with: the logits of the tokens of logits_in_form, a number a line.
constexpr const char* kLogits = R"py(
import sys, torch, transformers
def print_logits(model):
    vocab = model.config.vocab_size
    with torch.no_grad():
        logits = model.eval()(torch.tensor([[(7 * i + i * i // 3) % vocab for i in range(200)]])).logits
    for x in logits.flatten():
        print(repr(float(x)))
)py";

std::string printed_by(const std::string& python, const TempFolder& folder, const std::string& script) {
  const std::string file = folder.write("script.py", script);
  return output_of("cd " + folder.path() + " && HF_HUB_OFFLINE=1 " + python + " " + file);
}

// The largest difference from numbers that were printed; infinite where there are others than wanted.
double largest_gap(std::istream& printed, const std::vector<float>& wanted) {
  double gap = 0;
  for (const float number : wanted) {
    double other = NAN;
    printed >> other;
    const double difference = std::abs(other - static_cast<double>(number));
    if (!(difference <= gap)) gap = std::isnan(difference) ? INFINITY : difference;
  }
  return gap;
}

// Trains some steps into the folder's `run`, with a vocabulary of pieces.
void train_run(const TempFolder& folder, const std::string& run, const std::string& model) {
  folder.write("book.txt", generate_stories(1, 20000));
  write_bytes(folder.path("v.model"), pieces_of("bpe")->model_file());
  const Ended ended = run_program({{"train",
                                    "--run",
                                    run,
                                    "--data",
                                    "book.txt",
                                    "--data.tokenizer",
                                    "v.model",
                                    "--model",
                                    model,
                                    "--model.dim",
                                    "32",
                                    "--model.heads",
                                    "4",
                                    "--model.layers",
                                    "2",
                                    "--model.kv_heads",
                                    "2",
                                    "--model.context",
                                    "32",
                                    "--model.window",
                                    model == "llama_window" ? "16" : "0",
                                    "--train.steps",
                                    "10",
                                    "--train.batch",
                                    "2",
                                    "--train.eval_every",
                                    "0",
                                    "--train.sample_tokens",
                                    "0"},
                                   folder.path()});
  REQUIRE_MESSAGE(ended.status == 0, ended.err);
}

void export_run(const TempFolder& folder, const std::string& run, const std::string& out,
                const std::string& form) {
  const Ended ended = run_program({{"export", run, "--out", out, "--format", form}, folder.path()});
  REQUIRE_MESSAGE(ended.status == 0, ended.err);
}

}  // namespace

TEST_CASE("transformers: folders that it wrote give its logits of 200 tokens") {
  const std::string python = python_with("torch, transformers");
  if (python.empty()) return;
  const OneThread one;
  const TempFolder folder;
  std::istringstream printed(printed_by(python, folder, std::string(kLogits) + R"py(
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM
torch.manual_seed(1)
sizes = dict(vocab_size=61, hidden_size=32, intermediate_size=80, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=256, initializer_range=0.2, bos_token_id=None,
             eos_token_id=None)
def save(model, name, **how):
    print_logits(model)
    model.save_pretrained(name, **how)
save(LlamaForCausalLM(LlamaConfig(**sizes)), "llama")
save(LlamaForCausalLM(LlamaConfig(**sizes, tie_word_embeddings=True, rms_norm_eps=1e-5)), "tied")
save(LlamaForCausalLM(LlamaConfig(**sizes)), "shards", max_shard_size="20KB")
save(MistralForCausalLM(MistralConfig(**sizes, sliding_window=16)), "window")
LlamaForCausalLM(LlamaConfig(**sizes)).to(torch.bfloat16).save_pretrained("bf16")
print_logits(LlamaForCausalLM.from_pretrained("bf16", dtype=torch.float32))
)py"));
  for (const std::string name : {"llama", "tied", "shards", "window", "bf16"}) {
    CAPTURE(name);
    const DescribedModel described = read_described_model(folder.path(name));
    CHECK(described.model.model == (name == "window" ? "llama_window" : "llama"));
    CHECK(largest_gap(printed, logits_in_form(*model_back(described))) <= kTolerance);
  }
}

TEST_CASE("transformers: a trained model and its vocabulary give the same logits and tokens there") {
  const std::string python = python_with("torch, transformers, sentencepiece, google.protobuf");
  if (python.empty() || !has_program()) return;
  const OneThread one;
  for (const std::string model : {"llama", "llama_window"}) {
    CAPTURE(model);
    const TempFolder folder;
    train_run(folder, "run", model);
    export_run(folder, "run", "hf", "huggingface");
    std::istringstream printed(printed_by(python, folder, std::string(kLogits) + R"py(
model = transformers.AutoModelForCausalLM.from_pretrained("hf")
print_logits(model)
tokenizer = transformers.AutoTokenizer.from_pretrained("hf")
for text in ["The old king went home", " two  spaces", "line\n\nnext", "\u00e9 \u65e5", ""]:
    ids = tokenizer(text)["input_ids"]
    print(*ids, tokenizer.decode(ids) == text)
)py"));
    const LoadedRun run = load_run(folder.path("run"));
    CHECK(largest_gap(printed, logits_in_form(*run.model)) <= kTolerance);
    std::string line;
    std::getline(printed, line);
    for (const char* text : {"The old king went home", " two  spaces", "line\n\nnext", "\u00e9 \u65e5", ""}) {
      std::string wanted;
      for (const std::int32_t id : run.tokenizer->encode(text)) wanted += std::to_string(id) + " ";
      std::getline(printed, line);
      CHECK(line == wanted + "True");
    }
  }
}

TEST_CASE("transformers: the tensors and sizes of a GGUF file make a model with the same logits") {
  const std::string python = python_with("torch, transformers, gguf");
  if (python.empty() || !has_program()) return;
  const OneThread one;
  const TempFolder folder;
  train_run(folder, "run", "llama");
  export_run(folder, "run", "cpp", "gguf");
  std::istringstream printed(printed_by(python, folder, std::string(kLogits) + R"py(
import gguf
reader = gguf.GGUFReader("cpp/model.gguf")
value = lambda key: reader.fields[key].contents()
size = lambda key: value("llama." + key)
heads, kv_heads = size("attention.head_count"), size("attention.head_count_kv")
config = transformers.LlamaConfig(
    vocab_size=size("vocab_size"), hidden_size=size("embedding_length"), intermediate_size=size("feed_forward_length"),
    num_hidden_layers=size("block_count"), num_attention_heads=heads, num_key_value_heads=kv_heads,
    max_position_embeddings=size("context_length"), rms_norm_eps=size("attention.layer_norm_rms_epsilon"),
    rope_theta=size("rope.freq_base"), tie_word_embeddings=True)
def halves(w, heads):  # rows of a head as (0, 1), (2, 3), ... there, and as (0, n/2), ... here
    return w.reshape(heads, w.shape[0] // heads // 2, 2, -1).transpose(1, 2).reshape(w.shape)
names = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
         "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
outer = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
weights = {}
for tensor in reader.tensors:
    assert tensor.tensor_type.name == "F32"
    w = torch.tensor(tensor.data.reshape(tuple(int(n) for n in tensor.shape[::-1])))
    if tensor.name.startswith("blk."):
        _, layer, name, _ = tensor.name.split(".")
        w = halves(w, heads) if name == "attn_q" else halves(w, kv_heads) if name == "attn_k" else w
        weights[f"model.layers.{layer}.{names[name]}.weight"] = w
    else:
        weights[outer[tensor.name]] = w
model = transformers.LlamaForCausalLM(config)
missing = model.load_state_dict(weights, strict=False)
assert not missing.unexpected_keys and missing.missing_keys == ["lm_head.weight"]
model.tie_weights()
print_logits(model)
print(value("general.architecture"), value("tokenizer.ggml.model"), len(value("tokenizer.ggml.tokens")),
      value("tokenizer.ggml.add_bos_token"))
)py"));
  const LoadedRun run = load_run(folder.path("run"));
  CHECK(largest_gap(printed, logits_in_form(*run.model)) <= kTolerance);
  std::string line;
  std::getline(printed, line);
  std::getline(printed, line);
  CHECK(line == "llama llama 512 False");
}

TEST_CASE(
    "transformers: what is exported gives the same logits of 200 tokens there, and texts the same tokens") {
  const std::string python = python_with("torch, transformers");
  if (python.empty()) return;
  const OneThread one;
  const TempFolder folder;
  std::vector<float> wanted;
  std::string script =
      "import torch, transformers\nprint_all = lambda x: [print(repr(float(y))) for y in x.flatten()]\n";
  int count = 0;
  for (const char* name : {"llama", "llama_window"})
    for (const bool tied : {false, true}) {
      ModelConfig config = form_config(name);
      config.tied = tied;
      const std::unique_ptr<Model> model = form_model(config);
      const std::string out = folder.path("out" + std::to_string(count++));
      static_cast<void>(export_model(*model, nullptr, out, ModelForm::huggingface));
      const std::vector<float> logits = logits_in_form(*model);
      wanted.insert(wanted.end(), logits.begin(), logits.end());
      script += "m = transformers.AutoModelForCausalLM.from_pretrained('" + out + "').eval()\n" +
                "with torch.no_grad():\n"
                "    print_all(m(torch.tensor([[(7 * i + i * i // 3) % 23 for i in range(200)]])).logits)\n";
    }
  CHECK(largest_difference_of(output_of(python + " " + folder.write("run.py", script)), wanted) <= 1e-4);

  const std::string text = "the story\\n went on";
  const std::unique_ptr<Tokenizer> characters = make_tokenizer("char", "the story\n went on"),
                                   bytes = make_tokenizer("byte", "");
  std::string tokens = "import transformers\n", expected;
  for (const Tokenizer* tokenizer : {characters.get(), bytes.get()}) {
    for (const auto& [file, content] : huggingface_tokenizer(*tokenizer, 256))
      folder.write(tokenizer->name() + "/" + file, content);
    tokens += "t = transformers.AutoTokenizer.from_pretrained('" + folder.path(tokenizer->name()) +
              "')\nids = t('" + text + "')['input_ids']\nprint(*ids, t.decode(ids) == '" + text + "')\n";
    for (const std::int32_t id : tokenizer->encode("the story\n went on"))
      expected += std::to_string(id) + " ";
    expected += "True\n";
  }
  CHECK(output_of(python + " " + folder.write("tokens.py", tokens)) == expected);
}
