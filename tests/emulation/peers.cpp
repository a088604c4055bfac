// NCCL's calls, where a test plays the other processes.
#include <nccl.h>

#include <cstring>
#include <utility>
#include <vector>

#include "tests/emulation/emulation.h"

struct EmulatedComm {
  int size = 0, rank = 0;
};

namespace {

struct Call {
  bool sends = false;
  const void* from = nullptr;
  void* to = nullptr;
  std::size_t bytes = 0;
  int peer = 0;
  cudaStream_t stream = nullptr;
};

emulation::PlayPeer play;
bool in_group = false;
std::vector<Call> group;

void add(const char* what, Call call, ncclComm_t comm) {
  if (!in_group) emulation::stop("%s outside of a group", what);
  if (comm == nullptr || call.peer < 0 || call.peer >= comm->size || call.peer == comm->rank)
    emulation::stop("%s with process %d", what, call.peer);
  group.push_back(call);
}

}  // namespace

namespace emulation {

void play_peers(PlayPeer other) {
  play = std::move(other);
}

}  // namespace emulation

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclSuccess ? "no error" : "invalid usage";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::memset(id, 7, sizeof *id);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int size, ncclUniqueId id, int rank) {
  if (rank < 0 || rank >= size || id.internal[0] != 7) return ncclInvalidUsage;
  *comm = new EmulatedComm{size, rank};
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  if (in_group) emulation::stop("a group of NCCL's calls inside of another");
  in_group = true;
  return ncclSuccess;
}

// What is sent is read, and what is received is written, when the stream comes to it.
ncclResult_t ncclGroupEnd() {
  if (!in_group) emulation::stop("ncclGroupEnd without ncclGroupStart");
  in_group = false;
  const std::vector<Call> calls = std::exchange(group, {});
  if (calls.empty()) return ncclSuccess;
  emulation::submit(calls.front().stream, [calls] {
    const emulation::OpenMemory open;
    std::vector<unsigned char> sent;
    for (const Call& call : calls)
      if (call.sends) {
        const auto* const bytes = static_cast<const unsigned char*>(call.from);
        sent.insert(sent.end(), bytes, bytes + call.bytes);
      }
    std::size_t expected = 0;
    for (const Call& call : calls)
      if (!call.sends) expected += call.bytes;
    if (!play) emulation::stop("no test plays the other processes of NCCL");
    const std::vector<unsigned char> got = play(calls.front().peer, sent, expected);
    if (got.size() != expected)
      emulation::stop("%zu bytes came over NCCL in place of %zu", got.size(), expected);
    for (const Call& call : calls)
      if (!call.sends && expected > 0) std::memcpy(call.to, got.data(), expected);
  });
  return ncclSuccess;
}

ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  add("ncclSend", {true, from, nullptr, count, peer, stream}, comm);
  return ncclSuccess;
}

ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  add("ncclRecv", {false, nullptr, to, count, peer, stream}, comm);
  return ncclSuccess;
}
