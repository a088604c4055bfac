// Text as it lies on disks: folders, links, and what is left out.
#include <doctest/doctest.h>
#include <grp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/processes.h"
#include "train/text/text_files.h"

namespace {

namespace fs = std::filesystem;
using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;
using namespace std::string_literals;

// ASCII text in UTF-16, little-endian, without a mark.
std::string widened(const std::string& text) {
  std::string wide;
  for (const char c : text) wide += c + "\0"s;
  return wide;
}

std::vector<std::string> names_of(const TextFiles& texts) {
  std::vector<std::string> names;
  for (const TextFile& file : texts.files) names.push_back(file.name);
  return names;
}

std::string reason_for(const TextFiles& texts, const std::string& name) {
  for (const LeftOut& file : texts.left_out)
    if (file.name == name) return file.why;
  return "";
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("text files: a missing or empty or irregular file says what to do") {
  const TempFolder folder;
  CHECK(contains(error_of<IoError>([&] { read_text(folder.path("none.txt")); }), "check the path"));
  CHECK(contains(error_of<IoError>([&] { read_text(folder.write("empty.txt", "")); }), "is empty"));
  CHECK(
      contains(error_of<IoError>([&] { read_text(folder.write("mark.txt", "\xef\xbb\xbf")); }), "is empty"));
  CHECK(contains(error_of<IoError>([&] { read_text("/dev/null"); }), "not a regular file"));
  REQUIRE(mkfifo(folder.path("pipe").c_str(), 0600) == 0);
  CHECK(contains(error_of<IoError>([&] { read_text(folder.path("pipe")); }), "--data - reads"));
  CHECK(contains(error_of<IoError>([&] { read_text("https://example.org/a.txt"); }), "fetch the file first"));
  CHECK(contains(error_of<IoError>([&] { read_text("a.txt,b.txt"); }), "one after another"));
  CHECK(contains(error_of<IoError>([&] { read_text(folder.path("empty.txt") + "/below"); }), "below"));
  CHECK(contains(error_of<IoError>([&] { read_text("~/no such text.txt"); }), "write the whole path"));
}

TEST_CASE("text files: lines of JSON beside texts are left out with the key that reads them") {
  const TempFolder folder;
  folder.write("a.txt", "text");
  folder.write("b.jsonl", "{\"text\": \"more\"}\n");
  const TextFiles texts = list_text_files(folder.path());
  CHECK(names_of(texts) == Names{"a.txt"});
  CHECK(reason_for(texts, "b.jsonl") == "lines of JSON, which data.json_field reads");
  CHECK_FALSE(texts.other_endings);
}

TEST_CASE("text files: a file without read permission is an io error") {
  if (geteuid() == 0) return;  // root may read everything
  const TempFolder folder;
  const std::string path = folder.write("a.txt", "text");
  REQUIRE(chmod(path.c_str(), 0) == 0);
  CHECK(contains(error_of<IoError>([&] { read_text(path); }), "right to read"));
}

TEST_CASE("text files: a folder gives its texts with those of its subfolders in the order of their names") {
  const TempFolder folder;
  folder.write("b.TXT", "second");
  folder.write("a.txt", "first\n");
  folder.write("c.md", "third");
  folder.write("sub/d.Markdown", "fourth\n");
  folder.write("sub/caf\xe9.text",
               "\xef\xbb\xbf"
               "fifth");
  CHECK(read_text(folder.path()) == "first\nsecond\nthird\nfifth\nfourth\n");
  CHECK(describe_read(list_text_files(folder.path()), 31) == "5 files (31 bytes)");
}

TEST_CASE("text files: what is left out of a folder has a name and a reason") {
  const TempFolder folder;
  folder.write("a.txt", "text");
  folder.write("b.txt", "\xff\xfe" + widened("b"));
  folder.write("paper.pdf", "%PDF-1.7");
  folder.write("book.docx", "PK\3\4");
  folder.write("empty.txt", "");
  folder.write("wide.txt", widened("a text in UTF-16"));
  folder.write("table.csv", "1,2");
  folder.write(".git/config.txt", "hidden");
  folder.write("runs/a/config.json", "{}");
  folder.write("runs/a/checkpoints/step-1/note.txt", "of a run");
  fs::create_symlink("nowhere", folder.path("gone.txt"));
  const TextFiles texts = list_text_files(folder.path());
  CHECK(names_of(texts) == Names{"a.txt", "b.txt"});
  CHECK(reason_for(texts, "paper.pdf") == "PDF");
  CHECK(reason_for(texts, "book.docx") == "DOCX");
  CHECK(reason_for(texts, "empty.txt") == "empty");
  CHECK(reason_for(texts, "wide.txt") == "UTF-16LE without a byte order mark");
  CHECK(reason_for(texts, "table.csv") == "not .txt or .md");
  CHECK(reason_for(texts, ".git/") == "hidden");
  CHECK(reason_for(texts, "runs/a/") == "a run");
  CHECK(reason_for(texts, "gone.txt") == "a link to nothing");
  CHECK(describe_read(texts, 20) == "10 files: 2 read (20 bytes, 1 from UTF-16LE)");
  CHECK(contains(describe_left_out(texts), ", left out: .git/ (hidden), gone.txt (a link to nothing), "));
}

TEST_CASE("text files: what is no text by its first bytes is refused by name, also as the one file") {
  const TempFolder folder;
  const std::vector<std::pair<std::string, std::string>> kinds = {
      {"PDF", folder.write("a.txt", "%PDF-1.7")},
      {"ZIP", folder.write("b.txt", "PK\3\4")},
      {"DOCX", folder.write("c.DOCX", "PK\3\4")},
      {"EPUB", folder.write("d.epub", "PK\3\4")},
      {"gzip", folder.write("e", "\x1f\x8b\x08")},
      {"PNG image", folder.write("f.png", "\x89PNG\r\n\x1a\n")},
      {"JPEG image", folder.write("g.jpg", "\xff\xd8\xff\xe0")},
      {"GIF image", folder.write("h.gif", "GIF89a")},
      {"WebP image", folder.write("i.webp", "RIFF\1\0\0\0WEBP"s)},
      {"BMP image", folder.write("j.bmp", "BM\1\0\0\0\0\0\0\0"s)}};
  for (const auto& [kind, path] : kinds) {
    const std::string text = error_of<FormatError>([&, &file = path] { list_text_files(file); });
    CHECK_MESSAGE(contains(text, path + "' is no text but: " + kind + " ("), text);
  }
  folder.write("k.txt", "BM, a text");
  const TextFiles texts = list_text_files(folder.path());
  CHECK(names_of(texts) == Names{"k.txt"});
  for (const auto& [kind, path] : kinds) CHECK(reason_for(texts, fs::path(path).filename()) == kind);
}

TEST_CASE("text files: a folder without texts by name gives those that look like text") {
  const TempFolder folder;
  folder.write("b.rst", "second\n");
  folder.write("a", "first");
  folder.write("c.bin", "bin\0ary"s);
  const TextFiles texts = list_text_files(folder.path());
  CHECK(text_of(texts) == "first\nsecond\n");
  CHECK(reason_for(texts, "c.bin") == "binary");
}

TEST_CASE("text files: links are followed and no folder is read twice") {
  const TempFolder folder;
  folder.write("out/far.txt", "far");
  folder.write("data/z/real.txt", "real");
  fs::create_directory_symlink("../out", folder.path("data/link"));
  fs::create_directory_symlink("z", folder.path("data/again"));
  fs::create_directory_symlink("..", folder.path("data/z/up"));
  fs::create_symlink("z/real.txt", folder.path("data/same.txt"));
  const TextFiles texts = list_text_files(folder.path("data"));
  CHECK(names_of(texts) == Names{"link/far.txt", "same.txt", "z/real.txt"});
  CHECK(reason_for(texts, "again/") == "the folder z again");
  CHECK(reason_for(texts, "z/up/") == "the folder . again");
}

TEST_CASE("text files: a folder without text says what to do") {
  const TempFolder folder;
  CHECK(contains(error_of<IoError>([&] { read_text(folder.path()); }), "no text in the folder"));
  folder.write("c.bin", std::string("\0", 1));
  folder.write("a.txt", "");
  CHECK(contains(error_of<IoError>([&] { read_text(folder.path()); }),
                 "left out: a.txt (empty), c.bin (binary)"));
}

TEST_CASE("text files: with a folder as a document the files of each subfolder are joined by their names") {
  const TempFolder folder;
  folder.write("r/one/README.md", "read me");
  folder.write("r/one/src/b.py", "b = 2\n");
  folder.write("r/one/src/a.py", "a = 1");
  folder.write("r/one/.git/HEAD", "hidden");
  folder.write("r/one/logo.png", "\x89PNG\r\n");
  folder.write("r/two/main.c", "int x;\n");
  folder.write("r/beside.py", "alone");
  const TextFiles texts = list_text_files(folder.path("r"), DocumentUnit::folder);
  REQUIRE(names_of(texts) == Names{"beside.py", "one", "two"});
  CHECK(text_of(texts.files[0]) == "alone");
  CHECK(text_of(texts.files[1]) == "read me\na = 1\nb = 2\n");  // as code needs it, not only README.md
  CHECK(text_of(texts.files[2]) == "int x;\n");
  CHECK(reason_for(texts, "one/logo.png") == "PNG image");
  CHECK(reason_for(texts, "one/.git/") == "hidden");
  std::vector<std::string> single;
  for (const TextFile& file : single_files(texts.files)) single.push_back(file.name);
  CHECK(single == Names{"beside.py", "one/README.md", "one/src/a.py", "one/src/b.py", "two/main.c"});
  CHECK(contains(describe_read(texts, 33), "3 documents of 7 files: 5 read"));
  CHECK(names_of(list_text_files(folder.path("r"))) == Names{"one/README.md"});
}

TEST_CASE("text files: a file that is left out for its ending ends nothing when it cannot be read") {
  if (geteuid() == 0) return;  // root may read everything
  const TempFolder folder;
  folder.write("a.txt", "text");
  REQUIRE(chmod(folder.write("key.pem", "secret").c_str(), 0) == 0);
  const TextFiles texts = list_text_files(folder.path());
  CHECK(names_of(texts) == Names{"a.txt"});
  CHECK(reason_for(texts, "key.pem") == "cannot be read");
  REQUIRE(chmod(folder.write("b.txt", "text").c_str(), 0) == 0);
  CHECK(contains(error_of<IoError>([&] { list_text_files(folder.path()); }), "b.txt"));
}

TEST_CASE(
    "text files: files that are to be read and cannot be are refused together, named by a pattern too") {
  const TempFolder folder;
  for (const char* const name : {"a.txt", "b.txt", "c.txt"}) folder.write(name, "text");
  for (const char* const name : {"b.txt", "c.txt"}) REQUIRE(chmod(folder.path(name).c_str(), 0) == 0);
  REQUIRE(chmod(folder.path().c_str(), 0755) == 0);
  // In a process of its own, since root may read everything.
  const std::string told = report_of([&] {
    if (geteuid() == 0 && (setgroups(0, nullptr) != 0 || setgid(65534) != 0 || setuid(65534) != 0)) return;
    const DataPaths named(
        ConfigField::Texts{folder.path("a.txt"), folder.path("b.txt"), folder.path("c.txt")});
    for (const DataPaths& paths : {named, DataPaths(folder.path())})
      std::fprintf(stderr, "%s\n", error_of<IoError>([&] { list_text_files(paths); }).c_str());
    _exit(1);
  });
  const std::string both = "2 of 3 files cannot be read: '" + folder.path("b.txt") +
                           "': Permission denied, '" + folder.path("c.txt") +
                           "': Permission denied (give yourself the right to read them, or ";
  CHECK_MESSAGE(contains(told, both + "name the others alone)"), told);
  CHECK_MESSAGE(contains(told, both + "move them elsewhere)"), told);
}

TEST_CASE("text files: texts that are left out for their endings alone are noticed") {
  const TempFolder folder;
  folder.write("README.md", "read me");
  folder.write("logo.png", "\x89PNG\r\n");
  CHECK(!list_text_files(folder.path()).other_endings);
  folder.write("src/a.py", "a = 1\n");
  CHECK(list_text_files(folder.path()).other_endings);
  CHECK(!list_text_files(folder.path(), DocumentUnit::folder).other_endings);
}

TEST_CASE("text files: lines of JSON are among the texts of a folder where their field is named") {
  const TempFolder folder;
  folder.write("a.txt", "text");
  folder.write("b.jsonl", "{\"text\": \"b\"}\n");
  CHECK(names_of(list_text_files(folder.path())) == Names{"a.txt"});
  CHECK(names_of(list_text_files(folder.path(), DocumentUnit::file, true)) == Names{"a.txt", "b.jsonl"});
}

TEST_CASE("text files: of several paths those that are no text are left out as of a folder") {
  const TempFolder folder;
  const DataPaths paths({folder.write("a.txt", "text"), folder.write("b.txt", ""),
                         folder.write("c.txt", "%PDF-1.7"), folder.path("a.txt")});
  const TextFiles texts = list_text_files(paths);
  CHECK(names_of(texts) == Names{folder.path("a.txt")});
  CHECK(reason_for(texts, folder.path("b.txt")) == "empty");
  CHECK(reason_for(texts, folder.path("c.txt")) == "PDF");
  CHECK(reason_for(texts, folder.path("a.txt")) == "named twice");
}
