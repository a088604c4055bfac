// Generated stories, and the order in which a text to train on is looked for. No test needs a network:
// downloads are injected or come from file:// URLs.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "train/fetch/download.h"
#include "train/files/sha256.h"
#include "train/text/dataset.h"
#include "train/text/stories/stories.h"
#include "train/text/text_files.h"

namespace {

namespace fs = std::filesystem;
using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

std::int64_t lines_of(const std::string& text) {
  return std::count(text.begin(), text.end(), '\n');
}

}  // namespace

// ---- generated stories -----------------------------------------------------------------------------------

TEST_CASE("stories have the requested length and are a beginning of longer ones") {
  const std::string text = generate_stories(1, 20000);
  CHECK(text.size() == 20000);
  CHECK(generate_stories(1, 20000) == text);
  CHECK(generate_stories(1, 7001) == text.substr(0, 7001));
  CHECK(generate_stories(2, 20000) != text);
  CHECK(generate_stories(1, 0).empty());
  CHECK_THROWS_AS(generate_stories(1, -1), ValueError);
}

TEST_CASE("a megabyte of stories is plain text without repeated stories") {
  const std::string text = generate_stories(1, 1 << 20);
  CHECK(std::all_of(text.begin(), text.end(), [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); }));
  CHECK(text.find_first_of("<>|/{}") == std::string::npos);  // marks of the grammar
  CHECK(!contains(text, "\n\n\n"));
  CHECK(!contains(text, "  "));
  std::set<std::string> stories;
  std::size_t count = 0;
  for (std::size_t begin = 0; begin < text.size(); ++count) {
    const std::size_t end = std::min(text.find("\n\n", begin), text.size());
    stories.insert(text.substr(begin, end - begin));
    begin = end + 2;
  }
  CHECK(count > 300);
  CHECK(stories.size() == count);
}

TEST_CASE("stories are the same on every platform") {
  // The digest of the first megabyte; it changes only when the grammar or the generator does.
  CHECK(sha256_hex(generate_stories(1, 1 << 20)) ==
        "6b8e780bf6cca12fc0f7188166769695d7f42cb21e24c3c0fbcceec40767658f");
}

TEST_CASE("a story comes back to its home after hundreds of characters") {
  const std::string text = generate_stories(1, 1 << 18);
  int stories = 0, returned = 0;
  for (std::size_t begin = 0; text.find("\n\n", begin) != std::string::npos; ++stories) {
    const std::size_t end = text.find("\n\n", begin);
    const std::string story = text.substr(begin, end - begin);
    begin = end + 2;
    for (const char* where :
         {" by the river", " below the hill", " on the north road", " by the marsh", " near the harbour",
          " under the great elm", " on the island", " above the quarry", " at the edge of the wood",
          " behind the church", " beside the orchard", " at the end of the lane", " between the two bridges",
          " past the stone bridge", " next to the market", " across from the well", " at the foot of the dam",
          " among the vineyards"}) {
      const std::size_t first = story.find(where), last = story.rfind(where);
      if (first != std::string::npos && last - first > 600) {
        ++returned;
        break;
      }
    }
  }
  CHECK(stories > 60);
  CHECK(returned == stories);
}

// ---- which text is taken --------------------------------------------------------------------------------

namespace {

// Places in a temporary folder, with a "published" text of our own and a download that counts its calls.
struct FakePlaces {
  TempFolder folder;
  std::string published = "To be or not to be\n";
  int downloads = 0;
  TextPlaces places;

  FakePlaces() {
    places.cache_dir = folder.path("cache");
    places.origin = "https://example.org/input.txt";
    places.sha256 = sha256_hex(published);
    places.fetch = [this](const std::string&, const std::string& path) {
      ++downloads;
      std::ofstream(path) << published;
      return std::string();
    };
  }
  std::string cached() const { return folder.path("cache/tinyshakespeare/input.txt"); }
  std::int64_t cache_entries() const {
    const fs::path parent = fs::path(cached()).parent_path();
    return fs::exists(parent) ? std::distance(fs::directory_iterator(parent), fs::directory_iterator()) : 0;
  }
};

}  // namespace

TEST_CASE("EDDY_DATA_DIR gives tiny Shakespeare or an error that names the missing file") {
  FakePlaces fake;
  fake.places.data_dir = fake.folder.path("data");
  std::ostringstream says;
  const std::string error = error_of<IoError>([&] { resolve_text(says, fake.places); });
  CHECK(contains(error, "data/tinyshakespeare/input.txt"));
  CHECK(contains(error, "EDDY_DATA_DIR"));

  fake.folder.write("data/tinyshakespeare/input.txt", fake.published);
  const TextSource source = resolve_text(says, fake.places);
  CHECK(source.name == "tinyshakespeare");
  CHECK(source.text == fake.published);
  CHECK(contains(says.str(), "EDDY_DATA_DIR"));
  CHECK(!contains(says.str(), "not that of the published file"));
  CHECK(lines_of(says.str()) == 1);
  CHECK(fake.downloads == 0);

  fake.folder.write("data/tinyshakespeare/input.txt", "another text");
  CHECK(resolve_text(says, fake.places).text == "another text");
  CHECK(contains(says.str(), "not that of the published file"));
}

TEST_CASE("tiny Shakespeare is downloaded once and then taken from the cache") {
  FakePlaces fake;
  std::ostringstream first, second;
  const TextSource downloaded = resolve_text(first, fake.places);
  CHECK(downloaded.name == "tinyshakespeare");
  CHECK(downloaded.text == fake.published);
  CHECK(contains(first.str(), "downloaded now"));
  CHECK(lines_of(first.str()) == 1);
  CHECK(fake.cache_entries() == 1);  // nothing partial is left

  fake.places.fetch = [](const std::string&, const std::string&) -> std::string {
    throw IoError("not again");
  };
  CHECK(resolve_text(second, fake.places).text == fake.published);
  CHECK(contains(second.str(), "cached"));
  CHECK(fake.downloads == 1);
}

