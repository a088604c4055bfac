// The list of tables, and the procedure that runs them.
#include "train/app/reproduce/reproduce.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "tensor/base/format.h"
#include "train/app/reproduce/budget.h"
#include "train/app/reproduce/page.h"
#include "train/app/reproduce/row_check.h"
#include "train/app/reproduce/run.h"
#include "train/app/reproduce/side_by_side.h"
#include "train/app/reproduce/tables.h"
#include "train/app/reproduce/time_left.h"
#include "train/app/reproduce/tuning.h"
#include "train/app/reproduce/vocabulary.h"
#include "train/app/views/html_page.h"
#include "train/config/config.h"
#include "train/files/output_file.h"
#include "train/process/stop_signal.h"
#include "train/run/run_folder.h"
#include "train/step/clock.h"
#include "train/tasks/task.h"
#include "train/text/dataset.h"
#include "train/words/human_text.h"
#include "train/words/program_name.h"
#include "train/words/suggest.h"

namespace eddy::app {
using namespace training;
namespace {

namespace fs = std::filesystem;
using Log = std::function<void(std::string_view)>;

// What a dry run times of each row and of all, and the operations of a step up to which it does.
constexpr double kDrySeconds = 0.2, kDrySecondsOfAll = 2, kTimedOperations = 1e11;

Scale scale_of(const std::string& name) {
  if (const auto scale = value_named<Scale>(name)) return *scale;
  fail<ConfigError>("reproduce: there is no scale \"{}\" (small, paper, or tiny for a try)", name);
}

const TableEntry& entry_of(const std::string& name) {
  std::vector<std::string> names;
  for (const TableEntry& entry : reproduce_tables()) {
    if (name == entry.name) return entry;
    names.emplace_back(entry.name);
  }
  fail<ConfigError>("reproduce: there is no table \"{}\" ({}all: {})", name, suggest_value(name, names),
                    fmt::join(names, ", "));
}

const ReproduceRow* find_row(const ReproduceTable& table, const std::string& name) {
  for (const ReproduceRow& row : table.rows)
    if (row.name == name) return &row;
  return nullptr;
}

// The rows of these names, or all.
std::vector<const ReproduceRow*> wanted_rows(const ReproduceTable& table,
                                             const std::vector<std::string>& names) {
  std::vector<std::string> known;
  for (const ReproduceRow& row : table.rows)
    for (const std::string& name : {row.group, row.name})
      if (std::find(known.begin(), known.end(), name) == known.end()) known.push_back(name);
  const auto is_named = [&](const ReproduceRow& row) {
    return std::any_of(names.begin(), names.end(),
                       [&](const std::string& name) { return name == row.name || name == row.group; });
  };
  for (const std::string& name : names)
    if (std::find(known.begin(), known.end(), name) == known.end())
      fail<ConfigError>("reproduce: {} has no row \"{}\" ({}all: {})", table.name, name,
                        suggest_value(name, known), fmt::join(known, ", "));
  std::vector<const ReproduceRow*> rows;
  for (const ReproduceRow& row : table.rows)
    if (names.empty() || is_named(row)) rows.push_back(&row);
  return rows;
}

// Sets the values that were found for the tuned keys. Keys that --set gives are not tuned.
void settle_tuning(ReproduceTable& table, const ReproduceOptions& options) {
  std::erase_if(table.tune.keys,
                [&](const ReproduceTune::Key& key) { return options.set.contains(key.key); });
  if (table.tune.keys.empty()) return;
  const ReproduceTable untuned = table;
  for (ReproduceRow& row : table.rows) {
    const ReproduceRow* source = row.weights_of.empty() ? &row : find_row(untuned, row.weights_of);
    if (!source->counted) continue;
    row.tuning = tuning_of(untuned, *source, options.runs);
    if (!row.tuning.best.empty()) set_tuned_values(table, row, row.tuning.best);
  }
}

// Puts in place of each row one for each seed.
void repeat_for_seeds(ReproduceTable& table) {
  if (table.seeds == 1) return;
  std::vector<ReproduceRow> all;
  for (const ReproduceRow& row : table.rows)
    for (std::int64_t i = 0; i < table.seeds; ++i) {
      ReproduceRow one = row;
      one.config.train.seed += i;
      const auto with_seed = [&](const std::string& name) {
        return fmt::format("{}-seed-{}", name, one.config.train.seed);
      };
      one.name = with_seed(row.name);
      if (!row.weights_of.empty()) one.weights_of = with_seed(row.weights_of);
      all.push_back(std::move(one));
    }
  table.rows = std::move(all);
}

// ---- commands

std::string command_of(const ReproduceOptions& options, const ReproduceRow& row) {
  std::string text;
  for (const std::string& word : words_of(options, row.name))
    text += (text.empty() ? "" : " ") + shell_quoted(word);
  return text;
}

// ---- a dry run

// Whether a table is a user's and makes no text: its rows are checked with their data before they run.
bool reads_as_it_is(const ReproduceOptions& options, const ReproduceTable& table) {
  return is_table_file(options.table) && !table.text.kind;
}

// "12.3 M tokens, 1.8 M parameters, 5 PFLOP": what a row costs, or all of them.
std::string cost_text(double tokens, double flops) {
  std::string text = human_count(tokens) + " tokens";
  if (flops > 0) text += fmt::format(", {} operations", human_count(flops));
  return text;
}

std::string plan_text(const ReproduceOptions& options, const ReproduceTable& table, const fs::path& folder,
                      const std::map<std::string, RowSize>& sizes) {
  std::string rows;
  double all_tokens = 0, all_flops = 0;
  std::int64_t count = 0;
  std::set<std::string> groups;
  bool all_known = true;
  for (const ReproduceRow* wanted : wanted_rows(table, options.rows)) {
    const ReproduceRow& row = *wanted;
    if (!row.left_out.empty()) {
      rows += fmt::format("\n[{}] {}: left out: {}\n", row.name, row.title, row.left_out);
      continue;
    }
    const RowState state = row_state(table, row, options.runs);
    const bool measured = state.result && state.result->measured == measurement_of(table, row);
    const char* status = measured          ? "done"
                         : state.trained   ? "trained, to be measured"
                         : state.resumable ? "begun, to be resumed"
                                           : "to be trained";
    if (!row.weights_of.empty() && !measured) status = "to be measured";
    if (!row.tuning.over()) status = "to be tuned, then trained";
    if (row.tuning.diverged()) status = "diverged at all values that were tried";
    const TrainConfig& t = row.config.train;
    const std::int64_t tokens = t.batch * t.accumulate * segment_length(row.config);
    const auto size = sizes.find(row.name);
    ++count;
    rows += fmt::format("\n[{}] {}: {}\n", row.name, row.title, status);
    if (size != sizes.end()) rows += fmt::format("  {} parameters\n", grouped(size->second.parameters));
    if (const std::string missing = missing_vocabulary(row, folder); !missing.empty())
      rows += fmt::format("  its vocabulary {} is not there: this row cannot be trained yet\n", missing);
    if (size != sizes.end() && !size->second.off.empty()) rows += fmt::format("  {}\n", size->second.off);
    if (row.tuning.steps_left > 0)
      rows += fmt::format("  tuning: at most {} steps, for all of its seeds\n", row.tuning.steps_left);
    if (!row.tuning.best.empty())
      rows += fmt::format("  tuned: {}\n", tuned_text(table.tune, row.tuning.best));
    if (!row.counted) rows += "  its steps follow from the budget, which is counted before the first row\n";
    if (row.weights_of.empty()) {
      const double trained = static_cast<double>(t.steps) * static_cast<double>(tokens),
                   flops = size == sizes.end() ? 0 : 3 * size->second.flops_per_token * trained;
      rows +=
          fmt::format("  {} steps, {} tokens each at most: {}\n", t.steps, tokens, cost_text(trained, flops));
      const bool is_first = groups.insert(row.group).second;  // its seeds share the tuning
      const double share = is_first && t.steps > 0
                               ? static_cast<double>(row.tuning.steps_left) / static_cast<double>(t.steps)
                               : 0;
      all_tokens += (1 + share) * trained;
      all_flops += (1 + share) * flops;
      all_known = all_known && flops > 0;
    } else {
      rows += fmt::format("  the weights of {}\n", row.weights_of);
    }
    for (const std::string& key : changed_keys(row.config)) rows += "  " + key + '\n';
    rows += "  " + command_of(options, row) + '\n';
  }
  std::string text = fmt::format("{}\nin {}\n", table.title, folder.string());
  for (const std::string& note : table.notes) text += "- " + note + '\n';
  text += fmt::format("- {}\n", budget_text(table));
  for (const ReproduceTune::Key& key : table.tune.keys)
    text += fmt::format("- tuned for each row: {} of {}\n", key.key, fmt::join(key.values, ", "));
  text += fmt::format("- {} {} to train on {}{}\n", count, plural(count, "row"),
                      cost_text(all_tokens, all_known ? all_flops : 0),
                      sizes.empty() ? "; parameters are counted when the data are there" : "");
  return text + rows;
}

// ---- running the rows

class Reproduction {
 public:
  Reproduction(const ReproduceOptions& options, const Log& log)
      : options_(options),
        log_(log),
        table_(plan_table(options)),
        folder_(fs::path(options.runs) / table_.folder) {}

