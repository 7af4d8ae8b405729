// Collectives: enqueued on the host chip's streams.
#include <numeric>
#include <optional>
#include <vector>

#include "acl/profiled_task.h"
#include "comm.h"
#include "element_bytes.h"

namespace isthmus::ascend::hccl {
namespace {

using Counts = std::vector<size_t>;

Counts counts_of(const uint64_t* values, int32_t size, const char* argument) {
  require_not_null(values, argument);
  return {values, values + size};
}

const char* element_at(const void* pointer, size_t elements, int dtype) {
  return static_cast<const char*>(pointer) + elements * bytes_of(dtype);
}

// Offsets of the parts of each rank if they follow one another.
Counts offsets_of(const Counts& counts) {
  Counts offsets(counts.size(), 0);
  for (size_t i = 1; i < counts.size(); ++i) offsets[i] = offsets[i - 1] + counts[i - 1];
  return offsets;
}

void require_equal(int from, int to) {
  if (from != to) throw Failure{kUnsupported, "the dtypes of the two buffers differ"};
}

// Operations of this thread from construction to end() start together.
class Group {
 public:
  Group() { check(chip().group_start()); }
  ~Group() {
    if (open_) chip().group_end();
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  void end() {
    open_ = false;
    check(chip().group_end());
  }

 private:
  bool open_ = true;
};

// HcclGroupStart() without HcclGroupEnd() on this thread.
thread_local int open_groups = 0;

// The profiler's record of a collective: the bytes that this rank contributes, and the communicator. Those of
// a group start at its end, together, and are not recorded.
class Recorded {
 public:
  Recorded(void* stream, const char* name, uint64_t count, int dtype, const void* comm) {
    if (!isthmus_ascend_profiles() || open_groups != 0) return;
    const std::string operands = std::to_string(count * bytes_of(dtype)) + '\t' + comm_of(comm)->name;
    task_.emplace(stream, kCollectiveTask, name, operands.c_str());
  }

