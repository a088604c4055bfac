// What is wrong in a table of one's own is refused with its place, before any row is trained.
#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <string_view>

#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/processes.h"
#include "tests/support/threads.h"
#include "train/app/reproduce/reproduce.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::app;
using namespace eddy::test;

constexpr const char* kTable = R"(title = "one of each"
columns = [
  {title = "loss", key = "loss"},
  {title = "size", key = "parameters", decimals = 0},
]
[model]
params = 3000
heads = 2
context = 8
[data]
name = "parity"
[train]
steps = 2
batch = 2
[[row]]
name = "unit"
title = "a unit recurrence"
model = {model = "unit_forget"}
[[row]]
name = "attention"
title = "attention"
model = {model = "regular", layers = 2}
published = [0.5]
)";

struct Mistake {
  const char *from, *to;  // in the table
  const char* told;       // a part of the error
};

void check_refused(const Mistake& mistake) {
  CAPTURE(mistake.to);
  const TempFolder folder;
  std::string table = kTable;
  const std::string from = mistake.from;
  REQUIRE(table.find(from) != std::string::npos);
  table.replace(table.find(from), from.size(), mistake.to);
  ReproduceOptions options;
  options.table = folder.write("my.toml", table);
  options.runs = folder.path("runs");
  const std::string told = error_of<ConfigError>([&] { reproduce(options, [](std::string_view) {}); });
  CHECK_MESSAGE(contains(told, mistake.told), told);
  CHECK_MESSAGE(contains(told, "my.toml:"), told);
  CHECK_FALSE(std::filesystem::exists(options.runs));
}

}  // namespace

TEST_CASE("names that a table of one's own cannot have are refused with their place") {
  const OneThread one_thread;
  for (
      const Mistake& mistake :
      {Mistake{"\"loss\"}", "\"los\"}", "my.toml:3:20: nothing measures the column \"los\" (nearest: loss;"},
       {"\"loss\"}", "\"last_256\"}", "my.toml:3:20: nothing measures"},
       {"\"loss\"}", "\"state_gain\"}", "my.toml:3:20: no row measures state_gain"},
       {"[data]", "[dta]", "my.toml:10:2: unknown key \"dta\" (nearest: data;"},
       {"steps = 2", "step = 2", "my.toml:13:1: unknown key \"step\""},
       {"layers = 2", "layer = 2", "my.toml:22:29: unknown key \"layer\""},
       {"\"unit_forget\"", "\"unit_forgt\"", "my.toml:18:10: model.model is \"unit_forgt\""},
       {"model = {model = \"unit_forget\"}", "preset = \"shakespear_unit\"", "my.toml:18:1:"},
       {"\"attention\"\ntitle", "\"unit\"\ntitle", "my.toml:15:1: the name unit stands twice"},
       {"published = [0.5]", "small = {trian = {steps = 3}}",
        "my.toml:23:10: unknown key \"trian\" in [row.small] (nearest: train;"},
       {"published = [0.5]", "weights_of = \"unit\"", "cannot take the weights of unit, which has no"},
       {"published = [0.5]", "weights_of = \"unt\"",
        "my.toml:23:1: weights_of is \"unt\", which is no row that is trained (nearest: unit; rows without"},
       {"published = [0.5]", "weights_of = \"attention\"", "in a ring, attention of attention (leave"},
       {"unit_forget\"}\n",
        "unit_forget\"}\nweights_of = \"attention\"\n[[row]]\nname = \"ring\"\ntitle = "
        "\"ring\"\nweights_of = \"unit\"\n",
        "my.toml:23:1: weights_of is \"unit\", which is no row that is trained: ring of unit, unit of attention (rows "
        "without weights_of: attention)"},
       {"unit_forget\"}\n[[row]]\nname = \"attention\"",
        "unit_forget\"}\nweights_of = \"attention\"\n[[row]]\nweights_of = \"unit\"\nname = \"attention\"",
        "my.toml:19:1: weights_of is \"attention\", which is no row that is trained: in a ring, unit of "
        "attention, attention of unit (leave weights_of out"},
       {"published = [0.5]", "tables = [\"staircase/table1\"]",
        "my.toml:23:1: row.tables is [\"staircase/table1\"], which it cannot be (nearest: staircase/table-1;"},
       {"published = [0.5]", "tables = [\"staircase/table-1\"]", "my.toml:23:1: the table begins from none"},
       {"title = \"attention\"", "title = \"{stps} steps\"",
        "my.toml:21:1: \"{stps} steps\" has \"stps\" in braces (nearest: steps; one of chunk,"},
       {"title = \"attention\"", "title = \"{steps:.1000000000f}\"", "my.toml:21:1: "},
       {"title = \"attention\"", "title = \"}\"", "a brace itself is written twice"},
       {"title = \"one", "notes = [{text = \"a\", when = [\"mde\"]}]\ntitle = \"one",
        "notes.when is [\"mde\"], which it cannot be (nearest: made;"},
       {"title = \"one", "text = {entry = \"a\", needs = \"b\", kind = \"plan\"}\ntitle = \"one",
        "text.kind is \"plan\", which it cannot be (nearest: plain; one of plain, repeat, documents, file)"},
       {"model = {model = \"unit_forget\"}\n[[row]]", "reference = true\n[[row]]\nreference = true",
        "my.toml:20:1: a second row has reference = true, after unit"},
       {"title = \"one", "chart = \"los\"\ntitle = \"one",
        "my.toml:1:1: nothing measures the chart \"los\""}})
    check_refused(mistake);
}