  ReproduceEnd run() {
    if (reads_as_it_is(options_, table_)) leave_out(check_rows(table_, folder_));
    if (options_.dry_run) return with_failures(dry_run());
    refuse_foreign_file("reproduce", page_file().string(), kPageFile);
    // Report an error of any row before hours are spent on another.
    for (const ReproduceRow* row : wanted())
      for (const ReproduceRow* one : {row, &trained_row(*row)})
        static_cast<void>(row_state(table_, *one, options_.runs));
    for (const fs::path& folder : {folder_, folder_ / "text"}) remove_left_overs(folder);
    prepare_text(table_, folder_, log_);
    for (const ReproduceRow* row : wanted()) prepare_vocabulary(trained_row(*row), folder_, log_);
    if (is_table_file(options_.table) && !reads_as_it_is(options_, table_))
      leave_out(check_rows(table_, folder_));
    const StopOnSignal signals;
    if (!count_budget()) return ReproduceEnd::interrupted;
    time_left_ = TimeLeft(rows_to_train());
    time_left_.measure(log_, {.jobs = options_.jobs});
    ReproduceEnd end = ReproduceEnd::done;
    if (options_.jobs > 1 && !rows_to_train().empty())
      end = run_side_by_side(words_of(options_, names_to_run()), options_.jobs, folder_, log_);
    if (end == ReproduceEnd::done) end = share([&](const Claimed& claimed) { return tune_rows(claimed); });
    if (end == ReproduceEnd::done) {
      plan();
      end = share([&](const Claimed& claimed) { return run_rows(claimed); });
    }
    write_page();
    log_(table_text(table_, shown_rows()));
    log_(fmt::format("\npage: {}\n", page_file().string()));
    if (end == ReproduceEnd::interrupted) log_("interrupted: repeat the command to continue\n");
    return with_failures(end);
  }

