// Sessions: a text put away anywhere goes on as if it had never stopped, in every family, and only with the
// model it came from.
#include "models/eddy/registry.h"
#include "train/generate/session.h"

#include <doctest/doctest.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "tensor/base/error.h"
#include "tensor/base/format.h"
#include "tensor/files/safetensors.h"
#include "tests/models/every_model.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/threads.h"
#include "tests/support/tiny_model.h"
#include "train/files/digest.h"
#include "train/files/sha256.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;
using Tokens = std::vector<std::int32_t>;

constexpr const char* kSessionText = "abcdefghij\n";
constexpr std::int64_t kVocab = 11;

ModelConfig config_of(const ModelName& name) {
  ModelConfig config = even_config(name, kVocab, 96);
  config.init_std = 0.3;
  config.dropout = 0.5;  // must not show
  return config;
}

const SampleOptions kDraws{.temperature = 1.2, .top_k = 9, .top_p = 0.97, .seed = 77};

std::unique_ptr<Tokenizer> tokens_of_text() {
  return make_tokenizer("char", kSessionText);
}

// The digest of a session: texts with their lengths before them, then tensors by name.
std::string digest_of(const std::map<std::string, Tensor>& tensors, const SafetensorsMetadata& notes) {
  Digest digest;
  const auto add = [&](const std::string& text) { digest.update(fmt::format("{}:{}", text.size(), text)); };
  for (const auto& [key, value] : notes) {
    add(key);
    add(value);
  }
  for (const auto& [name, tensor] : tensors) {
    add(name);
    add(dtype_name(tensor.dtype()));
    add(fmt::format("{}", fmt::join(tensor.shape().to_vector(), ",")));
    const void* const data = tensor.elements() == 0 ? nullptr : tensor.raw_data();
    digest.update({static_cast<const char*>(data), static_cast<std::size_t>(tensor.bytes())});
  }
  return digest.hex();
}

}  // namespace

TEST_CASE(
    "session: a text put away at any token goes on in a new program to the same tokens in every family") {
  const OneThread one_thread;
  const TempFolder folder;
  const auto tokenizer = tokens_of_text();
  const std::string file = folder.path("text.session");
  const Tokens prompt{1, 2, 3, 4, 5, 6};
  for (const ModelName& name : model_registry()) {
    CAPTURE(name.model);
    const ModelConfig config = config_of(name);
    const Tokens whole = generate(*tiny_model(config), *tokenizer, prompt, 24, kDraws).tokens;
    REQUIRE(whole.size() == 24);
    for (const std::int64_t first : {0, 1, 2, 5, 8}) {
      CAPTURE(first);
      {
        const auto model = tiny_model(config);
        Session session{{}, kDraws};
        const Tokens begun = generate(*model, *tokenizer, session.text, prompt, first, kDraws).tokens;
        CHECK(std::equal(begun.begin(), begun.end(), whole.begin()));
        save_session(file, *model, session);
      }
      const auto model = tiny_model(config);
      Session session = load_session(file, *model);
      CHECK(session.text.position == static_cast<std::int64_t>(prompt.size()) + first);
      CHECK(session.sample.seed == kDraws.seed);
      CHECK(session.sample.top_p == kDraws.top_p);
      const Tokens rest = generate(*model, *tokenizer, session.text, {}, 24 - first, session.sample).tokens;
      CHECK(rest == Tokens(whole.begin() + first, whole.end()));
    }
  }
}

TEST_CASE("session: a prompt is put behind the text so far") {
  const OneThread one_thread;
  const auto tokenizer = tokens_of_text();
  const auto model = tiny_model(tiny_config("unit_forget", kVocab));
  GenerateState text;
  Tokens all{1, 2};
  const Tokens begun = generate(*model, *tokenizer, text, all, 3, kDraws).tokens;
  const Tokens more{7, 8, 9};
  const Tokens after = generate(*model, *tokenizer, text, more, 4, kDraws).tokens;
  all.insert(all.end(), begun.begin(), begun.end());
  all.insert(all.end(), more.begin(), more.end());
  CHECK(after == generate(*model, *tokenizer, all, 4, kDraws).tokens);
}