TEST_CASE("what a table of one's own cannot tune, and no budget, is refused with its place") {
  const OneThread one_thread;
  for (const Mistake& mistake :
       {Mistake{"title = \"one", "tune.train.learning_rat = [1]\ntitle = \"one", "(nearest: learning_rate"},
        {"title = \"one", "tune.train.learning_rate = 1e-3\ntitle = \"one", "(a list of the values to try)"},
        {"title = \"one", "tune.train.learning_rate = [1, 1]\ntitle = \"one", "has 1 twice"},
        {"title = \"one", "tune.train.optimizer = [\"adan\"]\ntitle = \"one", "train.optimizer is \"adan\""},
        {"title = \"one", "tune.train.steps = [1, 2]\ntitle = \"one", "train.steps cannot be tuned"},
        {"title = \"one", "tune.train.threads = [1, 2]\ntitle = \"one", "it changes no result"},
        {"title = \"one", "tune = {by = \"los\", train = {learning_rate = [1, 2]}}\ntitle = \"one",
         "nothing measures the number to tune by \"los\""},
        {"title = \"one", "tune.by = \"loss\"\ntitle = \"one", "tune has no key"},
        {"title = \"one", "tune.train.batch = [1, 2]\nbudget = {equal = \"tokens\"}\ntitle = \"one",
         "changes what a step costs"},
        {"title = \"one", "budget = {equal = \"steps\"}\ntitle = \"one", "one of tokens, operations, time"},
        {"title = \"one", "budget = {equal = \"tokens\", minutes = {small = 2}}\ntitle = \"one",
         "budget.minutes is for equal = \"time\""},
        {"title = \"one", "budget = {equal = \"tokens\", of = \"unt\"}\ntitle = \"one",
         "budget.of is \"unt\", which is no row"},
        {"title = \"one", "seeds = 0\ntitle = \"one", "seeds is 0"}})
    check_refused(mistake);
}

