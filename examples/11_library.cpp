// Example 11: the lines of docs/library.md, which explains them; here they run.
#include <eddy/eddy.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "autograd/named_values.h"
#include "tensor/files/safetensors.h"
#include "train/app/program/program.h"
#include "train/run/checkpoint.h"

using namespace eddy;
using namespace eddy::training;
using namespace eddy::app;

namespace {

int wrong = 0;

void check(const char* section, bool holds) {
  std::printf("%-24s %s\n", section, holds ? "as expected" : "WRONG");
  if (!holds) ++wrong;
}

// The module of the first page.
struct Mlp {
  Mlp(const ParamScope& scope, std::int64_t width)
      : up(scope.scope("up"), 2, width, 1.0, true), down(scope.scope("down"), width, 1, 0.5, true) {}
  Tensor operator()(const Tensor& x) const { return down(tanh(up(x))); }

  Linear up, down;
};

void tensors() {
  Tensor x = randn({2, 3});              // anew at each call; manual_seed(1) repeats
  Tensor y = 1.0 - x / 2.0 + arange(3);  // shapes broadcast, dtypes must be equal
  Tensor mask = x > 0.5;                 // u8
  std::cout << where(mask, x, y) << x[0] << argmax(x, -1);
  Tensor z = y.reshape({3, -1});  // a view: z and y share their bytes
  std::cout << "\n";
  check("tensors", mask.dtype() == Dtype::u8 && z.data<float>() == y.data<float>());

  Tensor w = randn({3});
  require_grad(w);
  backward(mean(x * w));
  std::cout << grad(w);  // sums over backward passes until zero_grad(w)
  std::cout << "\n";
  check("gradients", grad(w).shape() == Shape{3});
}

void files() {
  auto net = make_module<Mlp>(1, 8);
  make_module<Mlp>(2, 8).save("torch.safetensors");
  const std::vector<float> before = net.params().values().to_vector<float>();
  net.load("torch.safetensors");  // names and shapes must match; the error lists all that do not
  check("files", net.params().values().to_vector<float>() != before);
}

// Trains two steps into runs/first.
int train_first() {
  std::ofstream text("text.txt");
  for (int line = 0; line < 50; ++line) text << "To be, or not to be, that is the question.\n";
  text.close();
  std::vector<std::string> words{"eddy",
                                 "train",
                                 "--run=runs/first",
                                 "--data=text.txt",
                                 "--model=unit_forget",
                                 "--model.dim=16",
                                 "--model.heads=2",
                                 "--model.layers=1",
                                 "--model.context=16",
                                 "--train.batch=2",
                                 "--train.steps=2",
                                 "--train.sample_tokens=0"};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  return program(static_cast<int>(argv.size()), argv.data());
}

void look_inside() {
  LoadedRun run = load_run("runs/first");  // train/run/checkpoint.h
  const std::vector<std::int32_t> ids = run.tokenizer->encode("To be, or");
  Tensor tokens = raw::cast(Tensor::from(ids, {1, std::ssize(ids)}), Dtype::i64);
  State state;                                       // empty: a new text
  Tensor logits = run.model->stream(tokens, state);  // [1, 9, vocab]; state now stands behind the prompt
  for (const auto& [name, tensor] : state) std::cout << name << " " << to_string(tensor.shape()) << "\n";
  check("a run", logits.dim(1) == 9 && !state.empty());

  ForwardInput input;
  input.tokens = tokens;
  const NamedValues seen = capture_values({"layers.*.gate", "*.state"}, [&] { run.model->forward(input); });
  save_safetensors("seen.safetensors", {{"gate", seen.at("layers.0.gate")[0]}});  // for numpy, as above
  check("values inside", seen.at("layers.0.gate")[0].dim(-1) == 9);
}

void precision() {
  auto net = make_module<Mlp>({.seed = 1, .matmul_precision = MatmulPrecision::bf16}, 16);
  check("fast products", net.params().matmul_precision() == MatmulPrecision::bf16);
}

}  // namespace

int main() try {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / ("library-" + std::to_string(::getpid()));
  fs::create_directory(folder);
  fs::current_path(folder);
  tensors();
  files();
  if (train_first() != 0) ++wrong;
  look_inside();
  precision();
  fs::current_path(folder.parent_path());
  fs::remove_all(folder);
  return wrong == 0 ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