 private:
  // The first error of a row, at the end.
  ReproduceEnd with_failures(ReproduceEnd end) const {
    if (first_failure_) std::rethrow_exception(first_failure_);
    return end;
  }

  // Leaves out rows that cannot be trained, and tells of those that were asked for; of these one must be left.
  void leave_out(std::map<std::string, std::string> rows) {
    left_out_ = std::move(rows);
    const std::vector<const ReproduceRow*> asked = wanted();
    mark_left_out();
    std::set<std::string> groups;
    for (const ReproduceRow* row : asked) {
      if (row->left_out.empty() || !groups.insert(row->group).second) continue;
      log_(fmt::format("{}: left out: {}\n", row->group, row->left_out));
      if (!first_failure_)
        first_failure_ = std::make_exception_ptr(ConfigError(
            fmt::format("{}: the row {} cannot be trained: {}", row->place, row->group, row->left_out)));
    }
    if (wanted().empty() && first_failure_) std::rethrow_exception(first_failure_);
    check_budget(table_);
  }
  void mark_left_out() {
    for (ReproduceRow& row : table_.rows)
      if (const auto found = left_out_.find(row.name); found != left_out_.end()) row.left_out = found->second;
  }
  void plan() {
    table_ = plan_table(options_);
    mark_left_out();
  }

