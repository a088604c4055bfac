// The loop of a rank other than 0.
#include "train/eval/rank_work.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "models/optimizer/optimizer.h"
#include "tensor/threads/thread_pool.h"
#include "train/config/run_config.h"
#include "train/eval/eval_parts.h"
#include "train/ranks/message.h"
#include "train/step/arena_buckets.h"
#include "train/step/step_messages.h"
#include "train/step/train_step.h"

namespace eddy::training {
namespace {

// What a rank other than 0 has.
struct Worker {
  RunConfig config;
  std::unique_ptr<Model> model;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<ArenaBuckets> buckets;
  CarriedState carried;
  std::unique_ptr<LocalParts> evaluation;

  Worker(Ranks& ranks, Message& message)
      : config(run_config_from_json(nlohmann::json::parse(message.get_text()))) {
    const TrainConfig& train = config.train;
    ranks.set_timeout(train.rank_timeout);
    if (train.threads > 0) set_thread_count(static_cast<int>(train.threads));
    const auto [device, dtype, precision] =
        choose_device_precision({"train", "train.device", "train.precision"}, train.device, train.precision);
    take_gpu(message, ranks);
    model = make_model(config.model, dtype, device, precision);
    raw::copy_into(model->params().values(), raw::to_device(message.get_tensor(), device));
    wrote_in_place(model->params().values(), "the start of a rank");
    model->params().renew_bf16_copy();
    if (!message.get<bool>()) return;  // to evaluate
    buckets = std::make_unique<ArenaBuckets>(model->params(), ranks.size(), train.shard_optimizer);
    optimizer = make_optimizer(model->params(), train, buckets->shard_of(ranks.rank()));
    optimizer->load(message.get_tensors(), "the message of rank 0");
    carried.rows = message.get<std::int64_t>();
    for (const auto& [name, tensor] : get_state(message))
      carried.state.set(name, raw::to_device(tensor, device));
  }

  void step(Ranks& ranks, Message& message) {
    evaluation = nullptr;  // of other parameters
    StepOptions options = get_options(message);
    options.ranks = &ranks;
    options.buckets = buckets.get();
    std::vector<Batch> batches(static_cast<std::size_t>(message.get<std::uint64_t>()));
    for (Batch& batch : batches) batch = get_batch(message);
    static_cast<void>(train_step(*model, *optimizer, batches, carried, options));
  }
};

}  // namespace

void work(Ranks& ranks) {
  std::unique_ptr<Worker> worker;
  for (;;) {
    // Rank 0 may evaluate or save for any time.
    Message message = Message::receive(ranks, 0, Patience::endless);
    switch (message.get<RankCommand>()) {
      case RankCommand::begin:
        worker.reset();  // of a run that goes back
        worker = std::make_unique<Worker>(ranks, message);
        break;
      case RankCommand::step:
        worker->step(ranks, message);
        break;
      case RankCommand::send_state: {
        Message answer;
        put_state(answer, worker->carried.state);
        answer.send(ranks, 0);
        break;
      }
      case RankCommand::send_optimizer: {
        Message answer;
        answer.put(worker->optimizer->save());
        answer.send(ranks, 0);
        break;
      }
      case RankCommand::evaluate:
        answer_evaluation(ranks, message, *worker->model, worker->evaluation);
        break;
      case RankCommand::send_evaluated:
        answer_evaluated(ranks, *worker->evaluation);
        break;
      case RankCommand::end:
        return;
    }
  }
}

}  // namespace eddy::training
