// What the program says on a terminal before work that takes a while.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/support/files.h"
#include "tests/support/terminal.h"
#include "train/text/stories/stories.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

// Runs a line on a terminal, and checks that it says each of `all` before it succeeds.
void check_says(const TempFolder& folder, const std::string& line, const std::vector<std::string>& all) {
  CAPTURE(line);
  OnTerminal program(words_of(line), folder.path());
  for (const std::string& what : all) CHECK_MESSAGE(program.see(what), what, " in ", program.unseen());
  CHECK(program.finish() == 0);
}

}  // namespace

TEST_CASE("program: on a terminal it says what it trains and measures before it does") {
  if (!has_program()) return;
  const TempFolder folder;
  folder.write("text.txt", generate_stories(3, 20000));
  check_says(
      folder, "tokenizer train --data text.txt --vocab 512 --megabytes 3 --out v.model",
      {"tokenizer train: reads the text, and trains 512 tokens on at most 3 MB of it", "text: 1 file, "});
  check_says(folder, "bench step --model.dim 16 --model.heads 2 --model.context 16 --batch 2 --steps 1",
             {"bench step: measures unit_forget 2 x 16 tokens, ", " 1 step\r\n"});
  check_says(folder,
             "bench length --models unit_forget,lstm --dim 32 --shortest 16 --longest 16 --seconds 0.001",
             {"bench length: measures 2 rows, from unit_forget to lstm"});
}

TEST_CASE("program: it says that a large text takes a while to become subwords, and shows how far it is") {
  if (!has_program()) return;
  const TempFolder folder;
  folder.write("text.txt", generate_stories(3, 20000));
  folder.write("large/a.txt", std::string(8'000'001, '\n'));
  folder.write("large/b.txt", "the lamp\n");
  REQUIRE(run_program({words_of("tokenizer train --data text.txt --vocab 512 --out v.model"), folder.path()})
              .status == 0);
  const std::string what = "8.0 MB of text become tokens of v.model, some seconds for each 10 MB";
  check_says(folder, "tokenizer show v.model --data large",
             {"tokenizer show: " + what, "tokenizer show: 100 %"});
  check_says(folder,
             "train --data large --data.tokenizer v.model --run r --dry-run --model.dim 16 --model.heads 2 "
             "--model.context 16 --train.batch 2",
             {"data: " + what});
}