TEST_CASE("session: a full context is refused and leaves the text as it was") {
  const OneThread one_thread;
  const auto tokenizer = tokens_of_text();
  ModelConfig config = tiny_config("regular", kVocab, 8);
  config.positions = true;
  const auto model = tiny_model(config);
  GenerateState text;
  const GenerateResult first = generate(*model, *tokenizer, text, Tokens{1, 2, 3}, 60, kDraws);
  CHECK(first.tokens.size() == 6);
  CHECK(contains(error_of<ValueError>([&] { generate(*model, *tokenizer, text, {}, 1, kDraws); }),
                 "1 tokens after 8, and the model takes only 0 more"));
  CHECK(text.position == 9);
  CHECK(text.unread.size() == 1);
  GenerateState other;
  generate(*model, *tokenizer, other, Tokens{1, 2, 3}, 2, kDraws);
  CHECK(contains(generate(*model, *tokenizer, other, {}, 60, kDraws).stopped,
                 "the context of 8 tokens is full after 4 of 60 tokens"));
}

TEST_CASE("session: one of another model or other weights or another precision is refused with the reason") {
  const OneThread one_thread;
  const TempFolder folder;
  const auto tokenizer = tokens_of_text();
  const std::string file = folder.path("text.session");
  const ModelConfig config = tiny_config("unit_forget", kVocab);
  const auto model = tiny_model(config);
  Session session{{}, kDraws};
  CHECK(contains(error_of<ValueError>([&] { save_session(file, *model, session); }), "nothing was read"));
  generate(*model, *tokenizer, session.text, Tokens{1, 2}, 3, kDraws);
  save_session(file, *model, session);
  const auto refused = [&](const Model& other) {
    return error_of<ConfigError>([&] { load_session(file, other); });
  };
  CHECK(refused(*model).empty());
  CHECK(contains(refused(*tiny_model(tiny_config("regular", kVocab))),
                 "was written by a unit_forget, and this model is a regular"));
  ModelConfig wider = config;
  wider.dim = 32;
  CHECK(contains(refused(*tiny_model(wider)), "other sizes or switches"));
  CHECK(contains(refused(*tiny_model(config, Dtype::f32)), "computed in f64, and this is f32"));
  const auto trained = tiny_model(config);
  trained->params().initialize(6);
  CHECK(contains(refused(*trained), "other weights of the same model"));
}

TEST_CASE("session: a key that models get later leaves it readable") {
  const TempFolder folder;
  const std::string file = folder.path("text.session");
  ModelConfig config;
  config.vocab = 20;
  config.context = 32;
  config.dim = 16;
  config.heads = 2;
  const auto model = make_model(config);
  model->params().initialize(1);
  const auto tokenizer = make_tokenizer("char", "abcdefghijklmnopqrst");
  Session session{{}, kDraws};
  static_cast<void>(generate(*model, *tokenizer, session.text, Tokens{1, 2, 3}, 2, kDraws));
  save_session(file, *model, session);
  // The keys that are not at their defaults, and no others.
  CHECK(SafetensorsFile::open(file).metadata().at("config_sha256") ==
        sha256_hex(
            R"({"cache_after":2,"context":32,"dim":16,"embed_dim":16,"head_dim":8,"heads":2,"kv_heads":2,)"
            R"("mlp_dim":64,"n_out":20,"norm_eps":1e-05,"segment":32,"span":64,"vocab":20,"window":32})"));
}

TEST_CASE("session: keys that its model does not read do not matter") {
  const OneThread one_thread;
  const TempFolder folder;
  const auto tokenizer = tokens_of_text();
  const std::string file = folder.path("text.session");
  ModelConfig given = tiny_config("unit_forget", kVocab);
  given.window = 3;
  given.repeats = 2;
  const auto model = tiny_model(given);
  Session session{{}, kDraws};
  generate(*model, *tokenizer, session.text, Tokens{1, 2}, 3, kDraws);
  save_session(file, *model, session);
  CHECK(load_session(file, *model).text.position == session.text.position);
  CHECK(load_session(file, *tiny_model(tiny_config("unit_forget", kVocab))).text.position > 0);
}