  const ReproduceRow& trained_row(const ReproduceRow& row) const {
    return row.weights_of.empty() ? row : *find_row(table_, row.weights_of);
  }

  // Counts the steps that follow from the budget, in one process alone. Returns false after a stop.
  bool count_budget() {
    const auto known = [&] {
      return std::all_of(table_.rows.begin(), table_.rows.end(),
                         [](const ReproduceRow& row) { return row.counted || !row.left_out.empty(); });
    };
    while (!known()) {
      const std::optional<RunLock> lock = claim(folder_, "budget");
      if (!lock && !wait_for_others()) return false;
      plan();
      if (!lock || known()) continue;
      record_budget(table_, folder_, log_);
      plan();
    }
    return true;
  }

  // Those that were asked for, but for the ones that are left out.
  std::vector<const ReproduceRow*> wanted() const {
    std::vector<const ReproduceRow*> rows = wanted_rows(table_, options_.rows);
    std::erase_if(rows, [](const ReproduceRow* row) { return !row->left_out.empty(); });
    return rows;
  }
  // Their names for --rows; "" for all.
  std::string names_to_run() const {
    if (left_out_.empty()) return fmt::format("{}", fmt::join(options_.rows, ","));
    std::string names;
    for (const ReproduceRow* row : wanted()) names += (names.empty() ? "" : ",") + row->name;
    return names;
  }

  // Those that are not trained to their end, each once.
  std::vector<const ReproduceRow*> rows_to_train() const {
    std::vector<const ReproduceRow*> rows;
    for (const ReproduceRow* row : wanted()) {
      const ReproduceRow* source = &trained_row(*row);
      const bool to_train = !source->tuning.over() || (!source->tuning.diverged() &&
                                                       !row_state(table_, *source, options_.runs).trained);
      if (to_train && std::find(rows.begin(), rows.end(), source) == rows.end()) rows.push_back(source);
    }
    return rows;
  }

  ReproduceEnd dry_run() {
    const std::map<std::string, RowSize> sizes = row_sizes(table_, folder_, reads_as_it_is(options_, table_));
    if (value_is(table_.budget.equal, BudgetPart::operations)) {
      settle_budget(table_, folder_, sizes);
      for (ReproduceRow& row : table_.rows)
        if (row.counted && row.weights_of.empty() && !table_.tune.keys.empty())
          row.tuning = tuning_of(table_, row, options_.runs);
    }
    log_(plan_text(options_, table_, folder_, sizes));
    // Steps that are short and whose data are at hand are timed.
    std::vector<const ReproduceRow*> timed;
    std::map<std::string, double> operations;
    const std::vector<const ReproduceRow*> to_train = rows_to_train();
    for (const ReproduceRow* row : to_train) {
      const auto size = sizes.find(row->name);
      if (size == sizes.end() || !row->counted) continue;
      const TrainConfig& train = row->config.train;
      const double step = 3 * size->second.flops_per_token *
                          static_cast<double>(train.batch * train.accumulate * segment_length(row->config));
      if (step > kTimedOperations) continue;
      operations[row->name] = step * static_cast<double>(train.steps);
      timed.push_back(row);
    }
    TimeLeft(timed).measure(log_, {.seconds = kDrySeconds,
                                   .jobs = options_.jobs,
                                   .most = kDrySecondsOfAll,
                                   .operations = std::move(operations)});
    if (timed.size() < to_train.size())
      log_(fmt::format(
          "{} of {} rows are timed only when the table runs: their steps are large, or their data are "
          "not at hand\n",
          to_train.size() - timed.size(), to_train.size()));
    return ReproduceEnd::done;
  }

  // Goes through the table until nothing is left that another process has.
  using Pass = std::function<ReproduceEnd(const Claimed&)>;
  ReproduceEnd share(const Pass& pass) {
    for (bool told = false;; told = true) {
      bool all = true;
      const ReproduceEnd end = pass([&](const std::string& name) {
        std::optional<RunLock> lock = claim(folder_, name);
        all = all && lock.has_value();
        return lock;
      });
      if (end == ReproduceEnd::interrupted || all) return end;
      if (!told) log_("waiting for what other processes have claimed\n");
      if (!wait_for_others()) return ReproduceEnd::interrupted;
    }
  }

