// A model of SentencePiece is a message of protocol buffers; the few of its fields that other programs need are read
// here.
#include "train/app/exchange/foreign_tokenizer.h"

#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "tensor/base/format.h"
#include "train/files/base64.h"
#include "train/files/text_file.h"
#include "train/text/sentencepiece_tokenizer.h"
#include "train/words/program_name.h"
#include "train/words/utf8.h"

namespace eddy::app {
using namespace training;
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kOwnModel = "eddy.sentencepiece";  // the whole .model file, in base64
constexpr std::int64_t kBytesOfAByte = 256;

// ---- SentencePiece's model. Source: sentencepiece_model.proto of https://github.com/google/sentencepiece.

enum class PieceType : std::int32_t { normal = 1, unknown, control, user_defined, unused, byte };

struct PieceModel {
  std::vector<std::string> pieces;
  std::vector<float> scores;
  std::vector<std::int32_t> types;                         // of PieceType; llama.cpp has the same numbers
  std::int32_t kind = 1;                                   // 1: unigram, 2: bpe, 3: word, 4: char
  std::int32_t unknown = 0, begin = 1, end = 2, pad = -1;  // ids; -1: none
  bool space_before = true, removes_spaces = true;
  std::string characters_map;
};

// One field of a message: its number, and its value by its wire type.
struct ProtoField {
  std::uint64_t number = 0, whole = 0;
  std::string_view bytes;
  float real() const {
    float value = 0;
    if (bytes.size() == sizeof value) std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  std::int32_t integer() const { return static_cast<std::int32_t>(whole); }
};

std::optional<std::uint64_t> take_whole(std::string_view& message) {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64 && !message.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(message.front());
    message.remove_prefix(1);
    value |= static_cast<std::uint64_t>(byte & 0x7fu) << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

// Calls visit(field) for each field of a message, up to its end or to what is none.
template <class Visit>
void for_each_field(std::string_view message, const Visit& visit) {
  while (!message.empty()) {
    const std::optional<std::uint64_t> key = take_whole(message);
    if (!key) return;
    ProtoField field{*key >> 3, 0, {}};
    const std::uint64_t wire = *key & 7u;
    std::uint64_t length = wire == 1 ? 8 : wire == 5 ? 4 : 0;
    if (wire == 0 || wire == 2) {
      const std::optional<std::uint64_t> value = take_whole(message);
      if (!value) return;
      (wire == 0 ? field.whole : length) = *value;
    }
    if (wire > 2 && wire != 5) return;
    if (length > message.size()) return;
    field.bytes = message.substr(0, static_cast<std::size_t>(length));
    message.remove_prefix(static_cast<std::size_t>(length));
    visit(field);
  }
}

// SentencePiece has read the same bytes before: the tokenizer was made of them.
PieceModel piece_model(const std::string& bytes) {
  PieceModel model;
  for_each_field(bytes, [&](const ProtoField& part) {
    if (part.number == 1) {
      model.pieces.emplace_back();
      model.scores.push_back(0);
      model.types.push_back(static_cast<std::int32_t>(PieceType::normal));
      for_each_field(part.bytes, [&](const ProtoField& field) {
        if (field.number == 1) model.pieces.back() = field.bytes;
        if (field.number == 2) model.scores.back() = field.real();
        if (field.number == 3) model.types.back() = field.integer();
      });
    }
    if (part.number == 2)
      for_each_field(part.bytes, [&](const ProtoField& field) {
        if (field.number == 3) model.kind = field.integer();
        if (field.number == 40) model.unknown = field.integer();
        if (field.number == 41) model.begin = field.integer();
        if (field.number == 42) model.end = field.integer();
        if (field.number == 43) model.pad = field.integer();
      });
    if (part.number == 3)
      for_each_field(part.bytes, [&](const ProtoField& field) {
        if (field.number == 2) model.characters_map = field.bytes;
        if (field.number == 3) model.space_before = field.whole != 0;
        if (field.number == 4) model.removes_spaces = field.whole != 0;
      });
  });
  return model;
}

// ---- Hugging Face

std::string byte_piece(std::int64_t byte) {
  return fmt::format("<0x{:02X}>", byte);
}

std::int64_t first_byte_id(const Tokenizer& tokenizer) {
  return tokenizer.name() == kByte260Tokenizer ? 3 : 0;
}

json character_model(const Tokenizer& tokenizer) {
  json vocab = json::object();
  for (std::int64_t id = 0; id < tokenizer.vocab_size(); ++id)
    vocab[tokenizer.decode_one(static_cast<std::int32_t>(id))] = id;
  // A character that the vocabulary lacks is an error there too: no token has this name.
  return {{"type", "WordLevel"}, {"vocab", std::move(vocab)}, {"unk_token", "<unknown character>"}};
}

json byte_model(const Tokenizer& tokenizer) {
  json vocab = json::object();
  for (std::int64_t byte = 0; byte < kBytesOfAByte; ++byte)
    vocab[byte_piece(byte)] = first_byte_id(tokenizer) + byte;
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", nullptr},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", false},
          {"byte_fallback", true},
          {"vocab", std::move(vocab)},
          {"merges", json::array()}};
}

// The tokenizer.json of characters or bytes.
json plain_tokenizer(const Tokenizer& tokenizer) {
  const bool characters = tokenizer.name() == kCharTokenizer;
  const json fuse{{"type", "Fuse"}};
  json file{{"version", "1.0"},
            {"truncation", nullptr},
            {"padding", nullptr},
            {"added_tokens", json::array()},
            {"normalizer", nullptr},
            {"pre_tokenizer", nullptr},
            {"post_processor", nullptr},
            {"decoder", fuse},
            {"model", characters ? character_model(tokenizer) : byte_model(tokenizer)}};
  if (characters)
    file["pre_tokenizer"] = {
        {"type", "Split"}, {"pattern", {{"Regex", "[\\s\\S]"}}}, {"behavior", "Isolated"}, {"invert", false}};
  else
    file["decoder"] = {{"type", "Sequence"}, {"decoders", json::array({{{"type", "ByteFallback"}}, fuse})}};
  return file;
}

// The description of a tokenizer of characters whose ids are the values of `vocab`; null where it is none.
json characters_of(const json& vocab) {
  std::vector<std::string> by_id(vocab.size());
  for (const auto& [character, id] : vocab.items()) {
    const bool is_place = id.is_number_unsigned() && id.get<std::uint64_t>() < by_id.size();
    if (!is_place || character.empty() || utf8_at(character, 0).bytes != static_cast<int>(character.size()))
      return nullptr;
    by_id[id.get<std::size_t>()] = character;
  }
  // Those of the first text rise (UTF-8 keeps the order of code points); those that were added for others follow.
  std::string first, added;
  for (std::size_t id = 0; id < by_id.size(); ++id)
    (added.empty() && (id == 0 || by_id[id - 1] < by_id[id]) ? first : added) += by_id[id];
  json description{{"name", kCharTokenizer}, {"characters", first}};
  if (!added.empty()) description["added"] = added;
  return description;
}

// The description of the tokenizer of bytes with this vocabulary; null where it is none.
json bytes_of(const json& vocab) {
  for (const char* const name : {kByteTokenizer, kByte260Tokenizer})
    if (vocab == byte_model(*make_tokenizer(name, "")).at("vocab")) return {{"name", name}};
  return nullptr;
}

}  // namespace