TEST_CASE("a word of a table of one's own that nothing reads is refused with its place") {
  const OneThread one_thread;
  std::string many = "title = \"t\"\ntune.train.learning_rate = [1";
  for (int i = 2; i <= 1025; ++i) many += ", " + std::to_string(i);
  many += "]\n";
  for (const Mistake& mistake :
       {Mistake{"layers = 2", "layers = 2, chunk = 4",
                "my.toml:22:41: the row attention does not read model.chunk"},
        {"heads = 2", "heads = 2\nwindow = 4", "my.toml:9:1: no row reads model.window"},
        {"name = \"parity\"", "name = \"parity\"\npairs = 4", "my.toml:12:1: no row reads data.pairs"},
        {"name = \"parity\"", "name = \"parity\"\npath = \"words.txt\"", "data.path"},
        {"title = \"one", "tune.model.window = [4, 8]\ntitle = \"one", "no row reads model.window"},
        {"published = [0.5]", "tune = {}", "my.toml:23:1: unknown key \"tune\" in [row]"},
        {"title = \"one of each\"", many.c_str(), "tune has more than 1024 combinations"},
        {"title = \"one", "folder = \"f\"\ntitle = \"one", "my.toml:1:1: folder says nothing here"},
        {"title = \"one", "windows = {small = 4}\ntitle = \"one", "my.toml:1:1: windows says nothing here"},
        {"title = \"one", "lengths = {small = [8]}\ntitle = \"one", "which generated = true says"},
        {"title = \"one", "pieces = {small = 512}\ntitle = \"one", "my.toml:1:1: pieces says nothing here"},
        {"published = [0.5]", "pieces = {small = 512}",
         "my.toml:23:1: pieces says nothing here: its tokenizer"},
        {"published = [0.5]", "longest = 512", "my.toml:23:1: longest says nothing here"},
        {"title = \"one", "chart_factor = 2\ntitle = \"one", "my.toml:1:1: chart_factor says nothing here"},
        {"title = \"one", "budget = {equal = \"time\", minutes = {tiny = 2}}\ntitle = \"one",
         "budget.minutes has none at scale small"},
        {"title = \"one", "budget = {equal = \"time\", minutes = {small = 1e300}}\ntitle = \"one",
         "budget.minutes.small is 1e+300, which is out of range"},
        {"\"attention\"\ntitle", "\"tune\"\ntitle", "as a file or folder of every table"}})
    check_refused(mistake);
  const TempFolder folder;
  ReproduceOptions options;
  options.table = folder.write("my.toml", kTable);
  options.data = folder.write("words.txt", "a few words");
  CHECK(contains(error_of<ConfigError>([&] { plan_table(options); }), "no row of"));
  options.data.clear();
  std::string both = kTable;
  both.insert(0, "tune.train.learning_rate = [1e-3, 1e-2]\n");
  both += "train = {learning_rate = 1}\n";
  options.table = folder.write("my.toml", both);
  const std::string told = error_of<ConfigError>([&] { plan_table(options); });
  CHECK_MESSAGE(contains(told, "my.toml:25:10: train.learning_rate is lost"), told);
}

TEST_CASE("a row whose recurrence is off says that it is meant") {
  const OneThread one_thread;
  check_refused({"model = {model = \"unit_forget\"}", "model = {model = \"block_forget\", block = 8}",
                 "its recurrence is off: a block has 8 tokens, as many as a call"});
  const TempFolder folder;
  std::string table = kTable;
  const std::string from = "model = {model = \"unit_forget\"}";
  table.replace(table.find(from), from.size(),
                "recurrence_off = true\nmodel = {model = \"block_forget\", block = 8}");
  ReproduceOptions options;
  options.table = folder.write("my.toml", table);
  options.dry_run = true;
  std::string told;
  reproduce(options, [&](std::string_view text) { told += text; });
  CHECK(contains(told, "its recurrence is off"));
}

TEST_CASE("a row's key that the table it begins from sets again at the scale is refused with both places") {
  const TempFolder folder;
  ReproduceOptions options;
  options.table = folder.write("my.toml", R"(base = {table = "families/state"}
title = "mine"
[[row]]
name = "unit"
model = {model = "unit_forget"}
train = {steps = 7}
)");
  options.runs = folder.path("runs");
  const std::string told = error_of<ConfigError>([&] { plan_table(options); });
  CHECK_MESSAGE(contains(told, "my.toml:6:"), told);
  CHECK_MESSAGE(contains(told, "train.steps is lost, since families/state:"), told);
}

TEST_CASE("values that a table of one's own cannot have are refused with what they should be") {
  const OneThread one_thread;
  for (
      const Mistake& mistake :
      {Mistake{"\"one of each\"", "3", "my.toml:1:1: title is 3, which has the wrong type (a text)"},
       {"decimals = 0", "decimals = \"0\"",
        "decimals is \"0\", which has the wrong type: write 0 (a whole number, 0 to 12)"},
       {"decimals = 0", "decimals = -1", "decimals is -1"},
       {"decimals = 0", "factor = 0", "factor is 0 (a number other than 0)"},
       {"decimals = 0", "relative = true", "is relative to a row, and none has reference = true"},
       {"published = [0.5]", "published = 0.5", "my.toml:23:1: row.published is 0.5 (a list"},
       {"published = [0.5]", "reference = \"yes\"",
        "my.toml:23:1: row.reference is \"yes\", which has the wrong type (true or false)"},
       {"published = [0.5]", "scales = [\"smal\"]",
        "my.toml:23:1: row.scales is [\"smal\"], which it cannot be (nearest: small; a list of tiny, small, paper)"},
       {"title = \"one", "evaluation = {split = \"vali\"}\ntitle = \"one",
        "split is \"vali\", which it cannot be (nearest: valid; one of train, valid, test)"},
       {"title = \"one", "evaluation = {splits = 1}\ntitle = \"one",
        "unknown key \"splits\" in [evaluation] (nearest: split;"},
       {"title = \"one", "lengths = [8]\ntitle = \"one", "lengths is [8] (a table of lists by scale"},
       {"name = \"attention\"", "longest = 8", "my.toml:19:1: the key row.name is missing (a text)"},
       {"title = \"one", "notes = \"mine\"\ntitle = \"one", "notes is \"mine\" (a list"},
       {"steps = 2", "steps = \"2\"", "my.toml:13:1: train.steps is \"2\""},
       {"steps = 2", "steps = 2\nprecision = \"tf32\"", "tf32 is for a GPU"},
       {"params = 3000", "params = 3", "cannot have model.params = 3"}})
    check_refused(mistake);
}

