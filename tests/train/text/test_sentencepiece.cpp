// SentencePiece vocabularies: made from texts, exact for every byte, kept with the runs that use them.
#include <doctest/doctest.h>

#include <sentencepiece_trainer.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <numbers>
#include <random>
#include <string>
#include <vector>

#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/threads.h"
#include "tests/support/tiny_run.h"
#include "train/files/base64.h"
#include "train/files/text_file.h"
#include "train/run/checkpoint.h"
#include "train/run/trainer.h"
#include "train/text/sentencepiece_tokenizer.h"
#include "train/text/stories/stories.h"
#include "train/text/text_measures.h"
#include "train/text/vocabulary_training.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;
using namespace std::string_literals;

std::string vocabulary_of(const std::string& text, std::int64_t size = 512, const std::string& type = "bpe") {
  const TempFolder folder;
  VocabularyOptions options;
  options.size = size;
  options.type = type;
  return train_vocabulary({{"a.txt", folder.write("a.txt", text)}}, options).model;
}

const std::string& stories_model() {
  static const std::string model = vocabulary_of(generate_stories(1, 20000) + "Z\u00fcrich \u20ac 1 2 3\n");
  return model;
}

const Tokenizer& stories() {
  static const std::unique_ptr<Tokenizer> tokenizer =
      sentencepiece_tokenizer(stories_model(), "stories.model");
  return *tokenizer;
}

// A vocabulary as other programs make it: it normalizes, puts a space before every text, and has no pieces for bytes.
std::unique_ptr<Tokenizer> foreign_tokenizer(const std::string& text) {
  const TempFolder folder;
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train({{"input", folder.write("a.txt", text)},
                                                                  {"model_type", "bpe"},
                                                                  {"vocab_size", "60"},
                                                                  {"hard_vocab_limit", "false"},
                                                                  {"minloglevel", "2"}},
                                                                 nullptr, &model);
  REQUIRE(status.ok());
  return sentencepiece_tokenizer(model, "foreign.model");
}

std::string all_bytes() {
  std::string all;
  for (int i = 0; i < 256; ++i) all.push_back(static_cast<char>(i));
  return all;
}

std::vector<std::string> pieces(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<std::string> result;
  for (const std::int32_t id : tokenizer.encode(text)) result.push_back(tokenizer.decode_one(id));
  return result;
}

}  // namespace

