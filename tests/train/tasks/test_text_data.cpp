// Which text a run gets, and gets again: the files that it was trained on, wherever they lie by now.
#include <doctest/doctest.h>

#include <filesystem>
#include <initializer_list>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "ops/core/warnings.h"
#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/tasks.h"
#include "tests/train/tasks/text_arguments.h"
#include "train/tasks/text_data.h"
#include "train/text/stories/stories.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;
namespace fs = std::filesystem;

// The arguments of a run that goes on with what `data` was read from.
TaskArguments again(const std::string& path, const TextData& data, const std::string& order = "windows") {
  TaskArguments arguments = text_arguments(path, order);
  arguments.expected_sha256 = data.sha256;
  arguments.expected_phases = data.source_phases;
  return arguments;
}

std::string text_of(const TextData& data) {
  return data.tokenizer->decode(data.tokens);
}

}  // namespace

TEST_CASE("text data: one line says what was read and what was left out") {
  const TempFolder folder;
  folder.write("d/a.txt", "first");
  folder.write("d/B.TXT", "second");
  folder.write("d/paper.pdf", "%PDF");
  for (const std::string order : {"windows", "stream", "documents"}) {
    TaskArguments arguments = text_arguments(folder.path("d"), order);
    std::ostringstream says;
    arguments.messages = &says;
    CHECK(text_of(read_text_of(std::move(arguments))) ==
          (order == "windows" ? "second\nfirst\n" : "secondfirst"));
    CHECK(contains(says.str(), "3 files: 2 read (" + std::string(order == "windows" ? "13" : "11") +
                                   " bytes, UTF-8), left out: paper.pdf (PDF)\n"));
  }
}

TEST_CASE("text data: all files that are not UTF-8 are named at once with the commands that convert them") {
  const TempFolder folder;
  folder.write("d/a.txt", "good");
  folder.write("d/b.txt", "caf\xe9 cr\xe8me");
  folder.write("d/it's.txt", "na\xefve");
  folder.write("d/c.txt", "\xcf\xf0\xe8\xe2\xe5\xf2, \xec\xe8\xf0");
  for (const std::string order : {"windows", "stream", "documents"}) {
    CAPTURE(order);
    TaskArguments arguments = text_arguments(folder.path("d"), order);
    arguments.config.data.tokenizer = "char";
    const std::string text = error_of<FormatError>([&] { read_text_of(std::move(arguments)); });
    for (const char* part :
         {"data: 3 of 4 files are not UTF-8: ", "b.txt (byte 0xe9 at offset 3)",
          "c.txt (byte 0xcf at offset 0)", "to convert it from WINDOWS-1251: iconv -f WINDOWS-1251 -t UTF-8 ",
          "to convert them from WINDOWS-1252: for f in ", "it'\\''s.txt'; do iconv -f WINDOWS-1252 -t UTF-8"})
      CHECK_MESSAGE(contains(text, part), text);
    // Other tokenizers take any bytes, and the line does not call them UTF-8.
    arguments = text_arguments(folder.path("d"), order);
    std::ostringstream says;
    arguments.messages = &says;
    read_text_of(std::move(arguments));
    CHECK_MESSAGE(!contains(says.str(), "UTF-8"), says.str());
  }
}

