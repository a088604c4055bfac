// What is special about a family, a model or a task is asked of it: no other code compares or branches on its name.
#include <doctest/doctest.h>

#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "tests/tree/source_tree.h"

namespace {

using namespace eddy::test;

// The texts in quotation marks that `pattern` finds in a file, as its first group.
std::vector<std::string> texts_in(const std::string& file, const std::regex& pattern) {
  std::string all;
  for (const std::string& line : lines_of(file)) all += line + '\n';
  std::vector<std::string> texts;
  for (std::sregex_iterator at(all.begin(), all.end(), pattern), end; at != end; ++at)
    texts.push_back((*at)[1]);
  return texts;
}

// Whether a file is of a family of models, whose folder has a list of them.
bool is_of_family(const std::string& file) {
  return std::filesystem::exists(in_tree(folder_of(file) + "/models.cpp"));
}

// The families, and the models that they list.
std::set<std::string> names_of_families() {
  std::set<std::string> names;
  for (const std::string& file : sources_below({"models"})) {
    if (!file.ends_with("/models.cpp")) continue;
    names.insert(std::filesystem::path(folder_of(file)).filename().string());
    for (const std::string& name : texts_in(file, std::regex(R"(listed<\w+>\(\s*"(\w+)\")")))
      names.insert(name);
  }
  return names;
}

// The keys that are described with the named values of an enum: keys.add("order", ..., value_names<DataOrder>()).
std::set<std::string> keys_with_named_values() {
  const std::regex described(R"re(keys\.add\(\s*"(\w+)",(?:(?!keys\.add|\n\})[^])*?value_names<)re");
  std::set<std::string> keys{"split", "tokenizer"};  // of an enum some names; names and any *.model
  for (const std::string& file : sources_below({"models", "train"}))
    for (const std::string& key : texts_in(file, described)) keys.insert(key);
  return keys;
}

const std::vector<std::string> kLibrary{"tensor", "autograd", "ops", "cuda", "models", "train"};

}  // namespace

TEST_CASE("no code outside of a family's folder names the family or a model of it") {
  const std::set<std::string> names = names_of_families();
  REQUIRE(names.size() > 19);
  CHECK(names.contains("block_recurrent"));
  CHECK(names.contains("lstm"));
  // A name may also be that of a key, and in ops/ and cuda/ that of an op.
  std::set<std::string> keys, ops;
  for (const std::string& file : sources_below({"models"}))
    for (const std::string& key : texts_in(file, std::regex(R"(keys\.add\("(\w+)\")"))) keys.insert(key);
  for (const std::string& file : sources_below({"ops"}))
    ops.insert(std::filesystem::path(file).stem().string());
  for (const std::string& file : sources_below(kLibrary)) {
    // The keys that several families read, and the model of a configuration that names none, stand in one file.
    // The formats of other programs have the name of the one architecture that they share with a family here.
    if (is_of_family(file) || file == "models/config.h" || file.starts_with("train/app/exchange/foreign_"))
      continue;
    CAPTURE(file);
    const std::set<std::string>& allowed =
        file.starts_with("train/") || file.starts_with("models/") ? keys : ops;
    for (const std::string& text : texts_in(file, std::regex("\"(\\w+)\""))) {
      CAPTURE(text);
      CHECK_FALSE((names.contains(text) && !allowed.contains(text)));
    }
  }
}

TEST_CASE("no code outside of a family's folder includes a header of it") {
  for (const Include& include : includes_below(kLibrary))
    if (is_of_family(include.target))
      CHECK_MESSAGE(folder_of(include.file) == folder_of(include.target),
                    include.file << " includes " << include.target);
}