 private:
  std::optional<ProfiledTask> task_;
};

uint64_t sum_of(const Counts& counts) { return std::accumulate(counts.begin(), counts.end(), uint64_t{0}); }

}  // namespace

isthmus_dtype dtype_of(int dtype) {
  switch (dtype) {
    case 0:
      return ISTHMUS_INT8;
    case 1:
      return ISTHMUS_INT16;
    case 2:
      return ISTHMUS_INT32;
    case 3:
      return ISTHMUS_FLOAT16;
    case 4:
      return ISTHMUS_FLOAT32;
    case 5:
      return ISTHMUS_INT64;
    case 6:
      return ISTHMUS_UINT64;
    case 7:
      return ISTHMUS_UINT8;
    case 8:
      return ISTHMUS_UINT16;
    case 9:
      return ISTHMUS_UINT32;
    case 10:
      return ISTHMUS_FLOAT64;
    case 11:
      return ISTHMUS_BFLOAT16;
    case 15:
      return ISTHMUS_FLOAT8_E4M3;
    case 16:
      return ISTHMUS_FLOAT8_E5M2;
    default:
      throw Failure{kUnsupported,
                    "HcclDataType " + std::to_string(dtype) + " is not supported on the host chip"};
  }
}

size_t bytes_of(int dtype) { return element_bytes(dtype_of(dtype)); }

isthmus_reduce_op reduction_of(int operation) {
  constexpr isthmus_reduce_op operations[] = {ISTHMUS_SUM, ISTHMUS_PRODUCT, ISTHMUS_MAX, ISTHMUS_MIN};
  if (operation < 0 || operation > 3)
    throw Failure{kInvalidParameter, "HcclReduceOp " + std::to_string(operation) + " is unknown"};
  return operations[operation];
}

}  // namespace isthmus::ascend::hccl

using namespace isthmus::ascend::hccl;

ISTHMUS_ASCEND_EXPORT int HcclAllReduce(void* from, void* to, uint64_t count, int dtype, int operation,
                                        void* comm, void* stream) {
  return call("HcclAllReduce", [&] {
    const Recorded task(stream, "hcom_allReduce_", count, dtype, comm);
    check(chip().all_reduce(to, from, count, dtype_of(dtype), reduction_of(operation), nullptr,
                            used_comm(comm)->comm, queue_of(stream)));
  });
}

ISTHMUS_ASCEND_EXPORT int HcclReduce(void* from, void* to, uint64_t count, int dtype, int operation,
                                     uint32_t root, void* comm, void* stream) {
  return call("HcclReduce", [&] {
    const Recorded task(stream, "hcom_reduce_", count, dtype, comm);
    check(chip().reduce(to, from, count, dtype_of(dtype), reduction_of(operation), nullptr,
                        static_cast<int32_t>(root), used_comm(comm)->comm, queue_of(stream)));
  });
}

ISTHMUS_ASCEND_EXPORT int HcclBroadcast(void* buffer, uint64_t count, int dtype, uint32_t root, void* comm,
                                        void* stream) {
  return call("HcclBroadcast", [&] {
    const Recorded task(stream, "hcom_broadcast_", count, dtype, comm);
    check(chip().broadcast(buffer, count, dtype_of(dtype), static_cast<int32_t>(root), used_comm(comm)->comm,
                           queue_of(stream)));
  });
}

ISTHMUS_ASCEND_EXPORT int HcclAllGather(void* from, void* to, uint64_t count, int dtype, void* comm,
                                        void* stream) {
  return call("HcclAllGather", [&] {
    const Recorded task(stream, "hcom_allGather_", count, dtype, comm);
    check(chip().all_gather(to, from, count, dtype_of(dtype), used_comm(comm)->comm, queue_of(stream)));
  });
}

ISTHMUS_ASCEND_EXPORT int HcclReduceScatter(void* from, void* to, uint64_t count, int dtype, int operation,
                                            void* comm, void* stream) {
  return call("HcclReduceScatter", [&] {
    const Recorded task(stream, "hcom_reduceScatter_", count, dtype, comm);
    check(chip().reduce_scatter(to, from, count, dtype_of(dtype), reduction_of(operation), nullptr,
                                used_comm(comm)->comm, queue_of(stream)));
  });
}

ISTHMUS_ASCEND_EXPORT int HcclScatter(void* from, void* to, uint64_t count, int dtype, uint32_t root,
                                      void* comm, void* stream) {
  return call("HcclScatter", [&] {
    const Recorded task(stream, "hcom_scatter_", count, dtype, comm);
    check(chip().scatter(to, from, count, dtype_of(dtype), static_cast<int32_t>(root), used_comm(comm)->comm,
                         queue_of(stream)));
  });
}

ISTHMUS_ASCEND_EXPORT int HcclSend(void* from, uint64_t count, int dtype, uint32_t peer, void* comm,
                                   void* stream) {
  return call("HcclSend", [&] {
    const Recorded task(stream, "hcom_send_", count, dtype, comm);
    check(chip().send(from, count, dtype_of(dtype), static_cast<int32_t>(peer), used_comm(comm)->comm,
                      queue_of(stream)));
  });
}

ISTHMUS_ASCEND_EXPORT int HcclRecv(void* to, uint64_t count, int dtype, uint32_t peer, void* comm,
                                   void* stream) {
  return call("HcclRecv", [&] {
    const Recorded task(stream, "hcom_receive_", count, dtype, comm);
    check(chip().receive(to, count, dtype_of(dtype), static_cast<int32_t>(peer), used_comm(comm)->comm,
                         queue_of(stream)));
  });
}

// HcclSendRecvItem, in its layout; direction: 0 send, 1 receive.
struct HcclSendRecvItem {
  int direction;
  void* buffer;
  uint64_t count;
  int dtype;
  uint32_t peer;
};

ISTHMUS_ASCEND_EXPORT int HcclBatchSendRecv(const HcclSendRecvItem* items, uint32_t count, void* comm,
                                            void* stream) {
  return call("HcclBatchSendRecv", [&] {
    require_not_null(items, "items");
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; ++i)
      if (items[i].direction == 0) bytes += items[i].count * bytes_of(items[i].dtype);
    constexpr int kInt8 = 0;
    const Recorded task(stream, "hcom_batchSendRecv_", bytes, kInt8, comm);
    const auto found = used_comm(comm);
    isthmus_stream queue = queue_of(stream);
    Group group;
    for (uint32_t i = 0; i < count; ++i) {
      const HcclSendRecvItem& item = items[i];
      const auto transfer = item.direction == 0
                                ? chip().send(item.buffer, item.count, dtype_of(item.dtype),
                                              static_cast<int32_t>(item.peer), found->comm, queue)
                                : chip().receive(item.buffer, item.count, dtype_of(item.dtype),
                                                 static_cast<int32_t>(item.peer), found->comm, queue);
      check(transfer);
    }
    group.end();
  });
}

ISTHMUS_ASCEND_EXPORT int HcclAlltoAll(const void* from, uint64_t from_count, int from_dtype, void* to,
                                       uint64_t to_count, int to_dtype, void* comm, void* stream) {
  return call("HcclAlltoAll", [&] {
    const Recorded task(stream, "hcom_alltoall_", to_count, to_dtype, comm);
    require_equal(from_dtype, to_dtype);
    if (from_count != to_count) throw Failure{kInvalidParameter, "the counts of the two buffers differ"};
    check(chip().all_to_all(to, from, to_count, dtype_of(to_dtype), used_comm(comm)->comm, queue_of(stream)));
  });
}