TEST_CASE("text data: the conversion of an East Asian text names its encoding") {
  const TempFolder folder;
  // The first article of the Universal Declaration of Human Rights.
  for (const auto& [encoding, text] : std::initializer_list<std::pair<const char*, const char*>>{
           {"GB18030",
            "\310\313\310\313\311\372\266\370\327\324\323\311\243\254\324\332\327\360\321\317\272"
            "\315\310\250\300\373\311\317\322\273\302\311\306\275\265\310\241\243"},
           {"BIG5",
            "\244H\244H\245\315\246\323\246\333\245\321\241A\246b\264L\304Y\251M\305v\247Q\244W"
            "\244@\253\337\245\255\265\245\241C"},
           {"EUC-JP",
            "\244\271\244\331\244\306\244\316\277\315\264\326\244\317\241\242\300\270\244\336\244"
            "\354\244\312\244\254\244\351\244\313\244\267\244\306\274\253\315\263\244\307\244\242"
            "\244\352"},
           {"SHIFT_JIS",
            "\202\267\202\327\202\304\202\314\220l\212\324\202\315\201A\220\266\202\334\202\352"
            "\202\310\202\252\202\347\202\311\202\265\202\304\216\251\227R\202\305\202\240\202"
            "\350"},
           {"EUC-KR",
            "\270\360\265\347 \300\316\260\243\300\272 \305\302\276\356\263\257 \266\247\272\316"
            "\305\315 \300\332\300\257\267\316\277\354\270\347"},
           {"WINDOWS-1251",
            "\302\361\345 \353\376\344\350 \360\356\346\344\340\376\362\361\377 \361\342\356\341"
            "\356\344\355\373\354\350 \350 \360\340\342\355\373\354\350"}}) {
    CAPTURE(encoding);
    TaskArguments arguments = text_arguments(folder.write("a.txt", text), "windows");
    arguments.config.data.tokenizer = "char";
    const std::string why = error_of<FormatError>([&] { read_text_of(std::move(arguments)); });
    CHECK_MESSAGE(contains(why, std::string("to convert it from ") + encoding + ":"), why);
  }
}

TEST_CASE("text data: a text that is UTF-8 but for a few bytes is not converted from another encoding") {
  const TempFolder folder;
  const auto refused = [&](const std::string& text) {
    TaskArguments arguments = text_arguments(folder.write("a.txt", text), "windows");
    arguments.config.data.tokenizer = "char";
    return error_of<FormatError>([&] { read_text_of(std::move(arguments)); });
  };
  std::string cafe;
  for (int i = 0; i < 20; ++i) cafe += "caf\xc3\xa9 ";
  std::string told = refused(cafe + "cr\xe8me " + cafe);
  CHECK_MESSAGE(contains(told, "byte 0xe8 at offset 122, in a text that is UTF-8 otherwise"), told);
  CHECK_MESSAGE(contains(told, "grep -naxv '.*' "), told);
  CHECK_MESSAGE(!contains(told, "iconv"), told);
  told = refused(cafe + "caf\xc3");  // as head and split leave it
  CHECK_MESSAGE(contains(told, "it ends within a character, at byte 123"), told);
  CHECK_MESSAGE(contains(told, "head -c 123 "), told);
  CHECK_MESSAGE(
      contains(refused("\xcb\xcf\xd4 \xd3\xc9\xc4\xc9\xd4 \xce\xc1 \xcb\xcf\xd7\xd2\xc5"), "from KOI8-R"),
      told);
}

TEST_CASE("text data: a binary file is called so and no conversion of it is named") {
  const TempFolder folder;
  folder.write("program.bin", std::string("\x7f"
                                          "XLF\0\xcf\xfa",
                                          7));
  TaskArguments arguments = text_arguments(folder.path("program.bin"), "windows");
  arguments.config.data.tokenizer = "char";
  const std::string text = error_of<FormatError>([&] { read_text_of(std::move(arguments)); });
  CHECK_MESSAGE(contains(text, "bytes of zero, the first at offset 4"), text);
  CHECK_MESSAGE(!contains(text, "iconv"), text);
  CHECK_MESSAGE(!contains(text, "tokenizer byte"), text);
  // Nor of one without such bytes, and never the tokenizer byte for it among others.
  std::string packed;
  for (int i = 0; i < 400; ++i) packed += static_cast<char>(1 + i * i * 7919 % 255);
  folder.write("d/packed.txt", packed);
  folder.write("d/latin.txt", "caf\xe9 au lait");
  arguments = text_arguments(folder.path("d"), "windows");
  arguments.config.data.tokenizer = "char";
  const std::string both = error_of<FormatError>([&] { read_text_of(std::move(arguments)); });
  CHECK_MESSAGE(contains(both, "of its 400 bytes are control characters"), both);
  CHECK_MESSAGE(contains(both, "iconv"), both);
  CHECK_MESSAGE(!contains(both, "tokenizer byte"), both);
}

