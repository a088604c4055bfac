// Parts of evaluated batches, here and on other ranks.
#include "train/eval/eval_parts.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "autograd/tape.h"
#include "train/step/step_messages.h"

namespace eddy::training {
namespace {

// How many scored targets have the highest logit of their row. Of equal logits the first counts, a NaN never.
std::int64_t count_correct(const Tensor& logits, const Tensor& targets) {
  const Tensor values = plain_f64(logits), wanted = raw::contiguous(targets);
  const std::int64_t classes = values.dim(-1), rows = targets.elements();
  const double* row = values.data<double>();
  const std::int32_t* target = wanted.data<std::int32_t>();
  std::int64_t right = 0;
  for (std::int64_t i = 0; i < rows; ++i, row += classes)
    if (target[i] != kNotScored && std::max_element(row, row + classes) - row == target[i] &&
        !std::isnan(row[target[i]]))
      ++right;
  return right;
}

void put_losses(Message& message, const PartLosses& losses) {
  message.put(Tensor::from(losses.losses, {std::ssize(losses.losses)}));
  message.put(losses.correct);
  message.put(losses.carried);
}

// Adds the losses of the next parts.
void append(PartLosses& all, const PartLosses& next) {
  all.losses.insert(all.losses.end(), next.losses.begin(), next.losses.end());
  all.correct += next.correct;
  all.carried = all.carried || next.carried;
}

// Part i of a batch belongs to rank i ranks / parts.
std::vector<Batch> parts_of_rank(const Batch& batch, std::int64_t parts, int rank, int ranks) {
  if (parts == 1) return rank == 0 ? std::vector<Batch>{batch} : std::vector<Batch>{};
  std::vector<Batch> local;
  for (std::int64_t part = 0; part < parts; ++part)
    if (part * ranks / parts == rank) local.push_back(part_of_batch(batch, part, parts));
  return local;
}

}  // namespace

Tensor plain_f64(Tensor x) {
  x = raw::to_device(x, kCpu);
  return raw::contiguous(x.dtype() == Dtype::f64 ? x : raw::cast(x, Dtype::f64));
}

PartLosses LocalParts::run(const std::vector<Batch>& parts, bool cold) {
  const NoGrad no_grad;
  if (cold) carried_.clear();
  carried_.resize(parts.size());
  PartLosses all;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i == recorders_.size())
      recorders_.push_back(std::make_unique<Recorder>(model_.params(), eval_recorder(plan_)));
    CarriedState& carried = carried_[i];
    if (plan_.clear_state && !carried.state.empty()) carried.state = model_.without_recurrence(carried.state);
    const BatchLosses output = evaluate_batch(model_, parts[i], carried, plan_, *recorders_[i]);
    PartLosses part;
    part.losses = plain_f64(output.losses).to_vector<double>();
    part.carried = output.carried;
    if (plan_.count_correct) part.correct = count_correct(output.logits, parts[i].targets);
    append(all, part);
  }
  return all;
}

std::vector<State> LocalParts::states() const {
  std::vector<State> states;
  for (const CarriedState& carried : carried_) states.push_back(carried.state);
  return states;
}

std::string LocalParts::take_message() {
  return recorders_.empty() ? "" : recorders_.front()->take_message();
}

EvalParts::EvalParts(const Model& model, const EvalPlan& plan)
    : model_(model), share_(plan.share), local_(model, plan), plan_(plan) {}

PartLosses EvalParts::run(const Batch& batch) {
  const std::int64_t rows = batch.tokens.dim(0);
  const bool cold = rows != rows_;
  rows_ = rows;
  parts_ = std::gcd(rows, share_.parts);
  Ranks* const others = share_.ranks;
  if (others == nullptr) return local_.run(parts_of_rank(batch, parts_, 0, 1), cold);
  others->in_exchange = true;
  for (int rank = 1; rank < ranks(); ++rank) {
    Message message;
    message.put(RankCommand::evaluate);
    message.put(!begun_);
    if (!begun_) {
      message.put(plan_.carry_state);
      message.put(plan_.clear_state);
      message.put(plan_.count_correct);
      message.put(plan_.capture);
    }
    message.put(cold);
    const std::vector<Batch> parts = parts_of_rank(batch, parts_, rank, ranks());
    message.put(static_cast<std::uint64_t>(parts.size()));
    for (const Batch& part : parts) put_batch(message, part);
    message.send(*others, rank);
  }
  begun_ = true;
  PartLosses all = local_.run(parts_of_rank(batch, parts_, 0, ranks()), cold);
  for (int rank = 1; rank < ranks(); ++rank) {
    Message answer = Message::receive(*others, rank);
    PartLosses part;
    part.losses = answer.get_tensor().to_vector<double>();
    part.correct = answer.get<std::int64_t>();
    part.carried = answer.get<bool>();
    append(all, part);
  }
  others->in_exchange = false;
  return all;
}

State EvalParts::state() {
  std::vector<State> states = local_.states();
  if (states.empty() || states.front().empty()) return {};
  if (share_.ranks != nullptr) {
    Ranks& others = *share_.ranks;
    others.in_exchange = true;
    for (int rank = 1; rank < ranks(); ++rank) {
      Message question;
      question.put(RankCommand::send_evaluated);
      question.send(others, rank);
      Message answer = Message::receive(others, rank);
      for (auto left = answer.get<std::uint64_t>(); left > 0; --left) states.push_back(get_state(answer));
    }
    others.in_exchange = false;
  }
  if (states.size() == 1) return states.front();
  const Device device = model_.params().values().device();
  for (State& part : states) {
    State placed;
    for (const auto& [name, tensor] : part) placed.set(name, raw::to_device(tensor, device));
    part = placed;
  }
  return merged_state(states, model_);
}

void answer_evaluation(Ranks& ranks, Message& message, const Model& model,
                       std::unique_ptr<LocalParts>& evaluation) {
  if (message.get<bool>()) {
    EvalPlan plan;
    plan.carry_state = message.get<bool>();
    plan.clear_state = message.get<bool>();
    plan.count_correct = message.get<bool>();
    plan.capture = message.get<bool>();
    evaluation = std::make_unique<LocalParts>(model, plan);
  }
  const bool cold = message.get<bool>();
  std::vector<Batch> parts(static_cast<std::size_t>(message.get<std::uint64_t>()));
  for (Batch& part : parts) part = get_batch(message);
  Message answer;
  put_losses(answer, evaluation->run(parts, cold));
  answer.send(ranks, 0);
}

void answer_evaluated(Ranks& ranks, const LocalParts& evaluation) {
  Message answer;
  const std::vector<State> states = evaluation.states();
  answer.put(static_cast<std::uint64_t>(states.size()));
  for (const State& state : states) put_state(answer, state);
  answer.send(ranks, 0);
}

}  // namespace eddy::training