TEST_CASE("session: a file that is none or damaged is refused") {
  const OneThread one_thread;
  const TempFolder folder;
  const auto tokenizer = tokens_of_text();
  const std::string file = folder.path("text.session");
  const auto model = tiny_model(tiny_config("unit_forget", kVocab));
  Session session{{}, kDraws};
  generate(*model, *tokenizer, session.text, Tokens{1, 2}, 3, kDraws);
  save_session(file, *model, session);
  SafetensorsMetadata notes = SafetensorsFile::open(file).metadata();
  CHECK(notes.erase("digest") == 1);
  const std::map<std::string, Tensor> tensors = load_safetensors(file);
  // Each change gets a digest of its own, and so as far as its own check.
  const auto refused = [&](const std::map<std::string, Tensor>& changed, SafetensorsMetadata said) {
    said["digest"] = digest_of(changed, said);
    save_safetensors(file, changed, said);
    return error_of<FormatError>([&] { load_session(file, *model); });
  };
  CHECK(refused(tensors, notes).empty());
  CHECK(contains(refused(tensors, {}), "has no format"));
  SafetensorsMetadata said = notes;
  said["format"] = "eddy session 2";
  CHECK(contains(refused(tensors, said),
                 "has format \"eddy session 2\", and this program reads \"eddy session 1\""));
  CHECK(contains(error_of<FormatError>([&] { static_cast<void>(session_problem(file)); }), "has format"));
  said = notes;
  said["position"] = "5 or so";
  CHECK(contains(refused(tensors, said), "its position is \"5 or so\""));
  for (const char* position : {"-1", "9223372036854775807"}) {
    said["position"] = position;
    CHECK(contains(refused(tensors, said), "is damaged"));
  }
  std::map<std::string, Tensor> changed = tensors;
  changed.erase("unread");
  CHECK(contains(refused(changed, notes), "no logits"));
  changed["unread"] = Tensor::from(std::vector<std::int32_t>{kVocab}, {1});
  CHECK(contains(refused(changed, notes), "unread token is 11"));
  changed = tensors;
  changed["logits"] = Tensor::zeros({kVocab});
  CHECK(contains(refused(changed, notes), "both logits and an unread token"));
  changed = {{"unread", tensors.at("unread")}};
  CHECK(contains(refused(changed, notes), "0 state tensors"));
  save_safetensors(file, tensors, notes);
  CHECK(contains(error_of<FormatError>([&] { load_session(file, *model); }), "it has no digest"));
  CHECK(session_problem(file) == "it has no digest");
  folder.write("text.session", "no session");
  CHECK(!error_of<FormatError>([&] { load_session(file, *model); }).empty());
  CHECK(!error_of<IoError>([&] { load_session(folder.path("nowhere"), *model); }).empty());
}

TEST_CASE("session: it takes the place of a session or of nothing") {
  const OneThread one_thread;
  const TempFolder folder;
  const auto tokenizer = tokens_of_text();
  const auto model = tiny_model(tiny_config("unit_forget", kVocab, 8));
  const std::string file = folder.path("a.session");
  const auto refuses = [](const std::string& path) {
    return !error_of<IoError>([&] { refuse_foreign_file("generate", path, kSessionFile); }).empty();
  };
  CHECK(!refuses(file));
  Session session;
  generate(*model, *tokenizer, session.text, Tokens{1, 2, 3}, 2, kDraws);
  save_session(file, *model, session);
  CHECK(!refuses(file));
  CHECK(!refuses(folder.write("empty", "")));
  CHECK(refuses(folder.write("text.txt", "a text to train on")));
  CHECK(refuses("/dev/null"));
  CHECK(contains(error_of<IoError>([&] { save_session(folder.path("text.txt"), *model, session); }),
                 "is not a session"));
  save_safetensors(folder.path("weights"), {{"w", Tensor::zeros({2}, Dtype::f32)}});
  CHECK(refuses(folder.path("weights")));
}
