// The tables of this build, and the files that they are read from.
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "tensor/base/format.h"
#include "tensor/files/json_text.h"
#include "train/app/reproduce/table_keys.h"
#include "train/app/reproduce/tables.h"
#include "train/config/config_file.h"
#include "train/words/suggest.h"

namespace eddy::app {
using namespace training;
namespace {

constexpr std::string_view kShakespeare =
#include "embedded/train/app/reproduce/tables/recurrent_transformers_table_3.toml"
    ;
constexpr std::string_view kCifar =
#include "embedded/train/app/reproduce/tables/recurrent_transformers_table_4.toml"
    ;
constexpr std::string_view kCopying =
#include "embedded/train/app/reproduce/tables/recurrent_transformers_table_6.toml"
    ;
constexpr std::string_view kBooks =
#include "embedded/train/app/reproduce/tables/block_recurrent_table_1.toml"
    ;
constexpr std::string_view kOtherWork =
#include "embedded/train/app/reproduce/tables/block_recurrent_table_2.toml"
    ;
constexpr std::string_view kWindowAndStates =
#include "embedded/train/app/reproduce/tables/block_recurrent_table_3.toml"
    ;
constexpr std::string_view kSizes =
#include "embedded/train/app/reproduce/tables/block_recurrent_table_4.toml"
    ;
constexpr std::string_view kVocabularies =
#include "embedded/train/app/reproduce/tables/block_recurrent_table_5.toml"
    ;
constexpr std::string_view kPlaces =
#include "embedded/train/app/reproduce/tables/block_recurrent_places.toml"
    ;
constexpr std::string_view kGates =
#include "embedded/train/app/reproduce/tables/block_recurrent_gates.toml"
    ;
constexpr std::string_view kLengths =
#include "embedded/train/app/reproduce/tables/blockwise_recurrent_tables.toml"
    ;
constexpr std::string_view kAlgorithm =
#include "embedded/train/app/reproduce/tables/staircase_algorithm.toml"
    ;
constexpr std::string_view kRandomWalk =
#include "embedded/train/app/reproduce/tables/staircase_random_walk.toml"
    ;
constexpr std::string_view kEnwik8 =
#include "embedded/train/app/reproduce/tables/staircase_enwik8.toml"
    ;
constexpr std::string_view kStaircaseText =
#include "embedded/train/app/reproduce/tables/staircase_tables_2_3.toml"
    ;
constexpr std::string_view kFamilies =
#include "embedded/train/app/reproduce/tables/families.toml"
    ;
constexpr std::string_view kFamiliesText =
#include "embedded/train/app/reproduce/tables/families_text.toml"
    ;
constexpr std::string_view kFamiliesTextOperations =
#include "embedded/train/app/reproduce/tables/families_text_operations.toml"
    ;
constexpr std::string_view kFamiliesMinutes =
#include "embedded/train/app/reproduce/tables/families_minutes.toml"
    ;
constexpr std::string_view kFamiliesState =
#include "embedded/train/app/reproduce/tables/families_state.toml"
    ;
constexpr std::string_view kFamiliesRecall =
#include "embedded/train/app/reproduce/tables/families_recall.toml"
    ;
constexpr std::string_view kFamiliesCopy =
#include "embedded/train/app/reproduce/tables/families_copy.toml"
    ;
constexpr std::string_view kFamiliesGroups =
#include "embedded/train/app/reproduce/tables/families_groups.toml"
    ;
constexpr std::string_view kFamiliesMqar =
#include "embedded/train/app/reproduce/tables/families_mqar.toml"
    ;

// Replaces the key `task` of a table or of a row by what it holds for this one.
void for_task(nlohmann::json& keys, const std::string& task) {
  if (!keys.contains("task")) return;
  const nlohmann::json changes = keys["task"].value(task, nlohmann::json::object());
  keys.erase("task");
  keys.merge_patch(changes);
}

// The task of a table that a user wants; "": its first.
// errors: ConfigError that begins with `place`.
std::string task_of(const TableEntry& entry, const std::string& wanted, const std::string& place) {
  if (entry.tasks.empty() && !wanted.empty())
    fail<ConfigError>("{}: {} has no tasks to choose from (leave out the task {})", place, entry.name,
                      quote_text(wanted));
  if (wanted.empty()) return entry.tasks.empty() ? "" : entry.tasks.front();
  if (std::find(entry.tasks.begin(), entry.tasks.end(), wanted) == entry.tasks.end())
    fail<ConfigError>("{}: {} has no task {} ({}one of {})", place, entry.name, quote_text(wanted),
                      suggest_value(wanted, entry.tasks), fmt::join(entry.tasks, ", "));
  return wanted;
}

}  // namespace

std::span<const TableEntry> reproduce_tables() {
  // The variants of a table that differ in their text (text.kind).
  static const std::vector<std::string> kinds_of_stories{value_name(TextKind::repeat),
                                                         value_name(TextKind::plain)};
  static const TableEntry tables[] = {
      {"recurrent-transformers/table-3", "tiny Shakespeare", {kShakespeare}},
      {"recurrent-transformers/table-4", "CIFAR-10", {kCifar}},
      {"recurrent-transformers/table-6", "copy and selective copy", {kCopying}},
      {"block-recurrent/table-1", "books as bytes, and step times", {kBooks}},
      {"block-recurrent/table-1-tokens",
       "the same rows in pieces of a vocabulary: books, papers, repositories",
       {kBooks},
       {"pg19", "arxiv", "github"}},
      {"block-recurrent/table-2", "word perplexity of books", {kOtherWork}},
      {"block-recurrent/table-3",
       "sizes of the window and of the state",
       {kWindowAndStates},
       {"window", "states"}},
      {"block-recurrent/table-4", "six sizes, with the cosine schedule", {kSizes}},
      {"block-recurrent/table-5", "vocabularies", {kVocabularies}},
      {"block-recurrent/places", "where the recurrent layer stands, and how many there are", {kPlaces}},
      {"block-recurrent/gates", "how gates begin", {kGates}},
      {"blockwise-recurrent/table-1", "loss by length", {kLengths}, kinds_of_stories},
      {"blockwise-recurrent/table-2", "the same rows: ways of training", {kLengths}, kinds_of_stories},
      {"staircase/table-1",
       "state tracking, enwik8",
       {kAlgorithm, kRandomWalk, kEnwik8},
       {"algorithm", "random-walk", "enwik8"}},
      {"staircase/tables-2-3", "steps and forward size: loss, time, memory", {kStaircaseText}},
      {.name = "staircase/figure-2",
       .summary = "the same tasks by recurrent steps, three seeds",
       .files = {kAlgorithm, kRandomWalk, kEnwik8, kStaircaseText},
       .tasks = {"algorithm", "random-walk", "enwik8", "text"},
       .seeds = 3,
       .across = "recurrent_steps"},
      {"families/text", "all four families on tiny Shakespeare, at equal parameters", {kFamiliesText}},
      {"families/text-operations", "the same text at equal training operations", {kFamiliesTextOperations}},
      {"families/minutes",
       "what two or ten minutes of training give, on any text",
       {kFamiliesMinutes},
       {"two", "ten"}},
      {"families/state", "the same on Random Walk", {kFamiliesState}},
      {"families/recall", "the same on secrets beyond the reach of attention", {kFamiliesRecall}},
      {"families/copy", "the same on copying behind noise", {kFamiliesCopy}},
      {"families/groups",
       "the same on products in a group, up to 16 times as long as in training",
       {kFamiliesGroups},
       {"z2", "z3", "s3", "a5", "s5"}},
      {"families/mqar",
       "the same on values by their keys, and the accuracy against the bytes of state",
       {kFamiliesMqar},
       {"pairs-4", "pairs-8", "pairs-16", "pairs-32", "pairs-64"}},
  };
  return tables;
}

TableFile built_in_table(const TableEntry& entry, const std::string& task, const std::string& place) {
  const std::string wanted = task_of(entry, task, place);
  const auto found = std::find(entry.tasks.begin(), entry.tasks.end(), wanted);
  const auto file = entry.files.size() > 1 ? static_cast<std::size_t>(found - entry.tasks.begin()) : 0;
  ConfigSource source = with_base(config_from_toml(entry.files[file], entry.name)).source;
  for_task(source.value, wanted);
  if (source.value.contains("row"))
    for (nlohmann::json& row : source.value["row"]) for_task(row, wanted);
  if (!source.value.contains("row"))
    source.value["row"] = config_from_toml(kFamilies, entry.name).value.at("row");
  return {std::move(source), entry.name, wanted};
}

TableFile with_base(const ConfigSource& file) {
  if (!file.value.is_object() || !file.value.contains("base")) return {file, "", ""};
  TableBase base;
  KeyList keys;
  keys.add_table("base", base, "a table, as {table = \"FAMILY/TABLE\"}, perhaps with a task");
  read_table(keys, {file.name, {{"base", file.value.at("base")}}, file.places});
  const std::span<const TableEntry> tables = reproduce_tables();
  const auto entry = std::find_if(tables.begin(), tables.end(),
                                  [&](const TableEntry& one) { return base.table == one.name; });
  TableFile made = built_in_table(*entry, base.task, file.place("base.task"));
  ConfigSource& source = made.source;
  source.name = file.name;
  if (file.value.contains("row"))  // its rows are not those of the base
    std::erase_if(source.places, [](const auto& place) { return place.first.starts_with("row."); });
  for (const auto& [key, place] : file.places) source.places[key] = place;
  source.value.merge_patch(file.value);
  source.value.erase("base");
  return made;
}

}  // namespace eddy::app