  // Trains the trials of rows until each has its values, or only trials of other processes are left.
  ReproduceEnd tune_rows(const Claimed& claimed) {
    if (table_.tune.keys.empty()) return ReproduceEnd::done;
    std::set<std::string> groups;
    for (const ReproduceRow* wanted_row : wanted()) {
      const ReproduceRow& row = trained_row(*wanted_row);
      if (!groups.insert(row.group).second) continue;
      bool ran = false;
      for (bool more = true; more; ran = ran || more) {
        more = false;
        for (const Trial& trial : tuning_of(table_, row, options_.runs).next) {
          if (stop_requested()) return ReproduceEnd::interrupted;
          const ReproduceRow one = trial_row(table_, row, trial);
          const std::optional<RunLock> lock = claimed(one.name);
          if (!lock) continue;
          log_(fmt::format("\n== tuning {}: {}, {} steps ==\n", row.group,
                           tuned_text(table_.tune, trial.values), trial.steps));
          if (run_trial(table_, row, trial, options_.runs, command_of(options_, row), options_.ranks) ==
              ReproduceEnd::interrupted)
            return ReproduceEnd::interrupted;
          more = true;
        }
      }
      if (ran) log_(tuning_text(row));
    }
    return ReproduceEnd::done;
  }

  // "unit: learning_rate 0.003 of 5 tried, ...".
  std::string tuning_text(const ReproduceRow& row) const {
    const RowTuning tuning = tuning_of(table_, row, options_.runs);
    if (!tuning.over()) return "";
    if (tuning.diverged()) return fmt::format("{}: diverged at all values that were tried\n", row.group);
    const std::vector<std::string> border = keys_on_border(table_.tune, tuning.best);
    return fmt::format(
        "{}: tuned to {}{}\n", row.group, tuned_text(table_.tune, tuning.best),
        border.empty() ? "" : fmt::format(" (on the border of what was tried: {})", fmt::join(border, ", ")));
  }

  ReproduceEnd run_rows(const Claimed& claimed) {
    ReproduceEnd end = ReproduceEnd::done;
    for (const ReproduceRow* row : wanted()) {
      if (failed_.contains(row->name)) continue;
      const std::optional<RunLock> lock = claimed(trained_row(*row).folder());
      if (!lock) continue;
      ReproduceEnd row_end = ReproduceEnd::done;
      try {
        row_end = run_row(*row);
      } catch (const std::exception& failure) {
        if (options_.ranks != nullptr) throw;  // the other processes are inside the row
        if (!first_failure_) first_failure_ = std::current_exception();
        failed_.insert(row->name);
        log_(fmt::format("{}: failed: {}\n", row->name, failure.what()));
      }
      if (row_end != ReproduceEnd::done) end = row_end;
      if (row_end == ReproduceEnd::interrupted) break;
      write_page();
    }
    return end;
  }

  ReproduceEnd run_row(const ReproduceRow& row) {
    if (stop_requested()) return ReproduceEnd::interrupted;
    const ReproduceRow& source = trained_row(row);
    if (source.tuning.diverged()) {
      log_(fmt::format("{}: not trained, since it diverged at all values that were tried\n", row.name));
      return ReproduceEnd::done;
    }
    RowState trained = row_state(table_, source, options_.runs);
    ReproduceEnd end = ReproduceEnd::done;
    if (!trained.trained) {
      log_(time_left_.begin(source));
      const Clock::time_point begun = Clock::now();
      end = train_row(source, trained, command_of(options_, source), options_.ranks);
      if (end == ReproduceEnd::interrupted) return end;
      log_(time_left_.end(source, seconds_between(begun)));
      trained = row_state(table_, source, options_.runs);
    }
    const RowState state = row_state(table_, row, options_.runs);
    const bool current = state.result && state.result->measured == measurement_of(table_, row) &&
                         trained.result && state.result->step == trained.result->step;
    if (current) {
      log_(fmt::format("{}: done already\n", row.name));
      return end;
    }
    log_(fmt::format("{}: measuring\n", row.name));
    return measure_row(table_, row, state.folder, trained.folder, options_.ranks) ? end
                                                                                  : ReproduceEnd::interrupted;
  }