TEST_CASE(
    "text data: a folder with a test part and none to validate on says that the test part is trained on") {
  const TempFolder folder;
  folder.write("d/train/a.txt", "first");
  folder.write("d/test/b.txt", "second");
  TaskArguments arguments = text_arguments(folder.path("d"), "windows");
  std::ostringstream says;
  arguments.messages = &says;
  read_text_of(std::move(arguments));
  CHECK_MESSAGE(contains(says.str(), "test/ as a part of it"), says.str());
}

TEST_CASE(
    "text data: a stream leaves out files that are no longer than a segment, and one file is one text") {
  const TempFolder folder;
  folder.write("d/a.txt", "first");
  folder.write("d/b.txt", "second");
  folder.write("d/c.txt", "ab");
  TaskArguments arguments = text_arguments(folder.path("d"), "stream");
  std::ostringstream says;
  arguments.messages = &says;
  const TextData data = read_text_of(std::move(arguments));
  CHECK(data.files == std::vector<std::string>{"a.txt", "b.txt"});
  CHECK(
      contains(says.str(),
               "3 files: 2 read (13 bytes, UTF-8), left out: c.txt (2 tokens, and a segment of 2 needs 3)"));
  CHECK(read_text_of(again(folder.path("d"), data, "stream")).files == data.files);
  folder.write("short/a.txt", "ab");
  folder.write("short/b.txt", "cd");
  CHECK(contains(error_of<ValueError>([&] { read_text_of(text_arguments(folder.path("short"), "stream")); }),
                 "no text in "));
  folder.write("one/a.txt", "first");
  CHECK(read_text_of(text_arguments(folder.path("one"), "stream")).files.empty());
}

TEST_CASE("text data: a run that goes on leaves out what came into its folder since") {
  const TempFolder folder;
  folder.write("d/b.txt", "first");
  for (const std::string order : {"windows", "stream", "documents"}) {
    fs::remove(folder.path("d/a.md"));
    const TextData before = read_text_of(text_arguments(folder.path("d"), order));
    folder.write("d/a.md", "new");
    TaskArguments arguments = again(folder.path("d"), before, order);
    std::ostringstream says;
    arguments.messages = &says;
    CHECK(text_of(read_text_of(std::move(arguments))) == text_of(before));
    CHECK(contains(says.str(), "left out: a.md (new since the run began)"));
  }
}

TEST_CASE("text data: a run that goes on keeps its splits when files came into them") {
  const TempFolder folder;
  folder.write("d/train/b.txt", "train");
  folder.write("d/valid/b.txt", "valid");
  const TextData before = read_text_of(text_arguments(folder.path("d"), "documents"));
  for (const char* split : {"train/a.txt", "valid/a.txt", "valid/c.txt"})
    folder.write(std::string("d/") + split, "new");
  const TextData after = read_text_of(again(folder.path("d"), before, "documents"));
  CHECK(after.files == before.files);
  CHECK(after.train_parts == 1);
  CHECK(after.valid_parts == 1);
}

TEST_CASE("text data: a file that a run was trained on and that is gone or changed is named") {
  const TempFolder folder;
  folder.write("d/a.txt", "first");
  folder.write("d/b.txt", "second");
  const TextData before = read_text_of(text_arguments(folder.path("d")));
  folder.write("d/b.txt", "changed");
  CHECK(contains(error_of<ConfigError>([&] { read_text_of(again(folder.path("d"), before)); }),
                 "is not the text that the run was trained on: b.txt is changed (put back"));
  fs::remove(folder.path("d/b.txt"));
  CHECK(contains(error_of<ConfigError>([&] { read_text_of(again(folder.path("d"), before)); }),
                 "is not the text that the run was trained on: b.txt is gone (put back"));
}

