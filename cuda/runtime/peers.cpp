// Exchanges over NCCL, which only moves bytes: a send and a receive, grouped, so that both are on their way at once.
#include "cuda/runtime/peers.h"

#include "tensor/base/error.h"
#include "tensor/base/format.h"

#ifdef EDDY_NCCL
#include <nccl.h>

#include <cstring>

#include "cuda/runtime/stream.cuh"
#endif

namespace eddy::cuda {

#ifdef EDDY_NCCL
namespace {

void check_nccl(ncclResult_t result, const char* call) {
  if (result == ncclSuccess) return;
  fail<DeviceError>("{}: {} (each process of a host needs a GPU of its own; NCCL_DEBUG=INFO says more)", call,
                    ncclGetErrorString(result));
}

class NcclPeers final : public Peers {
 public:
  NcclPeers(const PeersId& id, int rank, int size) {
    static_cast<void>(stream());  // opens the GPU, which the communicator takes
    ncclUniqueId unique;
    static_assert(sizeof unique == sizeof(PeersId));
    std::memcpy(&unique, id.data(), sizeof unique);
    check_nccl(ncclCommInitRank(&comm_, size, unique, rank), "ncclCommInitRank");
  }
  ~NcclPeers() override { ncclCommDestroy(comm_); }

  void exchange(int peer, const Tensor& out, const Tensor& in) override {
    const auto has_bytes = [](const Tensor& x) { return x.defined() && x.bytes() > 0; };
    const auto bytes = [](const Tensor& x) { return static_cast<std::size_t>(x.bytes()); };
    check_nccl(ncclGroupStart(), "ncclGroupStart");
    if (has_bytes(out))
      check_nccl(ncclSend(out.raw_data(), bytes(out), ncclUint8, peer, comm_, stream()), "ncclSend");
    if (has_bytes(in))
      check_nccl(ncclRecv(in.raw_data(), bytes(in), ncclUint8, peer, comm_, stream()), "ncclRecv");
    check_nccl(ncclGroupEnd(), "ncclGroupEnd");
  }

 private:
  ncclComm_t comm_ = nullptr;
};

}  // namespace

std::string why_no_peers() {
  return "";
}

PeersId make_peers_id() {
  ncclUniqueId unique;
  check_nccl(ncclGetUniqueId(&unique), "ncclGetUniqueId");
  PeersId id;
  std::memcpy(id.data(), &unique, sizeof unique);
  return id;
}

std::unique_ptr<Peers> join_peers(const PeersId& id, int rank, int size) {
  return std::make_unique<NcclPeers>(id, rank, size);
}

#else

std::string why_no_peers() {
  return "this build has no NCCL: install libnccl-dev and build again";
}

PeersId make_peers_id() {
  fail<DeviceError>("peers: {}", why_no_peers());
}

std::unique_ptr<Peers> join_peers(const PeersId&, int, int) {
  fail<DeviceError>("peers: {}", why_no_peers());
}

#endif

}  // namespace eddy::cuda
