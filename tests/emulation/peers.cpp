// NCCL's calls, where a test plays the other processes.
#include <nccl.h>

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "tests/emulation/emulation.h"

struct EmulatedComm {
  int size = 0, rank = 0;
  bool finalized = false;
  ncclResult_t state = ncclSuccess;
  bool lost_peer = false;  // said at the next question
  // What a call has begun, and how often the communicator is asked before that is through.
  std::function<void()> begun = {};
  int questions = 0;
  // Shared with what is on the stream, which may outlive the communicator.
  std::shared_ptr<bool> aborted = std::make_shared<bool>(false);
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
emulation::PeerFault fault = emulation::PeerFault::none;
int communicators = 0;
bool in_group = false;
ncclResult_t of_group = ncclSuccess;  // an error of one of its calls
EmulatedComm* comm_of_group = nullptr;
std::vector<Call> group;

// The communicator answers after some questions, as a thread of NCCL does the work.
ncclResult_t go_on_later(EmulatedComm* comm, std::function<void()> work) {
  comm->state = ncclInProgress;
  comm->begun = std::move(work);
  comm->questions = 3;
  return ncclInProgress;
}

void expect_ready(const char* what, const EmulatedComm* comm) {
  if (comm == nullptr) emulation::stop("%s without a communicator", what);
  if (comm->state == ncclInProgress) emulation::stop("%s before the call before it is through", what);
}

ncclResult_t add(const char* what, Call call, ncclComm_t comm) {
  if (!in_group) emulation::stop("%s outside of a group", what);
  expect_ready(what, comm);
  if (call.peer < 0 || call.peer >= comm->size || call.peer == comm->rank)
    emulation::stop("%s with process %d", what, call.peer);
  comm_of_group = comm;
  if (fault == emulation::PeerFault::refuses && !call.sends) return of_group = ncclSystemError;
  group.push_back(call);
  return ncclSuccess;
}

// What is sent is read, and what is received is written, when the stream comes to it.
void move_bytes(const std::vector<Call>& calls) {
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
}

}  // namespace

namespace emulation {

void play_peers(PlayPeer other, PeerFault its_fault) {
  play = std::move(other);
  fault = its_fault;
}

bool peers_left_open() {
  return in_group || communicators > 0;
}

}  // namespace emulation

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    default:
      return "invalid usage";
  }
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::memset(id, 7, sizeof *id);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (config->blocking != 0) emulation::stop("a communicator that blocks");
  if (rank < 0 || rank >= size || id.internal[0] != 7) return ncclInvalidUsage;
  *comm = new EmulatedComm{size, rank};
  ++communicators;
  if (fault == emulation::PeerFault::never_joins) {
    (*comm)->state = ncclInProgress;
    return ncclInProgress;
  }
  return go_on_later(*comm, [] {});
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  if (comm->lost_peer) comm->state = ncclRemoteError;
  if (comm->begun && --comm->questions == 0) {
    comm->state = ncclSuccess;
    std::exchange(comm->begun, nullptr)();
  }
  *error = comm->state;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  expect_ready("ncclCommFinalize", comm);
  return go_on_later(comm, [comm] { comm->finalized = true; });
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  expect_ready("ncclCommDestroy", comm);
  if (!comm->finalized) emulation::stop("ncclCommDestroy before ncclCommFinalize");
  delete comm;
  --communicators;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  *comm->aborted = true;
  delete comm;
  --communicators;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  if (in_group) emulation::stop("a group of NCCL's calls inside of another");
  in_group = true;
  of_group = ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (!in_group) emulation::stop("ncclGroupEnd without ncclGroupStart");
  in_group = false;
  const std::vector<Call> calls = std::exchange(group, {});
  EmulatedComm* const comm = std::exchange(comm_of_group, nullptr);
  if (of_group != ncclSuccess) return of_group;
  if (calls.empty()) return ncclSuccess;
  if (fault == emulation::PeerFault::dies) comm->state = ncclRemoteError;
  if (fault == emulation::PeerFault::dies) return ncclInProgress;
  return go_on_later(comm, [calls, comm] {
    const bool ends = fault == emulation::PeerFault::none;
    comm->lost_peer = fault == emulation::PeerFault::dies_later;
    emulation::submit_when(
        calls.front().stream, [ends, aborted = comm->aborted] { return ends || *aborted; },
        [calls, aborted = comm->aborted] {
          if (!*aborted) move_bytes(calls);
        });
  });
}

ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add("ncclSend", {true, from, nullptr, count, peer, stream}, comm);
}

ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add("ncclRecv", {false, nullptr, to, count, peer, stream}, comm);
}