TEST_CASE("no code outside of train/tasks names a task or says which keys it reads") {
  std::set<std::string> names;
  for (const std::string& file : sources_below({"train/tasks"}))
    for (const char* pattern : {R"(\.name = "(\w+)\")", R"(\*?k\w+ = "(\w+)\")"})
      for (const std::string& name : texts_in(file, std::regex(pattern))) names.insert(name);
  for (const char* name : {"text", "cifar10", "selective_copy", "recall", "parity", "random_walk"})
    CHECK_MESSAGE(names.contains(name), name);
  // Words that are names of other things too are seen where they are said of a task.
  const std::set<std::string> words{"text", "copy", "algorithm"};
  const std::regex any(R"re("(\w+)")re"),
      of_task(R"re((?:name\s*[!=]?=|\btask\w*\s*[!=]?=|"data\.name",|\bk\w+ =)\s*"(\w+)")re");
  for (const std::string& file : sources_below({"models", "train"})) {
    if (file.starts_with("train/tasks/")) continue;
    CAPTURE(file);
    const auto is_task = [&](const std::string& text) {
      const bool is_data_set = file == "train/fetch/named_data.cpp" && text == "cifar10";
      const bool is_default = file == "train/config/run_config.h" && text == "text";  // where none is named
      return names.contains(text) && !is_data_set && !is_default;
    };
    for (const std::string& text : texts_in(file, any))
      CHECK_MESSAGE((words.contains(text) || !is_task(text)), text);
    for (const std::string& text : texts_in(file, of_task)) CHECK_MESSAGE(!is_task(text), text);
    if (file.starts_with("train/"))
      for (const std::string& text : texts_in(file, std::regex(R"(\.read_by\("([^"]*)\")")))
        CHECK_MESSAGE(false, text);
  }
}

TEST_CASE("a key whose values have names is compared with a value, not with a text") {
  const std::set<std::string> keys = keys_with_named_values();
  for (const char* key :
       {"order", "carry_state", "readout", "gate", "cold_start", "detach", "schedule", "precision"})
    CHECK_MESSAGE(keys.contains(key), key);
  // Described with a list of texts: the values stand once, beside an enum (models/value_names.h).
  const std::set<std::string> other{"group"};  // whose name says what it is
  const std::regex listed(R"re(keys\.add\(\s*"(\w+)",(?:(?!keys\.|\n\})[^{])*\{")re");
  for (const std::string& file : sources_below({"models", "train"}))
    for (const std::string& key : texts_in(file, listed))
      CHECK_MESSAGE(other.contains(key), file << " lists the values of " << key);
  const std::regex compared(R"re(\b(\w+)\s*[!=]=\s*"\w+")re");
  for (const std::string& file : sources_below({"models", "train"}))
    for (const std::string& key : texts_in(file, compared))
      // Other programs' files have keys of their own.
      if (!file.starts_with("train/app/exchange/foreign_"))
        CHECK_MESSAGE(!keys.contains(key), file << " compares " << key << " with a text");
}

TEST_CASE("the name of a device, a tokenizer, a scale or another fixed value stands where it is described") {
  const std::map<std::string, std::set<std::string>> said{
      {"cpu", {"train/config/run_config.h"}},
      {"f32", {"train/config/run_config.h", "train/app/exchange/dump.h"}},
      {"char", {"train/config/tokenizer_names.h"}},
      {"ids", {"train/config/tokenizer_names.h"}},
      {"byte260",
       {"train/config/tokenizer_names.h", "train/fetch/named_data.cpp"}},  // as a configuration has it
      {"tiny", {"train/app/measure/scale.h"}},
      {"huggingface", {"train/app/exchange/foreign_llama.h"}},
      {"unigram", {"train/text/vocabulary_training.h"}}};
  const std::regex quoted(R"re("(\w+)")re");
  std::map<std::string, std::set<std::string>> found;
  for (const std::string& file : sources_below({"models", "train"}))
    for (const std::string& line : lines_of(file)) {
      const std::string code = line.substr(0, line.find("//"));
      for (std::sregex_iterator at(code.begin(), code.end(), quoted), end; at != end; ++at)
        if (said.contains((*at)[1])) found[(*at)[1]].insert(file);
    }
  for (const auto& [name, files] : said)
    for (const std::string& file : found[name]) CHECK_MESSAGE(files.contains(file), file << " has " << name);
  CHECK(found.size() == said.size());
}

TEST_CASE(
    "no model asks which device it is on, what a kernel supports, or whether a step is being captured") {
  const std::regex asked(
      R"([!=]= kCpu|DeviceType|\bcapturing\(|_fits\(|reads_past|_in_products|fuses_products)");
  for (const std::string& file : sources_below({"models"})) {
    CAPTURE(file);
    for (const std::string& line : lines_of(file)) {
      CAPTURE(line);
      CHECK_FALSE(std::regex_search(line, asked));
    }
  }
}