TEST_CASE("a row whose model does not fit its task is told and left out, and the others are trained") {
  const OneThread one_thread;
  const TempFolder folder;
  std::string table = kTable;
  table.replace(table.find("layers = 2"), 10, "readout = \"last\"");
  table += R"([[row]]
name = "copy"
title = "the weights of attention"
model = {model = "regular", layers = 2}
weights_of = "attention"
)";
  ReproduceOptions options;
  options.table = folder.write("my.toml", table);
  options.runs = folder.path("runs");
  std::string told;
  const auto log = [&](std::string_view text) { told += text; };
  const auto reproduced = [&] {
    told.clear();
    return error_of<ConfigError>([&] { static_cast<void>(reproduce(options, log)); });
  };
  const std::string why = "config: model.readout is \"last\"";
  options.dry_run = true;
  CHECK(contains(reproduced(), "my.toml:19:1: the row attention cannot be trained: " + why));
  CHECK_MESSAGE(contains(told, "[attention] attention: left out: " + why), told);
  CHECK(contains(told, "[unit] a unit recurrence: to be trained"));
  CHECK_FALSE(std::filesystem::exists(options.runs));

  const Quiet quiet;
  options.dry_run = false;
  CHECK(contains(reproduced(), "my.toml:19:1: the row attention cannot be trained: " + why));
  CHECK(told.find("attention: left out: " + why) < told.find("row 1 of 1, unit"));
  CHECK(contains(told, "copy: left out: it takes the weights of attention, which is left out"));
  CHECK(std::filesystem::exists(folder.path("runs/my/unit/result.json")));
  CHECK_FALSE(std::filesystem::exists(folder.path("runs/my/attention")));
  const std::string page = read_bytes(folder.path("runs/my/index.html"));
  CHECK(contains(page, "attention: left out: config: model.readout is"));
  // A row that was not asked for is no error.
  options.rows = {"unit"};
  CHECK(reproduced().empty());
  options.rows = {"copy", "attention"};
  CHECK(contains(reproduced(), "the row attention cannot be trained"));
}

TEST_CASE("a budget of a row whose model does not fit its task ends the table") {
  const OneThread one_thread;
  const TempFolder folder;
  std::string table = "budget = {equal = \"operations\", of = \"attention\"}\n" + std::string(kTable);
  table.replace(table.find("layers = 2"), 10, "readout = \"last\"");
  ReproduceOptions options;
  options.table = folder.write("my.toml", table);
  options.runs = folder.path("runs");
  const std::string told = error_of<ConfigError>([&] { reproduce(options, [](std::string_view) {}); });
  CHECK_MESSAGE(contains(told, "the budget is that of the row attention, which cannot be trained"), told);
  CHECK_FALSE(std::filesystem::exists(options.runs));
}

TEST_CASE("a row that ends with an error is told at once and at the end, and the others are trained") {
  const OneThread one_thread;
  const TempFolder folder;
  ReproduceOptions options;
  options.table = folder.write("my.toml", kTable);
  options.runs = folder.path("runs");
  std::string told;
  const auto log = [&](std::string_view text) {
    told += text;
    // A file in the place of its folder, behind all checks.
    if (text.find("row 1 of 2") != std::string_view::npos) folder.write("runs/my/unit", "mine");
  };
  const Quiet quiet;
  const std::string error = error_of<IoError>([&] { static_cast<void>(reproduce(options, log)); });
  CHECK_MESSAGE(contains(error, "runs/my/unit exists"), error);
  CHECK(contains(told, "unit: failed: " + error));
  CHECK(std::filesystem::exists(folder.path("runs/my/attention/result.json")));
  CHECK(std::filesystem::exists(folder.path("runs/my/index.html")));
}