  // Returns all rows of the table, including those of earlier calls; a row with another configuration counts
  // as not run.
  std::vector<ShownRow> shown_rows() const {
    std::vector<ShownRow> rows;
    for (const ReproduceRow& row : table_.rows) {
      ShownRow shown{&row, std::nullopt, command_of(options_, row), (folder_ / row.folder()).string()};
      try {
        const RowState state = row_state(table_, row, options_.runs);
        if (state.result && !state.result->measured.empty()) shown.result = state.result;
      } catch (const Error&) {
        const std::vector<const ReproduceRow*> rows_wanted = wanted();
        if (std::find(rows_wanted.begin(), rows_wanted.end(), &row) != rows_wanted.end() &&
            !failed_.contains(row.name))
          throw;
      }
      rows.push_back(std::move(shown));
    }
    return rows;
  }

  fs::path page_file() const { return folder_ / "index.html"; }
  void write_page() const {
    std::error_code error;
    if (fs::exists(folder_, error))
      write_output_file("reproduce", page_file().string(), table_page(table_, shown_rows()), kPageFile);
  }

  const ReproduceOptions& options_;
  const Log& log_;
  ReproduceTable table_;
  const fs::path folder_;
  TimeLeft time_left_{{}};
  std::map<std::string, std::string> left_out_{};  // why, by the names of rows
  std::set<std::string> failed_{};                 // rows of this call
  std::exception_ptr first_failure_{};
};

}  // namespace

ReproduceTable plan_table(const ReproduceOptions& options) {
  const bool of_user = is_table_file(options.table);
  const TableEntry* const entry = of_user ? nullptr : &entry_of(options.table);
  TableRequest request;
  request.scale = scale_of(options.scale);
  if (of_user && !options.task.empty())
    fail<ConfigError>("reproduce: {} has no tasks to choose from (leave out --task {})", options.table,
                      options.task);
  const TableFile file = of_user ? with_base(read_config_file(options.table))
                                 : built_in_table(*entry, options.task, "reproduce: --task");
  request.table = file.table;
  request.task = file.task;
  request.data = options.data;
  request.data_dir = standard_places().data_dir;
  if (const auto found = options.set.find("data.tokenizer"); found != options.set.end())
    request.tokenizer = found->second;
  if (entry != nullptr) request.across = entry->across;
  request.of_user = of_user;
  const std::string name = of_user ? fs::path(options.table).stem().string() : entry->name;
  ReproduceTable table = make_table(name, file.source, request);
  if (of_user)
    table.folder = name;
  else if (!file.task.empty())
    table.folder += "-" + file.task;
  if (table.has_scales) table.folder += "-" + options.scale;
  if (options.windows > 0 && !table.by_windows())
    fail<ConfigError>("reproduce: --windows is for tables by length, and {} is none (leave it out)", name);
  if (options.windows > 0) table.windows = options.windows;
  const fs::path folder = fs::path(options.runs) / table.folder;
  for (ReproduceRow& row : table.rows) {
    if (table.text.kind) row.config.data.path = text_path(table, folder).string();
    keys_of(row.config).read_texts(options.set);
    if (std::string& tokenizer = row.config.data.tokenizer; tokenizer == kOwnVocabulary) {
      if (row.pieces == 0)
        fail<ConfigError>(
            "{}: the row {} has the tokenizer {}, and `pieces` gives its vocabulary no size at this scale",
            row.place, row.name, tokenizer);
      tokenizer = vocabulary_path(folder, row.pieces);
    }
    try {
      validate(row.config);
    } catch (const ConfigError& refused) {
      if (!of_user) throw;
      fail<ConfigError>("{}: {}", row.place, refused.what());
    }
  }
  if (options.seeds > 0)
    table.seeds = options.seeds;
  else if (entry != nullptr && entry->seeds > 0)
    table.seeds = entry->seeds;
  for (ReproduceRow& row : table.rows) row.group = row.name;
  settle_budget(table, folder);
  settle_tuning(table, options);
  repeat_for_seeds(table);
  static_cast<void>(wanted_rows(table, options.rows));
  return table;
}

ReproduceEnd reproduce(const ReproduceOptions& options, const std::function<void(std::string_view)>& log) {
  return Reproduction(options, log).run();
}

}  // namespace eddy::app
