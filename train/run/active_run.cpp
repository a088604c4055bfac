// Saving a run and showing it, while it trains.
#include "train/run/active_run.h"

#include <exception>

#include "tensor/base/format.h"
#include "train/process/stop_signal.h"
#include "train/run/checkpoint.h"
#include "train/run/rollback.h"
#include "train/words/human_text.h"

namespace eddy::training {

ActiveRun::ActiveRun(const TrainRequest& train_request, Clock::time_point start)
    : ReadyRun(prepare_run(train_request)),
      request(train_request),
      started(start),
      time(config.train.minutes) {}

bool ActiveRun::must_end() const {
  return stop_requested() || !time.step_fits(now());
}

bool ActiveRun::gives_up_step() const {
  return stop_requested() || time.step_is_late(now());
}

void ActiveRun::event(const std::string& text) {
  if (!nothing_to_train) log->record(EventRecord{state.step, text});
  log->say(text);
}

void ActiveRun::check_place() const {
  if (lock->is_at(folder)) return;
  const std::string place = lock->place().string();
  if (place.empty()) fail<IoError>("train: {} was removed while its run trained", folder.string());
  fail<IoError>("train: {} was moved while its run trained: it is {} now (go on with --resume {})",
                folder.string(), place, place);
}

void ActiveRun::save(bool best) {
  check_place();
  state.seconds = trained_seconds();
  state.task = (task_before_step ? *task_before_step : task->save()).dump();
  note_checkpoint(*this, best);
  show_work("saving", 0, 0);
  const double began = now();
  try {
    const State whole = shared ? shared->whole_state(carried, *model) : carried.state;
    save_checkpoint(folder, config, task->tokenizer(), *model,
                    shared ? shared->whole_optimizer(*optimizer) : optimizer->save(), whole, state, best,
                    config.train.keep);
  } catch (const IoError&) {
    check_place();  // says more when that is why
    throw;
  }
  saved_step = state.step;
  time.note_save(now() - began);
}

void ActiveRun::rescue() {
  const bool in_place = lock->is_at(folder);
  if (!in_place) folder = lock->place();
  // In the middle of an exchange other ranks do not answer, and some parameters may have changed: the last checkpoint
  // stands.
  const bool is_whole = is_between_steps && (request.ranks == nullptr || !request.ranks->in_exchange);
  std::string text;
  try {
    if (is_whole && !is_saved()) {
      save(false);
      text = fmt::format("an error ended the run at step {}: saved; go on with --resume {}", state.step,
                         folder.string());
    }
  } catch (const std::exception& error) {
    text = fmt::format("an error ended the run at step {}, which could not be saved: {}", state.step,
                       error.what());
  }
  if (!in_place) return;  // the error says where the run is now
  if (!text.empty()) log->say(text);
  show_now({.failed = true, .whole = false});
}

void ActiveRun::show_work(const char* what, std::int64_t done, std::int64_t total) {
  std::string text = fmt::format("step {}: {}", state.step, what);
  if (total > 0)
    text += fmt::format(", {:.0f}% of {}", 100 * static_cast<double>(done) / static_cast<double>(total),
                        grouped(total));
  log->progress().work(text, Clock::now());
  show_if_due();
}

void ActiveRun::show_now(const Showing& showing) {
  if (!request.show) return;
  check_place();
  const double began = now();
  try {
    request.show({.run = *this,
                  .records = log->records(),
                  .progress = log->progress(),
                  .seconds = seconds_before + began,
                  .every_s = show_timer_.interval(),
                  .end = showing.end,
                  .failed = showing.failed,
                  .whole = showing.whole});
    not_shown_.clear();
    if (showing.whole) time.note_report(now() - began);
  } catch (const std::exception& error) {
    if (not_shown_ != error.what()) event(fmt::format("warning: no report: {}", error.what()));
    not_shown_ = error.what();
  }
  show_timer_.note(began, now());
}

void ActiveRun::show_if_due() {
  if (request.show && show_timer_.is_due(now()) && lock->is_at(folder)) show_now({.whole = false});
}

}  // namespace eddy::training