TEST_CASE("base64 gives the published examples and takes back only what it wrote") {
  const std::vector<std::pair<std::string, std::string>> examples{
      {"", ""}, {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"}, {"foob", "Zm9vYg=="}, {"fooba", "Zm9vYmE="}};
  for (const auto& [bytes, text] : examples) {
    CHECK(to_base64(bytes) == text);
    CHECK(from_base64(text) == bytes);
  }
  CHECK(from_base64(to_base64(all_bytes())) == all_bytes());
  for (const char* bad :
       {"Z", "Zg", "Zg=", "Zg===", "=Zg=", "Z===", "Zh==", "Zm9=", "Zm 9", "Zg==Zg==", "===="})
    CHECK_MESSAGE(!from_base64(bad).has_value(), bad);
}

TEST_CASE("sentencepiece: every text comes back byte by byte") {
  const std::string story = generate_stories(5, 500);
  for (const std::string& text :
       {std::string(), story, all_bytes(), all_bytes() + story + all_bytes(),
        std::string("  two  spaces \n\n\n x\t\r\n "),
        std::string("\xe2\x96\x81 is what spaces are written as \xe2\x96\x81\xe2\x96\x81"),
        std::string("\xe2\x96\x85 \xe2\x96 \xff\xfe cut \xe2"),
        std::string("e\u0301 \uff21 \ufb01 \u00a0 \U0001f600"), std::string(70000, 'x'),
        std::string(70000, ' '), std::string(70000, '\n'), std::string(1, '\0')}) {
    const std::vector<std::int32_t> ids = stories().encode(text);
    CHECK(stories().decode(ids) == text);
    std::string one_by_one;
    bool special = false;
    for (const std::int32_t id : ids) {
      one_by_one += stories().decode_one(id);
      special = special || id < 3;
    }
    CHECK(one_by_one == text);
    CHECK(!special);  // no unknown token, no marks of beginning and end
  }
}

TEST_CASE("sentencepiece: random bytes come back") {
  std::mt19937_64 random(3);
  for (int round = 0; round < 200; ++round) {
    std::string text;
    for (std::uint64_t i = random() % 60; i > 0; --i)
      text += random() % 3 == 0 ? static_cast<char>(random() & 255) : "ab \n\xe2\x96\x81"[random() % 7];
    CHECK(stories().decode(stories().encode(text)) == text);
  }
}

TEST_CASE("sentencepiece: words are pieces and digits and lines stand alone") {
  const std::string text = generate_stories(1, 20000);
  CHECK(stories().encode(text).size() * 2 < text.size());
  CHECK(pieces(stories(), "123") == std::vector<std::string>{"1", "2", "3"});
  CHECK(pieces(stories(), "\u20ac") == std::vector<std::string>{"\u20ac"});
  CHECK(pieces(stories(), "\u00e9") == std::vector<std::string>{"\xc3", "\xa9"});
  for (std::int32_t id = 259; id < stories().vocab_size(); ++id) {
    const std::string piece = stories().decode_one(id);
    const std::size_t newline = piece.find('\n');
    if (newline != std::string::npos)
      CHECK_MESSAGE(piece.find_first_not_of('\n', newline) == std::string::npos, piece);
  }
}

TEST_CASE("sentencepiece: the first tokens are unknown and begin and end and then the bytes") {
  CHECK(stories().name() == "sentencepiece");
  CHECK(stories().vocab_size() == 512);
  for (const std::int32_t id : {0, 1, 2}) CHECK(stories().decode_one(id).empty());
  for (std::int32_t byte = 0; byte < 256; ++byte)
    CHECK(stories().decode_one(byte + 3) == std::string(1, static_cast<char>(byte)));
  CHECK(contains(error_of<ValueError>([] { stories().decode_one(512); }), "0 to 511"));
  CHECK(contains(error_of<ValueError>([] { stories().decode_one(-1); }), "-1"));
}

TEST_CASE("sentencepiece: a vocabulary comes back from its JSON and its file") {
  const auto again = tokenizer_from_json(stories().to_json());
  CHECK(again->name() == "sentencepiece");
  CHECK(again->model_file() == stories_model());
  CHECK(again->encode("a lamp\xff") == stories().encode("a lamp\xff"));
  const TempFolder folder;
  const std::string path = folder.write("v.model", stories_model());
  CHECK(make_tokenizer(path, "")->encode("a lamp") == stories().encode("a lamp"));
}

TEST_CASE("sentencepiece: what is no model is refused with its name") {
  const TempFolder folder;
  CHECK(contains(error_of<IoError>([&] { make_tokenizer(folder.path("none.model"), ""); }), "none.model"));
  for (const std::string& bytes : {std::string(), std::string("text, no model"), std::string(1000, '\0'),
                                   stories_model().substr(0, stories_model().size() / 2)}) {
    const std::string path = folder.write("bad.model", bytes);
    CHECK(contains(error_of<FormatError>([&] { make_tokenizer(path, ""); }), "bad.model is no model"));
  }
  for (const char* json :
       {R"({"name":"sentencepiece"})", R"({"name":"sentencepiece","model":3})",
        R"({"name":"sentencepiece","model":"?"})", R"({"name":"sentencepiece","model":""})",
        R"({"name":"sentencepiece","model":"AAAA"})"})
    CHECK_THROWS_AS(tokenizer_from_json(json), FormatError);
}

TEST_CASE("sentencepiece: a vocabulary that does not cover a text says what it loses") {
  const std::string known = generate_stories(1, 20000);
  const std::unique_ptr<Tokenizer> tokenizer = foreign_tokenizer(known);
  TokenCover cover;
  const std::string text = "the\n\n\U0001f600\U0001f601  the \xff";
  const std::vector<std::int32_t> ids = tokenizer->encode(text, cover);
  CHECK(ids == tokenizer->encode(text));
  CHECK(cover.tokens == std::ssize(ids));
  CHECK(cover.bytes == std::ssize(text));
  CHECK(cover.unknown == 2);  // neighbours are one token
  // The two newlines become a space, two spaces one, the last one goes; 8 bytes and 1 byte are unknown.
  CHECK(cover.lost_bytes == 2 + 8 + 1 + 1 + 1);
  TokenCover lossless;
  static_cast<void>(stories().encode(text, lossless));
  CHECK(lossless.lost_bytes == 0);
  CHECK(lossless.unknown == 0);
}

TEST_CASE("sentencepiece: bits per byte count the bytes of the text whatever its vocabulary keeps") {
  const std::string known = generate_stories(1, 20000);
  const std::unique_ptr<Tokenizer> tokenizer = foreign_tokenizer(known);
  for (const std::string& text :
       {known, "\U0001f600\U0001f601 \U0001f602\n the\n\n\nend \uff21\n"s + known}) {
    TokenCover cover;
    const std::vector<std::int32_t> ids = tokenizer->encode(text, cover);
    TextMeasure measure(*tokenizer, cover);
    measure.add(make_batch(1, ids, ids));
    const auto found = measure.metrics(std::numbers::ln2 * static_cast<double>(text.size()));
    REQUIRE(!found.empty());
    CHECK(found[0].first == "bits_per_byte");
    CHECK(std::abs(found[0].second - 1) < 1e-9);  // sums of averages of whole numbers
  }
}

TEST_CASE("vocabulary training: the same texts give the same vocabulary") {
  const std::string text = generate_stories(2, 8000);
  for (const char* type : {"bpe", "unigram"}) {
    const std::string model = vocabulary_of(text, 512, type);
    CHECK(model == vocabulary_of(text, 512, type));
    const auto tokenizer = sentencepiece_tokenizer(model, "x");
    CHECK(tokenizer->vocab_size() == 512);
    CHECK(tokenizer->decode(tokenizer->encode(text)) == text);
  }
  CHECK(vocabulary_of(text, 512, "bpe") != vocabulary_of(text, 512, "unigram"));
}

TEST_CASE("vocabulary training: a text that is too short for a size says what it gives") {
  const std::string text = generate_stories(2, 500);
  for (const char* type : {"bpe", "unigram"}) {
    const std::string error = error_of<ValueError>([&] { vocabulary_of(text, 4000, type); });
    const std::string mark = "only one of ";
    REQUIRE_MESSAGE(contains(error, mark), error);
    const std::int64_t most = std::stoll(error.substr(error.find(mark) + mark.size()));
    CHECK(most > 259);
    CHECK_MESSAGE(contains(error, most >= 512 ? "set --vocab to it" : "(take more text"), error);
    if (most >= 512)
      CHECK(sentencepiece_tokenizer(vocabulary_of(text, most, type), "x")->vocab_size() == most);
  }
  CHECK(contains(error_of<ValueError>([&] { vocabulary_of("\xff\xfe", 512); }), "no line to learn from"));
  CHECK(contains(error_of<ValueError>([&] { vocabulary_of("\t\t", 512); }), "no line to learn from"));
  CHECK_THROWS_AS(vocabulary_of("a", 512), ValueError);
  CHECK(contains(error_of<ValueError>([&] { vocabulary_of(text, 511); }), "512"));
  CHECK(contains(error_of<ValueError>([&] { vocabulary_of(text, 600, "words"); }), "bpe or unigram"));
}

TEST_CASE("vocabulary training: of too many characters the rare ones are written as bytes") {
  std::string text = generate_stories(2, 20000);
  for (std::size_t c = 0; c < 400; ++c) {  // ideographs, each once
    const std::size_t code = 0x4e00 + c;
    text += static_cast<char>(0xe0 | (code >> 12));
    text += static_cast<char>(0x80 | ((code >> 6) & 63));
    text += static_cast<char>(0x80 | (code & 63));
  }
  const TempFolder folder;
  VocabularyOptions options;
  options.size = 512;
  const TrainedVocabulary made = train_vocabulary({{"a", folder.write("a", text)}}, options);
  CHECK(made.characters > 400);
  CHECK(made.without_piece > 250);
  const auto tokenizer = sentencepiece_tokenizer(made.model, "x");
  CHECK(tokenizer->decode(tokenizer->encode(text)) == text);
  CHECK(pieces(*tokenizer, "e").size() == 1);
}

TEST_CASE("vocabulary training: a separator or a field that does not occur is refused") {
  const TempFolder folder;
  const std::vector<TextFile> files{{"a.txt", folder.write("a.txt", "no mark and no line of JSON\n")}};
  VocabularyOptions options;
  options.size = 512;
  options.cut.separator = "<s>";
  CHECK(contains(error_of<ConfigError>([&] { train_vocabulary(files, options); }),
                 "\"<s>\", which does not occur"));
  options.cut = {.separator = "", .json_field = "text"};
  CHECK(contains(error_of<ConfigError>([&] { train_vocabulary(files, options); }), "no lines of JSON"));
}

TEST_CASE("vocabulary training: of long texts lines are taken evenly") {
  const TempFolder folder;
  std::vector<TextFile> files;
  for (int i = 0; i < 4; ++i) {
    const std::string name = std::to_string(i) + ".txt";
    files.push_back({name, folder.write(name, generate_stories(static_cast<std::uint64_t>(i), 20000))});
  }
  VocabularyOptions options;
  options.size = 512;
  const TrainedVocabulary whole = train_vocabulary(files, options);
  CHECK(whole.used_bytes == whole.bytes);
  options.most_bytes = whole.bytes / 3;
  const TrainedVocabulary part = train_vocabulary(files, options);
  CHECK(part.bytes == whole.bytes);
  CHECK(part.used_bytes > whole.bytes / 4);
  CHECK(part.used_bytes <= whole.bytes / 3);
}

TEST_CASE("vocabulary training: a folder with splits gives its training texts") {
  const TempFolder folder;
  folder.write("train/a.txt", "a");
  CHECK(!find_splits(folder.path()).has_value());
  CHECK(!find_splits(folder.path("train/a.txt")).has_value());
  CHECK(!find_splits("").has_value());
  folder.write("validation/b.txt", "b");
  REQUIRE(find_splits(folder.path()).has_value());
  CHECK(find_splits(folder.path())->valid == folder.path("validation"));
  CHECK(find_splits(folder.path())->test.empty());
  const std::vector<TextFile> files = vocabulary_files(folder.path()).files;
  REQUIRE(files.size() == 1);
  CHECK(files[0].path == folder.path("train/a.txt"));
}

TEST_CASE("train: a run keeps its SentencePiece vocabulary and needs the file no more") {
  const OneThread one;
  const TempFolder folder;
  TrainRequest request = tiny_run(folder, "run");
  const std::string path = folder.write("v.model", stories_model());
  request.config.data.tokenizer = path;
  request.config.data.order = "documents";
  request.config.model.family = "staircase";
  request.config.model.model = "lstm";
  folder.write("docs/a.txt", generate_stories(1, 3000));
  folder.write("docs/b.txt", generate_stories(2, 3000));
  request.config.data.path = folder.path("docs");
  CHECK(train_quietly(request) == TrainEnd::finished);
  CHECK(read_text_file(request.run_dir + "/tokenizer.model") == stories_model());
  std::filesystem::remove(path);
  TrainRequest more = resumed(request, 8);
  CHECK(train_quietly(more) == TrainEnd::finished);
  const LoadedRun loaded = load_run(request.run_dir);
  REQUIRE(loaded.tokenizer != nullptr);
  CHECK(loaded.tokenizer->model_file() == stories_model());
  CHECK(loaded.config.model.vocab == 512);

  // Another vocabulary in its place is not taken for it.
  folder.write("v.model", vocabulary_of(generate_stories(9, 20000)));
  more.config.train.steps = 9;
  const std::string error = error_of<ConfigError>([&] { train_quietly(more); });
  CHECK(contains(error, "another vocabulary than that of"));
  more.config.data.tokenizer = request.run_dir + "/tokenizer.model";
  CHECK(train_quietly(more) == TrainEnd::finished);
  more.config.data.tokenizer = "byte";
  CHECK(contains(error_of<ConfigError>([&] { train_quietly(more); }), "data.tokenizer is byte"));
}

TEST_CASE("train: the table may have more rows than a SentencePiece vocabulary and no fewer") {
  const OneThread one;
  const TempFolder folder;
  TrainRequest request = tiny_run(folder, "run");
  request.config.data.tokenizer = folder.write("v.model", stories_model());
  request.config.model.vocab = 511;
  CHECK(contains(error_of<ConfigError>([&] { train_quietly(request); }), "512 tokens"));
  request.config.model.vocab = 520;
  request.config.train.sample_tokens = 20;
  CHECK(train_quietly(request) == TrainEnd::finished);
  CHECK(load_run(request.run_dir).config.model.vocab == 520);
}