TEST_CASE("a download with a wrong checksum is said and removed and stories are taken") {
  FakePlaces fake;
  fake.published += "changed";
  std::ostringstream says;
  const TextSource source = resolve_text(says, fake.places);
  CHECK(source.name == "stories");
  CHECK(source.text == generate_stories(1, 1 << 20));
  CHECK(contains(says.str(), "wrong checksum, file removed"));
  CHECK(contains(says.str(), sha256_hex(fake.published)));
  CHECK(lines_of(says.str()) == 2);
  CHECK(fake.cache_entries() == 0);
}

TEST_CASE("a spoiled file in the cache is set aside and fetched again") {
  FakePlaces fake;
  fake.folder.write("cache/tinyshakespeare/input.txt", "spoiled");
  std::ostringstream says;
  CHECK(resolve_text(says, fake.places).text == fake.published);
  CHECK(contains(says.str(), "wrong checksum, file renamed to "));
  CHECK(read_bytes(fake.folder.path("cache/tinyshakespeare/input.txt.aside")) == "spoiled");
  CHECK(fake.downloads == 1);
}

TEST_CASE("without network or cache folder the stories are taken with a reason") {
  FakePlaces fake;
  fake.places.fetch = [](const std::string&, const std::string& path) {
    std::ofstream(path) << "half a te";
    return std::string("offline for the test");
  };
  std::ostringstream says;
  CHECK(resolve_text(says, fake.places).name == "stories");
  CHECK(contains(says.str(), "offline for the test"));
  CHECK(contains(says.str(), "--data.path"));
  CHECK(lines_of(says.str()) == 1);
  CHECK(fake.cache_entries() == 0);

  std::ostringstream blocked;
  fake.places.cache_dir = fake.folder.write("file", "a file where the folder should be");
  CHECK(resolve_text(blocked, fake.places).name == "stories");
  CHECK(contains(blocked.str(), "cannot create the folder"));

  std::ostringstream homeless;
  fake.places.cache_dir.clear();
  CHECK(resolve_text(homeless, fake.places).name == "stories");
  CHECK(contains(homeless.str(), "HOME"));
}

TEST_CASE("a run on stories gets its stories where another text could be had") {
  FakePlaces fake;
  fake.places.data_dir = fake.folder.path("data");
  fake.folder.write("data/tinyshakespeare/input.txt", fake.published);
  const std::string stories = sha256_hex(generate_stories(1, 1 << 20));
  std::ostringstream says;
  CHECK(resolve_text(says, fake.places, stories).name == "stories");
  CHECK(contains(says.str(), "the run was trained on them"));
  CHECK(lines_of(says.str()) == 1);
  CHECK(resolve_text(says, fake.places, fake.places.sha256).name == "tinyshakespeare");
  CHECK(resolve_text(says, fake.places, sha256_hex("another text")).name == "tinyshakespeare");
}

TEST_CASE("curl fetches a file and says why it cannot") {
  const TempFolder folder;
  const std::string from = folder.write("from.txt", "carried over");
  const std::string reason = fetch_with_curl("file://" + from, folder.path("to.txt"));
  if (reason == "curl is not installed") {
    MESSAGE("SKIPPED: curl is not installed");
    return;
  }
  CHECK(reason.empty());
  CHECK(read_text(folder.path("to.txt")) == "carried over");
  CHECK(
      contains(fetch_with_curl("file://" + folder.path("none"), folder.path("to.txt")), "could not be read"));
}

TEST_CASE("a missing curl is a reason and not an error") {
  const TempFolder folder;
  const char* path = std::getenv("PATH");
  const std::string kept = path == nullptr ? "" : path;
  setenv("PATH", folder.path().c_str(), 1);
  const std::string reason = fetch_with_curl("file:///none", folder.path("to.txt"));
  setenv("PATH", kept.c_str(), 1);
  CHECK(reason == "curl is not installed");
}

TEST_CASE("the standard places follow the environment") {
  const std::vector<const char*> names = {"EDDY_DATA_DIR", "EDDY_CACHE_DIR", "XDG_CACHE_HOME", "HOME"};
  std::map<std::string, std::string> kept;
  for (const char* name : names)
    if (const char* value = std::getenv(name)) kept[name] = value;

  setenv("EDDY_DATA_DIR", "/some/data", 1);
  unsetenv("EDDY_CACHE_DIR");
  setenv("XDG_CACHE_HOME", "/some/cache", 1);
  setenv("HOME", "/some/home", 1);
  CHECK(standard_places().data_dir == "/some/data");
  CHECK(standard_places().cache_dir == "/some/cache/eddy");
  setenv("XDG_CACHE_HOME", "relative", 1);
  CHECK(standard_places().cache_dir == "/some/home/.cache/eddy");
  unsetenv("XDG_CACHE_HOME");
  CHECK(standard_places().cache_dir == "/some/home/.cache/eddy");
  unsetenv("HOME");
  CHECK(standard_places().cache_dir.empty());
  setenv("EDDY_CACHE_DIR", "here", 1);
  CHECK(standard_places().cache_dir == "here");
  CHECK(standard_places().sha256.size() == 64);

  for (const char* name : names) {
    unsetenv(name);
    if (kept.count(name) > 0) setenv(name, kept[name].c_str(), 1);
  }
}
