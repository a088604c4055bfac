// The native side of the page:
//
//   example_browser pack EXPORT FILE              a model file of the page, in bf16, from the folder of `eddy export`
//   example_browser logits FILE ID...             the logits after each of these tokens, to compare the page's with
//   example_browser parity STEPS SEED RECURRENT   the losses of so many steps of the parity model; RECURRENT: 1 or 0
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <string>
#include <vector>

#include "examples/browser/page.h"
#include "examples/browser/parity.h"
#include "ops/cast/cast.h"
#include "tensor/base/format.h"
#include "tensor/files/input_file.h"
#include "tensor/files/safetensors.h"

namespace {

using namespace eddy;
using namespace eddy::training;

void pack(const std::string& folder, const std::string& to) {
  std::map<std::string, Tensor> rounded;
  for (const auto& [name, tensor] : load_safetensors(folder + "/model.safetensors"))
    rounded[name] = raw::cast(tensor, Dtype::bf16);
  save_safetensors(to, rounded,
                   {{browser::kModelKey, InputFile(folder + "/config.json").text()},
                    {browser::kTokenizerKey, InputFile(folder + "/tokenizer.json").text()}});
}

void print_logits(const std::string& file, const std::vector<std::string>& ids) {
  const browser::Reader reader = browser::load_model(file);
  browser::Text text;
  for (const std::string& id : ids) {
    text.read(reader, {std::atoi(id.c_str())});
    for (const float logit : text.logits()) std::printf("%.9g ", static_cast<double>(logit));
    std::printf("\n");
  }
}

void print_parity(int steps, std::uint64_t seed, bool recurrent) {
  browser::Parity parity(seed, recurrent);
  for (int i = 0; i < steps; ++i) std::printf("%.9g\n", parity.step());
}

}  // namespace

int main(int count, char** words) try {
  const std::vector<std::string> arguments(words + 1, words + count);
  if (arguments.size() == 3 && arguments[0] == "pack") {
    pack(arguments[1], arguments[2]);
  } else if (arguments.size() >= 3 && arguments[0] == "logits") {
    print_logits(arguments[1], {arguments.begin() + 2, arguments.end()});
  } else if (arguments.size() == 4 && arguments[0] == "parity") {
    print_parity(std::atoi(arguments[1].c_str()), static_cast<std::uint64_t>(std::atoi(arguments[2].c_str())),
                 arguments[3] == "1");
  } else {
    std::fprintf(
        stderr,
        "usage: example_browser pack EXPORT FILE | logits FILE ID... | parity STEPS SEED RECURRENT\n");
    return 2;
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