std::map<std::string, std::string> huggingface_tokenizer(const Tokenizer& tokenizer, std::int64_t context) {
  json config{{"model_max_length", context}, {"clean_up_tokenization_spaces", false}};
  std::map<std::string, std::string> files;
  if (tokenizer.name() == kIdsTokenizer) return files;  // another program has the words
  if (const std::string bytes = tokenizer.model_file(); !bytes.empty()) {
    const PieceModel model = piece_model(bytes);
    const auto piece = [&](std::int32_t id) {
      return id < 0 || id >= std::ssize(model.pieces) ? json()
                                                      : json(model.pieces[static_cast<std::size_t>(id)]);
    };
    config.update({{"tokenizer_class", "LlamaTokenizer"},
                   {"legacy", true},  // encodes by SentencePiece alone
                   {"add_prefix_space", model.space_before},
                   {"add_bos_token", false},
                   {"add_eos_token", false},
                   {"unk_token", piece(model.unknown)},
                   {"bos_token", piece(model.begin)},
                   {"eos_token", piece(model.end)},
                   {"pad_token", piece(model.pad)}});
    files["tokenizer.model"] = bytes;
  } else {
    config["tokenizer_class"] = "PreTrainedTokenizerFast";
    files["tokenizer.json"] = plain_tokenizer(tokenizer).dump(1) + "\n";
  }
  files["tokenizer_config.json"] = config.dump(1) + "\n";
  return files;
}

