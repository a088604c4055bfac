// Llamas for the tests of their forms, and their logits of 200 tokens.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "models/eddy/registry.h"
#include "models/weights.h"
#include "tests/support/files.h"
#include "train/app/exchange/import.h"
#include "train/app/exchange/name_map.h"
#include "train/text/sentencepiece_tokenizer.h"
#include "train/text/stories/stories.h"
#include "train/text/vocabulary_training.h"

namespace eddy::test {

inline constexpr std::int64_t kSequence = 200;

// Untied, with fewer heads of keys than of queries, and other constants than the defaults.
inline ModelConfig form_config(const char* model, std::int64_t vocab = 23) {
  ModelConfig config;
  config.family = "blockwise_recurrent";
  config.model = model;
  config.vocab = vocab;
  config.dim = 32;
  config.heads = 4;
  config.kv_heads = 2;
  config.layers = 2;
  config.context = 256;
  config.window = config.model == "llama_window" ? 16 : 0;
  config.tied = false;
  config.norm_eps = 3e-5;
  config.rope_theta = 500;
  config.init_std = 0.3;
  return config;
}

// With random weights.
inline std::unique_ptr<Model> form_model(const ModelConfig& config) {
  std::unique_ptr<Model> model = make_model(config);
  model->params().initialize(11);
  return model;
}

// A vocabulary of 512 pieces, of type bpe or unigram.
inline std::unique_ptr<training::Tokenizer> pieces_of(const char* type) {
  const TempFolder folder;
  training::VocabularyOptions options;
  options.size = 512;
  options.type = type;
  const std::string file = folder.write("a.txt", training::generate_stories(1, 20000));
  return training::sentencepiece_tokenizer(training::train_vocabulary({{"a.txt", file}}, options).model,
                                           "pieces.model");
}

// The logits of token i being (7 i + i i / 3) mod vocab.
inline std::vector<float> logits_in_form(const Model& model) {
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < kSequence; ++i) ids.push_back((7 * i + i * i / 3) % model.config().vocab);
  const NoGrad no_grad;
  ForwardInput input;
  input.tokens = Tensor::from(ids, {1, kSequence});
  const Tensor logits = raw::contiguous(model.forward(input).logits);
  return {logits.data<float>(), logits.data<float>() + logits.elements()};
}

// The model that files describe, with their weights.
inline std::unique_ptr<Model> model_back(const app::DescribedModel& described) {
  std::unique_ptr<Model> model = make_model(described.model);
  load_parameters(model->params(),
                  app::mapped_weights(described.map, described.tensors, model->params(),
                                      model->config().dim / model->config().heads)
                      .values,
                  described.map.file);
  return model;
}

}  // namespace eddy::test
