// Collectives and messages: enqueued on streams by HCCL, which moves any dtype as bytes.
#include <vector>

#include "element_bytes.h"
#include "group.h"
#include "parts.h"

namespace isthmus::npu {
namespace {

size_t bytes_of(size_t count, isthmus_dtype dtype) {
  const size_t bytes = element_bytes(dtype);
  require(bytes != 0, "the dtype is not one of isthmus_dtype");
  return count * bytes;
}

std::vector<uint64_t> bytes_of(const size_t* counts, isthmus_dtype dtype, const Communicator& communicator) {
  std::vector<uint64_t> bytes;
  for (int32_t rank = 0; rank < communicator.size; ++rank) bytes.push_back(bytes_of(counts[rank], dtype));
  return bytes;
}

uint32_t rank_in(const Communicator& communicator, int32_t rank) {
  if (rank < 0 || rank >= communicator.size)
    fail(ISTHMUS_INVALID_ARGUMENT, "communicator '%s' has ranks 0 to %d, not %d", communicator.name.c_str(),
         communicator.size - 1, rank);
  return static_cast<uint32_t>(rank);
}

struct Numbers {
  int dtype, op;  // HcclDataType and HcclReduceOp
};

Numbers numbers_of(isthmus_dtype dtype, isthmus_reduce_op op) {
  const auto found_dtype = reduced_dtype(dtype);
  const auto found_op = reduction(op);
  if (!found_dtype || !found_op)
    fail(ISTHMUS_UNSUPPORTED, "HCCL does not reduce dtype %d by operation %d", static_cast<int>(dtype),
         static_cast<int>(op));
  return {*found_dtype, *found_op};
}

// Submits the call that body makes of a communicator's handle.
template <typename Body>
isthmus_status collective(isthmus_comm comm, Body&& body) {
  return call_on_device([&] {
    const Communicator& communicator = communicator_of(comm);
    require_usable(communicator);
    submit(communicator, body(communicator));
    return ISTHMUS_OK;
  });
}

isthmus_status message(int direction, const void* buffer, size_t count, isthmus_dtype dtype, int32_t peer,
                       isthmus_comm comm, isthmus_stream stream) {
  return call_on_device([&] {
    const Communicator& communicator = communicator_of(comm);
    submit(
        communicator, stream,
        {direction, const_cast<void*>(buffer), bytes_of(count, dtype), kInt8, rank_in(communicator, peer)});
    return ISTHMUS_OK;
  });
}

isthmus_status comm_reduces(isthmus_dtype dtype, isthmus_reduce_op op) {
  return call([&] { return numbers_of(dtype, op), ISTHMUS_OK; });
}

isthmus_status all_reduce(void* to, const void* from, size_t count, isthmus_dtype dtype, isthmus_reduce_op op,
                          const void*, isthmus_comm comm, isthmus_stream stream) {
  return collective(comm, [&](const Communicator& c) {
    return [=, comm = c.native, n = numbers_of(dtype, op)] {
      ISTHMUS_HCCL(AllReduce, from, to, count, n.dtype, n.op, comm, stream);
    };
  });
}

isthmus_status reduce(void* to, const void* from, size_t count, isthmus_dtype dtype, isthmus_reduce_op op,
                      const void*, int32_t root, isthmus_comm comm, isthmus_stream stream) {
  return collective(comm, [&](const Communicator& c) {
    // Written on the root only, and not null.
    const void* const out = to == nullptr ? from : to;
    return [=, comm = c.native, n = numbers_of(dtype, op), root = rank_in(c, root)] {
      ISTHMUS_HCCL(Reduce, from, const_cast<void*>(out), count, n.dtype, n.op, root, comm, stream);
    };
  });
}

isthmus_status reduce_scatter(void* to, const void* from, size_t count, isthmus_dtype dtype,
                              isthmus_reduce_op op, const void*, isthmus_comm comm, isthmus_stream stream) {
  return collective(comm, [&](const Communicator& c) {
    return [=, comm = c.native, n = numbers_of(dtype, op)] {
      ISTHMUS_HCCL(ReduceScatter, from, to, count, n.dtype, n.op, comm, stream);
    };
  });
}

isthmus_status broadcast(void* buffer, size_t count, isthmus_dtype dtype, int32_t root, isthmus_comm comm,
                         isthmus_stream stream) {
  return collective(comm, [&](const Communicator& c) {
    return [=, comm = c.native, bytes = bytes_of(count, dtype), root = rank_in(c, root)] {
      ISTHMUS_HCCL(Broadcast, buffer, bytes, kInt8, root, comm, stream);
    };
  });
}

isthmus_status all_gather(void* to, const void* from, size_t count, isthmus_dtype dtype, isthmus_comm comm,
                          isthmus_stream stream) {
  return collective(comm, [&](const Communicator& c) {
    return [=, comm = c.native, bytes = bytes_of(count, dtype)] {
      ISTHMUS_HCCL(AllGather, from, to, bytes, kInt8, comm, stream);
    };
  });
}

isthmus_status scatter(void* to, const void* from, size_t count, isthmus_dtype dtype, int32_t root,
                       isthmus_comm comm, isthmus_stream stream) {
  return collective(comm, [&](const Communicator& c) {
    return [=, comm = c.native, bytes = bytes_of(count, dtype), root = rank_in(c, root)] {
      ISTHMUS_HCCL(Scatter, from, to, bytes, kInt8, root, comm, stream);
    };
  });
}

isthmus_status all_to_all(void* to, const void* from, size_t count, isthmus_dtype dtype, isthmus_comm comm,
                          isthmus_stream stream) {
  return collective(comm, [&](const Communicator& c) {
    return [=, comm = c.native, bytes = bytes_of(count, dtype)] {
      ISTHMUS_HCCL(AlltoAll, from, bytes, kInt8, to, bytes, kInt8, comm, stream);
    };
  });
}

isthmus_status all_to_all_v(void* to, const size_t* to_counts, const size_t* to_offsets, const void* from,
                            const size_t* from_counts, const size_t* from_offsets, isthmus_dtype dtype,
                            isthmus_comm comm, isthmus_stream stream) {
  return collective(comm, [&](const Communicator& c) {
    return
        [=, comm = c.native, taken = bytes_of(to_counts, dtype, c), taken_at = bytes_of(to_offsets, dtype, c),
         sent = bytes_of(from_counts, dtype, c), sent_at = bytes_of(from_offsets, dtype, c)] {
          ISTHMUS_HCCL(AlltoAllV, from, sent.data(), sent_at.data(), kInt8, to, taken.data(), taken_at.data(),
                       kInt8, comm, stream);
        };
  });
}

isthmus_status send(const void* from, size_t count, isthmus_dtype dtype, int32_t peer, isthmus_comm comm,
                    isthmus_stream stream) {
  return message(0, from, count, dtype, peer, comm, stream);
}

isthmus_status receive(void* to, size_t count, isthmus_dtype dtype, int32_t peer, isthmus_comm comm,
                       isthmus_stream stream) {
  return message(1, to, count, dtype, peer, comm, stream);
}

isthmus_status group_start() {
  return call([] { return start_group(), ISTHMUS_OK; });
}

isthmus_status group_end() {
  return call_on_device([] { return end_group(), ISTHMUS_OK; });
}

}  // namespace

void add_collective_functions(isthmus_driver& table) {
  table.comm_reduces = comm_reduces;
  table.all_reduce = all_reduce;
  table.reduce = reduce;
  table.broadcast = broadcast;
  table.all_gather = all_gather;
  table.reduce_scatter = reduce_scatter;
  table.all_to_all = all_to_all;
  table.all_to_all_v = all_to_all_v;
  table.scatter = scatter;
  table.send = send;
  table.receive = receive;
  table.group_start = group_start;
  table.group_end = group_end;
}

}  // namespace isthmus::npu
