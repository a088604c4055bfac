// What simple predictors reach: closed forms, samples, and a compressor that is missing.
#include "train/text/baselines.h"

#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "train/text/stories/stories.h"
#include "train/words/utf8.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;
namespace fs = std::filesystem;

std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

bool is_utf8(const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char character = utf8_at(text, at);
    if (character.bytes == 0) return false;
    at += static_cast<std::size_t>(character.bytes);
  }
  return true;
}

}  // namespace

TEST_CASE("baselines: letters in turn cost two bits each by their frequencies and next to nothing by pairs") {
  const Baselines found = measure_baselines(repeated("abcd", 100), "abcd");
  CHECK(found.alphabet == 4);
  CHECK(std::abs(found.uniform - 2) <= 1e-12);
  CHECK(std::abs(found.letters - 2) <= 1e-12);
  // Witten and Bell: a is followed 100 times, always by b, so p(b | a) = (100 + 1 / 4) / (100 + 1).
  CHECK(std::abs(found.bigrams - (2 - 3 * std::log2(100.25 / 101)) / 4) <= 1e-12);
}

TEST_CASE(
    "baselines: a letter of two bytes costs half as many bits per byte, and one never seen a finite number") {
  const Baselines found = measure_baselines("\xC3\xA9\xC3\xBC", "\xC3\xA9\xC3\xBC");
  CHECK(found.alphabet == 2);
  CHECK(std::abs(found.uniform - 0.5) <= 1e-12);
  const Baselines unseen = measure_baselines("aaaa", "z\xFF");
  CHECK(std::isfinite(unseen.letters));
  CHECK(std::isfinite(unseen.bigrams));
  CHECK(measure_baselines("aaaa", "a", {.alphabet = 64}).uniform == 6);
  CHECK(contains(error_of<ValueError>([] { measure_baselines("", "a"); }), "0 bytes of training"));
}

TEST_CASE("baselines: a compressor that is missing or fails is said and one without time is ended") {
  const TempFolder folder;
  const auto script = [&](const std::string& name, const std::string& line) {
    const std::string path = folder.write(name, "#!/bin/sh\n" + line + "\n");
    fs::permissions(path, fs::perms::owner_all);
    return path;
  };
  const std::string text = generate_stories(1, 20000);
  const auto without = [&](const std::string& compressor) {
    return measure_baselines(text, text, {.compressor = compressor});
  };
  const Baselines missing = without("no-such-compressor");
  CHECK(std::isnan(missing.xz));
  CHECK(missing.no_xz == "it is not installed");
  CHECK(contains(missing.summary(), "xz not measured (it is not installed)"));
  CHECK(missing.listed().size() == 3);
  CHECK(without(script("fails", "exit 3")).no_xz == "it ended with status 3");
  CHECK(without(script("dies", "kill -9 $$")).no_xz == "it was ended by signal 9 (Killed)");
  CHECK(without(script("copies", "exec cat")).xz == 8);  // bits for each byte
  const std::string sleeps = script("sleeps", "exec sleep 100");
  const Baselines stopped =
      measure_baselines(text, text, {.compressor = sleeps, .stop = [] { return true; }});
  CHECK(stopped.no_xz == "there was no time for it");
}

TEST_CASE("baselines: xz knows the training text") {
  const std::string text = generate_stories(1, 60000);
  const Baselines found = measure_baselines(text, text.substr(30000));
  if (!found.no_xz.empty()) {
    MESSAGE("skipped: xz: " << found.no_xz);
    return;
  }
  CHECK(found.xz > 0);
  CHECK(found.xz < 0.2);  // a copy of what it has just read
  CHECK(found.listed().back().first == "xz");
}

TEST_CASE("baselines: a loss is placed between the two that are next to it") {
  Baselines some;
  some.uniform = 6;
  some.letters = 4.5;
  some.bigrams = 3.5;
  CHECK(some.place_of(7) == "not better than uniform letters 6.00");
  CHECK(some.place_of(4) == "better than letter frequencies 4.50, not better than bigrams 3.50");
  CHECK(some.place_of(2) == "better than bigrams 3.50");
  CHECK(some.place_of(std::nan("")).empty());
}

TEST_CASE("baselines: JSON keeps them") {
  Baselines some = measure_baselines("abcabd", "abc", {.compressor = "no-such-compressor"});
  some.training_is_part = true;
  const nlohmann::json saved = nlohmann::json::parse(to_json(some).dump());
  const Baselines read = baselines_from_json(saved);
  CHECK(to_json(read).dump() == saved.dump());
  CHECK(read.bigrams == some.bigrams);
  CHECK(std::isnan(read.xz));
  CHECK(read.samples() ==
        "fitted on 6 bytes of the training text, measured on all 3 bytes of the validation text");
  CHECK_THROWS_AS(baselines_from_json(nlohmann::json{{"uniform", "six"}}), nlohmann::json::exception);
}

TEST_CASE(
    "baselines: a sample is the whole text, or pieces of it that are spread evenly and cut no character") {
  const std::unique_ptr<Tokenizer> bytes = make_tokenizer("byte", "");
  std::string text;
  for (int i = 0; i < 40000; ++i) text += i % 2 == 0 ? "\xE2\x82\xAC" : "x";
  const std::vector<std::int32_t> ids = bytes->encode(text);
  const TextSample whole = sample_of(*bytes, ids, 100000);
  CHECK(whole.text == text);
  CHECK(!whole.is_part);
  for (const std::int64_t most : {50000, 40000, 101}) {
    const TextSample part = sample_of(*bytes, ids, most);
    CHECK(part.is_part);
    CHECK(std::ssize(part.text) <= most);
    CHECK(std::ssize(part.text) > most - 40);
    CHECK(is_utf8(part.text));
  }
}