ISTHMUS_ASCEND_EXPORT int HcclAlltoAllV(const void* from, const uint64_t* from_counts,
                                        const uint64_t* from_offsets, int from_dtype, void* to,
                                        const uint64_t* to_counts, const uint64_t* to_offsets, int to_dtype,
                                        void* comm, void* stream) {
  return call("HcclAlltoAllV", [&] {
    require_equal(from_dtype, to_dtype);
    const auto found = used_comm(comm);
    const Counts counts[] = {counts_of(to_counts, found->size, "receive counts"),
                             counts_of(to_offsets, found->size, "receive offsets"),
                             counts_of(from_counts, found->size, "send counts"),
                             counts_of(from_offsets, found->size, "send offsets")};
    const Recorded task(stream, "hcom_alltoallv_", sum_of(counts[2]), from_dtype, comm);
    check(chip().all_to_all_v(to, counts[0].data(), counts[1].data(), from, counts[2].data(),
                              counts[3].data(), dtype_of(to_dtype), found->comm, queue_of(stream)));
  });
}

// matrix: row i has the counts that rank i sends.
ISTHMUS_ASCEND_EXPORT int HcclAlltoAllVC(const void* from, const uint64_t* matrix, int from_dtype, void* to,
                                         int to_dtype, void* comm, void* stream) {
  return call("HcclAlltoAllVC", [&] {
    require_equal(from_dtype, to_dtype);
    const auto found = used_comm(comm);
    require_not_null(matrix, "counts");
    const auto size = static_cast<size_t>(found->size), rank = static_cast<size_t>(found->rank);
    const Counts sent(matrix + rank * size, matrix + (rank + 1) * size);
    const Recorded task(stream, "hcom_alltoallvc_", sum_of(sent), from_dtype, comm);
    Counts received(size);
    for (size_t i = 0; i < size; ++i) received[i] = matrix[i * size + rank];
    check(chip().all_to_all_v(to, received.data(), offsets_of(received).data(), from, sent.data(),
                              offsets_of(sent).data(), dtype_of(to_dtype), found->comm, queue_of(stream)));
  });
}

ISTHMUS_ASCEND_EXPORT int HcclAllGatherV(const void* from, uint64_t count, void* to,
                                         const uint64_t* to_counts, const uint64_t* to_offsets, int dtype,
                                         void* comm, void* stream) {
  return call("HcclAllGatherV", [&] {
    const Recorded task(stream, "hcom_allGatherV_", count, dtype, comm);
    const auto found = used_comm(comm);
    const Counts counts = counts_of(to_counts, found->size, "counts");
    const Counts offsets = counts_of(to_offsets, found->size, "offsets");
    const Counts sent(counts.size(), count), start(counts.size(), 0);
    check(chip().all_to_all_v(to, counts.data(), offsets.data(), from, sent.data(), start.data(),
                              dtype_of(dtype), found->comm, queue_of(stream)));
  });
}

ISTHMUS_ASCEND_EXPORT int HcclReduceScatterV(const void* from, const uint64_t* from_counts,
                                             const uint64_t* from_offsets, void* to, uint64_t, int dtype,
                                             int operation, void* comm, void* stream) {
  return call("HcclReduceScatterV", [&] {
    const auto found = used_comm(comm);
    const Counts counts = counts_of(from_counts, found->size, "counts");
    const Counts offsets = counts_of(from_offsets, found->size, "offsets");
    const Recorded task(stream, "hcom_reduceScatterV_", sum_of(counts), dtype, comm);
    isthmus_stream queue = queue_of(stream);
    for (int32_t root = 0; root < found->size; ++root) {
      const auto part = static_cast<size_t>(root);
      if (counts[part] == 0) continue;
      check(chip().reduce(to, element_at(from, offsets[part], dtype), counts[part], dtype_of(dtype),
                          reduction_of(operation), nullptr, root, found->comm, queue));
    }
  });
}

ISTHMUS_ASCEND_EXPORT int HcclGroupStart() {
  return call("HcclGroupStart", [] {
    check(chip().group_start());
    ++open_groups;
  });
}

ISTHMUS_ASCEND_EXPORT int HcclGroupEnd() {
  return call("HcclGroupEnd", [] {
    if (open_groups > 0) --open_groups;
    check(chip().group_end());
  });
}
