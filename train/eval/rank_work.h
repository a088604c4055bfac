// What a rank other than 0 does: steps (train/step/shared_steps.h) and evaluations (train/eval/eval_parts.h).
#pragma once

#include "train/ranks/ranks.h"

namespace eddy::training {

// Takes part in what rank 0 does, until that calls end_work.
// errors: those of make_model, of a step and of Ranks::exchange.
void work(Ranks& ranks);

}  // namespace eddy::training
