// The tables of this build, and the files that they are read from.
#include <algorithm>

#include "train/config/config_file.h"
#include "train/reproduce/tables.h"

namespace eddy {
namespace {

constexpr std::string_view kShakespeare =
#include "embedded/train/reproduce/tables/recurrent_transformers_table_3.toml"
    ;
constexpr std::string_view kCifar =
#include "embedded/train/reproduce/tables/recurrent_transformers_table_4.toml"
    ;
constexpr std::string_view kCopying =
#include "embedded/train/reproduce/tables/recurrent_transformers_table_6.toml"
    ;
constexpr std::string_view kBooks =
#include "embedded/train/reproduce/tables/block_recurrent_table_1.toml"
    ;
constexpr std::string_view kLengths =
#include "embedded/train/reproduce/tables/blockwise_recurrent_tables.toml"
    ;
constexpr std::string_view kAlgorithm =
#include "embedded/train/reproduce/tables/staircase_algorithm.toml"
    ;
constexpr std::string_view kRandomWalk =
#include "embedded/train/reproduce/tables/staircase_random_walk.toml"
    ;
constexpr std::string_view kEnwik8 =
#include "embedded/train/reproduce/tables/staircase_enwik8.toml"
    ;
constexpr std::string_view kStaircaseText =
#include "embedded/train/reproduce/tables/staircase_tables_2_3.toml"
    ;
constexpr std::string_view kFamilies =
#include "embedded/train/reproduce/tables/families.toml"
    ;
constexpr std::string_view kFamiliesText =
#include "embedded/train/reproduce/tables/families_text.toml"
    ;
constexpr std::string_view kFamiliesState =
#include "embedded/train/reproduce/tables/families_state.toml"
    ;
constexpr std::string_view kFamiliesRecall =
#include "embedded/train/reproduce/tables/families_recall.toml"
    ;
constexpr std::string_view kFamiliesCopy =
#include "embedded/train/reproduce/tables/families_copy.toml"
    ;

constexpr const char* kFile = "table.toml";  // a built-in one

}  // namespace

std::span<const TableEntry> reproduce_tables() {
  static const TableEntry tables[] = {
      {"recurrent-transformers/table-3", "tiny Shakespeare", {kShakespeare}},
      {"recurrent-transformers/table-4", "CIFAR-10", {kCifar}},
      {"recurrent-transformers/table-6", "copy and selective copy", {kCopying}},
      {"block-recurrent/table-1", "books as bytes, and step times", {kBooks}},
      {"blockwise-recurrent/table-1", "loss by length", {kLengths}, {"repeat", "plain"}},
      {"blockwise-recurrent/table-2", "the same rows: ways of training", {kLengths}, {"repeat", "plain"}},
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
      {"families/state", "the same on Random Walk", {kFamiliesState}},
      {"families/recall", "the same on secrets beyond the reach of attention", {kFamiliesRecall}},
      {"families/copy", "the same on copying behind noise", {kFamiliesCopy}},
  };
  return tables;
}

ConfigSource built_in_table(const TableEntry& entry, const std::string& task) {
  const auto found = std::find(entry.tasks.begin(), entry.tasks.end(), task);
  const auto place = entry.files.size() > 1 ? static_cast<std::size_t>(found - entry.tasks.begin()) : 0;
  ConfigSource source = config_from_toml(entry.files[place], kFile);
  if (!source.value.contains("row")) source.value["row"] = config_from_toml(kFamilies, kFile).value.at("row");
  return source;
}

}  // namespace eddy