TEST_CASE("text data: a relative path is found where the run was begun") {
  const TempFolder folder;
  folder.write("wrong/texts/x.txt", "another");
  folder.write("right/texts/x.txt", "the text");
  const TextData before = read_text_of(text_arguments(folder.path("right/texts/x.txt")));
  TaskArguments arguments = again("texts/x.txt", before);
  arguments.folders = {folder.path("none"), folder.path("wrong"), folder.path("right")};
  CHECK(text_of(read_text_of(std::move(arguments))) == "the text");
  arguments = again("texts/y.txt", before);
  arguments.folders = {folder.path("right")};
  CHECK(contains(error_of<IoError>([&] { read_text_of(std::move(arguments)); }),
                 "'texts/y.txt', neither here nor in " + folder.path("right")));
}

TEST_CASE("text data: where nothing is evaluated a short text needs no validation part") {
  const TempFolder folder;
  folder.write("d/a.txt", "sixteen letters.");
  for (const std::string order : {"windows", "stream", "documents"}) {
    CAPTURE(order);
    RunConfig config = text_arguments(folder.path("d"), order).config;
    config.model.mask_token_zero = false;
    config.train.sequence = 15;
    config.train.batch = 1;
    config.data.split = 1;
    config.train.eval_every = 1;
    CHECK_THROWS_AS(task_of(config), ValueError);
    config.train.eval_every = 0;
    CHECK(task_of(config)->next(0, 0).scored > 0);
    config.data.path = folder.path("d/a.txt");
    CHECK(task_of(config)->next(0, 0).scored > 0);
    config.train.sequence = 17;
    if (order != "documents") CHECK_THROWS_AS(task_of(config), ValueError);
    config.data.path = folder.path("d");
  }
}

TEST_CASE("text data: repositories are documents, in splits too, and known again by what they hold") {
  const TempFolder folder;
  folder.write("r/train/one/a.py", "a");
  folder.write("r/train/one/b.py", "b");
  folder.write("r/train/two/c.py", "c");
  folder.write("r/valid/three/d.py", "d");
  folder.write("r/test/four/e.py", "e");
  folder.write("r/test/four/f.py", "f");
  const auto arguments = [&](bool training) {
    TaskArguments made = text_arguments(folder.path("r"), "documents");
    made.config.data.document = "folder";
    made.training = training;
    return made;
  };
  const TextData data = read_text_of(arguments(true));
  CHECK(data.files == std::vector<std::string>{"train/one", "train/two", "valid/three"});
  CHECK(data.train_parts == 2);
  CHECK(data.tokenizer->decode(data.part(0)) == "a\nb\n");
  CHECK(data.tokenizer->decode(data.part(2)) == "d\n");
  const TextData tested = read_text_of(arguments(false));
  CHECK(tested.files.back() == "test/four");
  CHECK(tested.tokenizer->decode(tested.part(3)) == "e\nf\n");

  const auto known = [&] {
    TaskArguments made = arguments(true);
    made.expected_sha256 = data.sha256;
    made.expected_phases = data.source_phases;
    return made;
  };
  folder.write("r/train/five/g.py", "g");
  CHECK(read_text_of(known()).sha256 == data.sha256);  // what is new is left out
  folder.write("r/train/two/h.py", "h");
  CHECK(contains(error_of<ConfigError>([&] { read_text_of(known()); }), "train/two is changed"));
}

TEST_CASE("text data: a file of a repository that is not UTF-8 is named, not its folder") {
  const TempFolder folder;
  folder.write("r/one/a.py", "good");
  folder.write("r/one/b.py", "caf\xe9");
  TaskArguments arguments = text_arguments(folder.path("r"), "documents");
  arguments.config.data.document = "folder";
  arguments.config.data.tokenizer = "char";
  CHECK(contains(error_of<FormatError>([&] { read_text_of(std::move(arguments)); }), "one/b.py"));
}
