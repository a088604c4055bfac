// What rank 0 sends, and what it asks for.
#include "train/step/shared_steps.h"

#include <bit>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "ops/core/peers.h"
#include "tensor/base/format.h"
#include "train/ranks/message.h"
#include "train/step/step_messages.h"

namespace eddy::training {
namespace {

CarriedState part_of_carried(const CarriedState& whole, const Model& model, int rank, int ranks) {
  if (whole.state.empty()) return {};
  return {part_of_state(whole.state, model, rank, ranks), whole.rows / ranks};
}

// The parts of an optimizer's state that a rank holds.
std::map<std::string, Tensor> held_part(const std::map<std::string, Tensor>& whole, const ParamStore& params,
                                        const ParameterMask& held) {
  if (held.empty()) return whole;
  std::set<std::string> names;
  for (std::size_t i = 0; i < held.size(); ++i)
    if (held[i]) names.insert(params.parameters()[i].name);
  std::map<std::string, Tensor> part;
  for (const auto& [name, tensor] : whole) {
    const std::size_t point = name.find('.');  // "<what>.<parameter>", or "steps"
    if (point == std::string::npos || names.contains(name.substr(point + 1))) part.emplace(name, tensor);
  }
  return part;
}

}  // namespace

void check_ranks(const char* command, const char* key, const RunConfig& config, int ranks) {
  const TrainConfig& train = config.train;
  if (!std::has_single_bit(static_cast<unsigned>(ranks)) || ranks > train.micro_batches)
    fail<ConfigError>(
        "{}: {} processes share each batch and {} is {} (a power of two of processes, at most as many as micro-batches: "
        "set {}, or start fewer)",
        command, ranks, key, train.micro_batches, key);
  if (value_is(train.device, DeviceChoice::cpu)) return;
  if (const std::string why = why_no_peers(); !why.empty())
    fail<ConfigError>("{}: {} processes share each batch and the device is {:?}: {} (or compute on cpu)",
                      command, ranks, train.device, why);
}

void send_model(Ranks& ranks, const RunConfig& config, const Model& model, const Optimizer* optimizer,
                const ArenaBuckets* buckets, const CarriedState& carried) {
  ranks.set_timeout(config.train.rank_timeout);
  ranks.in_exchange = true;
  const std::map<std::string, Tensor> whole =
      optimizer != nullptr ? optimizer->save() : std::map<std::string, Tensor>{};
  for (int rank = 1; rank < ranks.size(); ++rank) {
    Message message;
    message.put(RankCommand::begin);
    message.put(to_json(config).dump());
    put_gpu(message);
    message.put(model.params().values());
    message.put(optimizer != nullptr);
    if (optimizer != nullptr) {
      message.put(held_part(whole, model.params(), buckets->shard_of(rank)));
      const CarriedState part = part_of_carried(carried, model, rank, ranks.size());
      message.put(part.rows);
      put_state(message, part.state);
    }
    message.send(ranks, rank);
  }
  ranks.in_exchange = false;
}

SharedSteps::SharedSteps(Ranks& ranks, const RunConfig& config, Model& model,
                         std::unique_ptr<Optimizer>& optimizer, CarriedState& carried)
    : ranks_(ranks), buckets_(model.params(), ranks.size(), config.train.shard_optimizer) {
  send_model(ranks, config, model, optimizer.get(), &buckets_, carried);
  carried = part_of_carried(carried, model, 0, ranks.size());
  if (!buckets_.shard()) return;
  std::map<std::string, Tensor> local = held_part(optimizer->save(), model.params(), buckets_.shard_of(0));
  std::unique_ptr<Optimizer> part = make_optimizer(model.params(), config.train, buckets_.shard_of(0));
  part->load(local, "the run");
  local.clear();
  optimizer = std::move(part);
}

void SharedSteps::begin_step(std::vector<Batch>& batches, StepOptions& options) {
  options.ranks = &ranks_;
  options.buckets = &buckets_;
  options.scored = scored_targets(batches, options.micro_batches);
  ranks_.in_exchange = true;
  for (int rank = 1; rank < ranks_.size(); ++rank) {
    Message message;
    message.put(RankCommand::step);
    put_options(message, options);
    message.put(static_cast<std::uint64_t>(batches.size()));
    for (const Batch& batch : batches) put_batch(message, part_of_batch(batch, rank, ranks_.size()));
    message.send(ranks_, rank);
  }
  for (Batch& batch : batches) batch = part_of_batch(batch, 0, ranks_.size());
}

State SharedSteps::whole_state(const CarriedState& local, const Model& model) {
  if (local.state.empty()) return {};  // then no rank has one
  std::vector<State> parts(1);
  for (const auto& [name, tensor] : local.state) parts.front().set(name, raw::to_device(tensor, kCpu));
  ranks_.in_exchange = true;
  for (int rank = 1; rank < ranks_.size(); ++rank) {
    Message question;
    question.put(RankCommand::send_state);
    question.send(ranks_, rank);
    Message answer = Message::receive(ranks_, rank);
    parts.push_back(get_state(answer));
  }
  ranks_.in_exchange = false;
  return merged_state(parts, model);
}

std::map<std::string, Tensor> SharedSteps::whole_optimizer(const Optimizer& local) {
  std::map<std::string, Tensor> whole = local.save();
  if (!buckets_.shard()) return whole;
  ranks_.in_exchange = true;
  for (int rank = 1; rank < ranks_.size(); ++rank) {
    Message question;
    question.put(RankCommand::send_optimizer);
    question.send(ranks_, rank);
    whole.merge(Message::receive(ranks_, rank).get_tensors());
  }
  ranks_.in_exchange = false;
  return whole;
}

void end_work(Ranks& ranks) {
  for (int rank = 1; rank < ranks.size(); ++rank) {
    Message message;
    message.put(RankCommand::end);
    message.send(ranks, rank);
  }
}

}  // namespace eddy::training
