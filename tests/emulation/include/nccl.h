// Stands in for NCCL's header: the calls that cuda/runtime/peers.cpp makes, with one other process that the test plays.
// Calls are checked as NCCL's are used: inside of a group, on the stream, with bytes in the memory of the GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

enum ncclResult_t { ncclSuccess = 0, ncclInvalidUsage = 5 };
enum ncclDataType_t { ncclUint8 = 1 };
struct ncclUniqueId {
  char internal[128];
};
struct EmulatedComm;
using ncclComm_t = EmulatedComm*;

const char* ncclGetErrorString(ncclResult_t result);
ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int size, ncclUniqueId id, int rank);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream);
ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream);
