// GPUs of other processes over NCCL: what ops/core/peers.h promises, for a build that found nccl.h.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "ops/core/peers.h"

namespace eddy::cuda {

std::string why_no_peers();
PeersId make_peers_id();
std::unique_ptr<Peers> join_peers(const PeersId& id, int rank, int size, double timeout,
                                  std::function<std::string(int)> name);

}  // namespace eddy::cuda