std::unique_ptr<Tokenizer> tokenizer_of_folder(const fs::path& folder) {
  std::error_code error;
  const fs::path pieces = folder / "tokenizer.model", file = folder / "tokenizer.json";
  if (fs::exists(pieces, error)) return read_sentencepiece(pieces.string());
  if (!fs::exists(file, error)) return nullptr;
  const json read = read_json_file(file);
  if (read.is_object() && read.contains("name")) return tokenizer_from_json(read.dump(), file.string());
  const json model = read.is_object() ? read.value("model", json()) : json();
  const json vocab = model.is_object() ? model.value("vocab", json()) : json();
  json description;
  if (vocab.is_object() && model.value("type", json()) == "WordLevel") description = characters_of(vocab);
  if (vocab.is_object() && model.value("type", json()) == "BPE") description = bytes_of(vocab);
  if (description.is_null())
    fail<FormatError>(
        "import: {} is a tokenizer that is not read (those of characters or bytes that Eddy wrote are, and a tokenizer.model "
        "of SentencePiece; with --data.tokenizer ids texts are token ids, which its own program makes of words and back)",
        file.string());
  return tokenizer_from_json(description.dump(), file.string());
}

void check_gguf_tokenizer(const Tokenizer& tokenizer) {
  if (tokenizer.model_file().empty() && tokenizer.name() != kIdsTokenizer)
    fail<ConfigError>(
        "export: GGUF files have no tokenizer of {}, and this model was trained with {} (--format huggingface has one; "
        "{} tokenizer train makes a vocabulary that both have)",
        tokenizer.name() == kCharTokenizer ? "characters" : "bytes", tokenizer.name(), program_name());
}

GgufValues gguf_tokenizer(const Tokenizer* tokenizer, std::int64_t vocab) {
  if (tokenizer == nullptr || tokenizer->name() == kIdsTokenizer) return {{"tokenizer.ggml.model", "none"}};
  PieceModel model = piece_model(tokenizer->model_file());
  for (std::int64_t id = std::ssize(model.pieces); id < vocab; ++id) {  // a table that was rounded up
    model.pieces.push_back(fmt::format("[PAD{}]", id));
    model.scores.push_back(-1000);
    model.types.push_back(static_cast<std::int32_t>(PieceType::unused));
  }
  const bool unigram = model.kind == 1;
  GgufValues values{{"tokenizer.ggml.model", unigram ? "t5" : "llama"},
                    {"tokenizer.ggml.pre", "default"},
                    {"tokenizer.ggml.tokens", std::move(model.pieces)},
                    {"tokenizer.ggml.scores", std::move(model.scores)},
                    {"tokenizer.ggml.token_type", std::move(model.types)},
                    {"tokenizer.ggml.add_bos_token", false},
                    {"tokenizer.ggml.add_eos_token", false},
                    {"tokenizer.ggml.add_space_prefix", model.space_before},
                    {"tokenizer.ggml.remove_extra_whitespaces", model.removes_spaces},
                    {kOwnModel, to_base64(tokenizer->model_file())}};
  for (const auto& [key, id] : {std::pair("tokenizer.ggml.unknown_token_id", model.unknown),
                                {"tokenizer.ggml.bos_token_id", model.begin},
                                {"tokenizer.ggml.eos_token_id", model.end},
                                {"tokenizer.ggml.padding_token_id", model.pad}})
    if (id >= 0) values[key] = static_cast<std::uint32_t>(id);
  if (unigram && !model.characters_map.empty())
    values["tokenizer.ggml.precompiled_charsmap"] =
        std::vector<std::uint8_t>(model.characters_map.begin(), model.characters_map.end());
  return values;
}

std::unique_ptr<Tokenizer> tokenizer_of_gguf(const GgufValues& values, const std::string& name) {
  const auto* const text = gguf_value<std::string>(values, kOwnModel);
  if (text == nullptr) return nullptr;
  std::optional<std::string> bytes = from_base64(*text);
  if (!bytes)
    fail<FormatError>("import: {}: {} is no text in base64 (export the model again)", name, kOwnModel);
  return sentencepiece_tokenizer(std::move(*bytes), name);
}

}  // namespace eddy::app
