// What rank 0 sends, and what the others do with it.
#include "train/step/shared_steps.h"

#include <bit>
#include <nlohmann/json.hpp>

#include "tensor/base/format.h"
#include "tensor/threads/thread_pool.h"
#include "train/ranks/message.h"

namespace eddy {
namespace {

enum class Command : std::uint8_t { begin, step, send_state, end };

void put_batch(Message& message, const Batch& batch) {
  message.put(batch.tokens);
  message.put(batch.targets);
  message.put(batch.start);
  message.put(batch.begin);
  message.put(batch.block);
  message.put(batch.tail);
  message.put(batch.scored);
}

Batch get_batch(Message& message) {
  Batch batch;
  batch.tokens = message.get_tensor();
  batch.targets = message.get_tensor();
  batch.start = message.get_tensor();
  batch.begin = message.get<RowsBegin>();
  batch.block = message.get<std::int64_t>();
  batch.tail = message.get<std::int64_t>();
  batch.scored = message.get<std::int64_t>();
  return batch;
}

void put_options(Message& message, const StepOptions& options) {
  message.put(options.learning_rate);
  message.put(options.seed);
  message.put(options.step);
  message.put(options.carry_state);
  message.put(options.micro_batches);
  message.put(options.scored);
}

StepOptions get_options(Message& message, Ranks& ranks) {
  StepOptions options;
  options.learning_rate = message.get<double>();
  options.seed = message.get<std::uint64_t>();
  options.step = message.get<std::int64_t>();
  options.carry_state = message.get<bool>();
  options.micro_batches = message.get<std::int64_t>();
  options.scored = message.get_numbers();
  options.ranks = &ranks;
  return options;
}

// A state with the order of its entries.
void put_state(Message& message, const State& state) {
  message.put(static_cast<std::uint64_t>(state.size()));
  for (const auto& [name, tensor] : state) {
    message.put(name);
    message.put(tensor);
  }
}

State get_state(Message& message) {
  State state;
  for (auto left = message.get<std::uint64_t>(); left > 0; --left) {
    const std::string name = message.get_text();
    state.set(name, message.get_tensor());
  }
  return state;
}

CarriedState part_of_carried(const CarriedState& whole, const Model& model, int rank, int ranks) {
  if (whole.state.empty()) return {};
  return {part_of_state(whole.state, model, rank, ranks), whole.rows / ranks};
}

// What a rank other than 0 has.
struct Worker {
  RunConfig config;
  std::unique_ptr<Model> model;
  std::unique_ptr<Optimizer> optimizer;
  CarriedState carried;

  Worker(Ranks& ranks, Message& message)
      : config(run_config_from_json(nlohmann::json::parse(message.get_text()))) {
    const TrainConfig& train = config.train;
    ranks.set_timeout(train.rank_timeout);
    if (train.threads > 0) set_thread_count(static_cast<int>(train.threads));
    const auto [device, dtype, precision] =
        choose_device_precision({"train", "train.device", "train.precision"}, train.device, train.precision);
    model = make_model(config.model, dtype, device, precision);
    raw::copy_into(model->params().values(), message.get_tensor());
    wrote_in_place(model->params().values(), "the start of a rank");
    model->params().renew_bf16_copy();
    optimizer = make_optimizer(model->params(), train);
    optimizer->load(message.get_tensors(), "the message of rank 0");
    carried.rows = message.get<std::int64_t>();
    carried.state = get_state(message);
  }

  void step(Ranks& ranks, Message& message) {
    const StepOptions options = get_options(message, ranks);
    std::vector<Batch> batches(static_cast<std::size_t>(message.get<std::uint64_t>()));
    for (Batch& batch : batches) batch = get_batch(message);
    static_cast<void>(train_step(*model, *optimizer, batches, carried, options));
  }
};

}  // namespace

void check_ranks(const RunConfig& config, int ranks) {
  const TrainConfig& train = config.train;
  if (!std::has_single_bit(static_cast<unsigned>(ranks)) || ranks > train.micro_batches)
    fail<ConfigError>(
        "train: {} processes share the run and train.micro_batches is {} (a power of two of processes, at most as many "
        "as micro-batches: set train.micro_batches, or start fewer)",
        ranks, train.micro_batches);
  if (train.device != "cpu")
    fail<ConfigError>(
        "train: {} processes share the run and train.device is {:?} (several processes compute on cpu)",
        ranks, train.device);
}

SharedSteps::SharedSteps(Ranks& ranks, const RunConfig& config, const Model& model,
                         const Optimizer& optimizer, CarriedState& carried)
    : ranks_(ranks) {
  ranks.set_timeout(config.train.rank_timeout);
  ranks.in_exchange = true;
  for (int rank = 1; rank < ranks.size(); ++rank) {
    Message message;
    message.put(Command::begin);
    message.put(to_json(config).dump());
    message.put(model.params().values());
    message.put(optimizer.save());
    const CarriedState part = part_of_carried(carried, model, rank, ranks.size());
    message.put(part.rows);
    put_state(message, part.state);
    message.send(ranks, rank);
  }
  ranks.in_exchange = false;
  carried = part_of_carried(carried, model, 0, ranks.size());
}

void SharedSteps::begin_step(std::vector<Batch>& batches, StepOptions& options) {
  options.ranks = &ranks_;
  options.scored = scored_targets(batches, options.micro_batches);
  ranks_.in_exchange = true;
  for (int rank = 1; rank < ranks_.size(); ++rank) {
    Message message;
    message.put(Command::step);
    put_options(message, options);
    message.put(static_cast<std::uint64_t>(batches.size()));
    for (const Batch& batch : batches) put_batch(message, part_of_batch(batch, rank, ranks_.size()));
    message.send(ranks_, rank);
  }
  for (Batch& batch : batches) batch = part_of_batch(batch, 0, ranks_.size());
}

State SharedSteps::whole_state(const CarriedState& own, const Model& model) {
  if (own.state.empty()) return {};  // then no rank has one
  std::vector<State> parts{own.state};
  ranks_.in_exchange = true;
  for (int rank = 1; rank < ranks_.size(); ++rank) {
    Message question;
    question.put(Command::send_state);
    question.send(ranks_, rank);
    Message answer = Message::receive(ranks_, rank);
    parts.push_back(get_state(answer));
  }
  ranks_.in_exchange = false;
  return joined_state(parts, model);
}

void end_work(Ranks& ranks) {
  for (int rank = 1; rank < ranks.size(); ++rank) {
    Message message;
    message.put(Command::end);
    message.send(ranks, rank);
  }
}

void work(Ranks& ranks) {
  std::unique_ptr<Worker> worker;
  for (;;) {
    // Rank 0 may evaluate or save for any time.
    Message message = Message::receive(ranks, 0, Patience::endless);
    switch (message.get<Command>()) {
      case Command::begin:
        worker.reset();  // of a run that goes back
        worker = std::make_unique<Worker>(ranks, message);
        break;
      case Command::step:
        worker->step(ranks, message);
        break;
      case Command::send_state: {
        Message answer;
        put_state(answer, worker->carried.state);
        answer.send(ranks, 0);
        break;
      }
      case Command::end:
        return;
    }
  }
}

}  // namespace eddy
