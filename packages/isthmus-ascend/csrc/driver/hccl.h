// The vendor's collectives, libhccl.so, opened at the first use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "runtime.h"

namespace isthmus::npu {

constexpr size_t kRootInfoBytes = 4108;  // sizeof(HcclRootInfo)
constexpr size_t kCommNameBytes = 128;
constexpr int kInt8 = 0;  // HcclDataType

// HcclSendRecvItem.
struct SendReceiveItem {
  int direction;  // 0: send, 1: receive
  void* buffer;
  uint64_t count;
  int dtype;
  uint32_t peer;
};

// Functions of HCCL that the driver calls; their names lose the prefix "Hccl".
#define ISTHMUS_HCCL_FUNCTIONS(X)                                                                       \
  X(GetRootInfo, int, (void* info))                                                                     \
  X(CommInitRootInfo, int, (uint32_t size, const void* info, uint32_t rank, void** comm))               \
  X(CommDestroy, int, (void* comm))                                                                     \
  X(GetCommName, int, (void* comm, char* name))                                                         \
  X(GetCommAsyncError, int, (void* comm, int* error))                                                   \
  X(GetErrorString, const char*, (int code))                                                            \
  X(AllReduce, int,                                                                                     \
    (const void* from, void* to, uint64_t count, int dtype, int op, void* comm, void* stream))          \
  X(Reduce, int,                                                                                        \
    (const void* from, void* to, uint64_t count, int dtype, int op, uint32_t root, void* comm,          \
     void* stream))                                                                                     \
  X(Broadcast, int, (void* buffer, uint64_t count, int dtype, uint32_t root, void* comm, void* stream)) \
  X(AllGather, int, (const void* from, void* to, uint64_t count, int dtype, void* comm, void* stream))  \
  X(ReduceScatter, int,                                                                                 \
    (const void* from, void* to, uint64_t count, int dtype, int op, void* comm, void* stream))          \
  X(Scatter, int,                                                                                       \
    (const void* from, void* to, uint64_t count, int dtype, uint32_t root, void* comm, void* stream))   \
  X(AlltoAll, int,                                                                                      \
    (const void* from, uint64_t from_count, int from_dtype, void* to, uint64_t to_count, int to_dtype,  \
     void* comm, void* stream))                                                                         \
  X(AlltoAllV, int,                                                                                     \
    (const void* from, const void* from_counts, const void* from_offsets, int from_dtype, void* to,     \
     const void* to_counts, const void* to_offsets, int to_dtype, void* comm, void* stream))            \
  X(BatchSendRecv, int, (const SendReceiveItem* items, uint32_t count, void* comm, void* stream))

struct Hccl {
#define ISTHMUS_HCCL_MEMBER(name, result, arguments) result(*name) arguments = nullptr;
  ISTHMUS_HCCL_FUNCTIONS(ISTHMUS_HCCL_MEMBER)
#undef ISTHMUS_HCCL_MEMBER
};

// The functions of the library; opens it. Fails with ISTHMUS_UNSUPPORTED if it cannot be opened.
const Hccl& hccl();

// Throws a failure with the vendor's message unless the HcclResult of a call is 0.
void check_hccl(int code, const char* function);
#define ISTHMUS_HCCL(name, ...) check_hccl(hccl().name(__VA_ARGS__), "Hccl" #name)

// HcclDataType and HcclReduceOp of a dtype; nothing if HCCL does not reduce it.
std::optional<int> reduced_dtype(isthmus_dtype dtype);
std::optional<int> reduction(isthmus_reduce_op op);

}  // namespace isthmus::npu
