// Stories as text for the memory experiments.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tensor/base/error.h"
#include "train/text/stories/stories.h"

namespace {

using namespace eddy;
using namespace eddy::training;

using Stories = std::vector<std::string>;

TEST_CASE("stories are parted by marks where there are some") {
  CHECK(split_stories("\n One.\n\nStill one. \n<|endoftext|>\nTwo.\n<|endoftext|>\n \n<|endoftext|>") ==
        Stories{"One.\n\nStill one.", "Two."});
}

TEST_CASE("stories without marks are parted by blank lines") {
  CHECK(split_stories("One.\nMore of one.\n\nTwo.\n\n\n\nThree.\n") ==
        Stories{"One.\nMore of one.", "Two.", "Three."});
  CHECK(split_stories("").empty());
  CHECK(split_stories(" \n\n \n").empty());
}

TEST_CASE("generated stories are split into as many as were told") {
  const std::string text = generate_stories(3, 20'000);
  const Stories stories = split_stories(text);
  REQUIRE(stories.size() > 3);
  std::size_t bytes = 0;
  for (const std::string& story : stories) bytes += story.size() + 2;
  CHECK(bytes >= text.size());
  CHECK(bytes <= text.size() + 2);
}

TEST_CASE("a cut lies at the end of a sentence where one is near") {
  CHECK(cut_stories({"A cat sat. \"It ran!\" Then it slept for long."}, 24) ==
        Stories{"A cat sat. \"It ran!\"", "Then it slept for long."});
}

TEST_CASE("a cut without a sentence lies between words and else between characters") {
  CHECK(cut_stories({"one two three four"}, 8) == Stories{"one two", "three", "four"});
  CHECK(cut_stories({"abcdefghij"}, 4) == Stories{"abcd", "efgh", "ij"});
  CHECK(cut_stories({"\u00e4\u00e4\u00e4"}, 5) == Stories{"\u00e4\u00e4", "\u00e4"});
  CHECK(cut_stories({"short"}, 5) == Stories{"short"});
  CHECK_THROWS_AS(cut_stories({"short"}, 3), ValueError);
}

TEST_CASE("nothing but white space is lost by cutting") {
  const Stories stories = split_stories(generate_stories(5, 8'000));
  const auto letters = [](const Stories& of) {
    std::string all;
    for (const std::string& story : of)
      for (const char c : story)
        if (c != ' ' && c != '\n') all += c;
    return all;
  };
  for (const std::int64_t most : {4, 17, 220}) {
    const Stories pieces = cut_stories(stories, most);
    CHECK(letters(pieces) == letters(stories));
    for (const std::string& piece : pieces) {
      CHECK(static_cast<std::int64_t>(piece.size()) <= most);
      CHECK_FALSE(piece.empty());
    }
  }
}

TEST_CASE("a story is marked at its beginning and told again behind the request") {
  CHECK(plain_text({"One.", "Two."}) == "\x01One.\x01Two.");
  CHECK(repeat_text({"One."}) == "\x01One.\x02Repeat above.\x01One.\x02");
}

}  // namespace
