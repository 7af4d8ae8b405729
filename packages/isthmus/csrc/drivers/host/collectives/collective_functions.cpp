// Collectives and messages: their arguments are checked here, before anything is enqueued.
#include <cstring>
#include <limits>

#include "drivers/host/collectives/communicator.h"
#include "drivers/host/collectives/group.h"
#include "drivers/host/collectives/handles.h"
#include "drivers/host/collectives/reduce_kernels.h"
#include "drivers/host/collectives/request.h"
#include "drivers/host/device.h"
#include "drivers/host/error.h"
#include "drivers/host/parts.h"

namespace isthmus::host {
namespace {

Request make_request(Kind kind, isthmus_comm comm, isthmus_stream stream, size_t count, isthmus_dtype dtype) {
  Request request{kind, communicator_of(comm, kind_name(kind))};
  request.communicator->require_healthy();
  const size_t bytes = element_bytes(dtype);
  if (bytes == 0) {
    fail(ISTHMUS_INVALID_ARGUMENT, "%s: %d is not a dtype; pass an isthmus_dtype", kind_name(kind),
         static_cast<int>(dtype));
  }
  const auto ranks = static_cast<size_t>(request.communicator->world_size());
  if (count > std::numeric_limits<size_t>::max() / bytes / ranks) {
    fail(ISTHMUS_INVALID_ARGUMENT, "%s: a count of %zu is out of range", kind_name(kind), count);
  }
  request.stream = &stream_of(stream);
  if (request.stream->device() != request.communicator->device()) {
    fail(ISTHMUS_INVALID_ARGUMENT,
         "%s: the stream is of chip %d, the communicator of chip %d; use a stream of the communicator's",
         kind_name(kind), request.stream->device(), request.communicator->device());
  }
  request.count = count;
  request.dtype = dtype;
  return request;
}

void set_root(Request& request, int32_t root, const char* argument) {
  if (root < 0 || root >= request.communicator->world_size()) {
    fail(ISTHMUS_INVALID_ARGUMENT, "%s: %s %d is not in 0 to %d", kind_name(request.kind), argument, root,
         request.communicator->world_size() - 1);
  }
  request.root = root;
}

void set_reduction(Request& request, isthmus_reduce_op op, const void* factor) {
  if (find_kernels(request.dtype, op) == nullptr) {
    fail(ISTHMUS_UNSUPPORTED, "%s: %s has no reduction %s; convert to another dtype", kind_name(request.kind),
         dtype_name(request.dtype), reduce_op_name(op));
  }
  request.op = op;
  if (op != ISTHMUS_PREMUL_SUM) return;
  require_not_null(factor, kind_name(request.kind), "factor");
  std::memcpy(request.factor, factor, element_bytes(request.dtype));
}

void require_memory(const Request& request, const void* pointer, uint64_t bytes, const char* argument) {
  if (bytes == 0) return;
  Device& device = device_at(request.communicator->device());
  if (!device.memory().covers(pointer, bytes)) {
    fail(ISTHMUS_INVALID_ARGUMENT,
         "%s: the %llu bytes at %s=%p are not inside an allocation of chip %d, the communicator's; check the "
         "pointer and the count",
         kind_name(request.kind), static_cast<unsigned long long>(bytes), argument, pointer, device.index());
  }
  if (device.memory().file_ranges(pointer, bytes).empty()) {
    fail(ISTHMUS_UNSUPPORTED, "%s: %s=%p is memory of another process; copy it to memory of this one first",
         kind_name(request.kind), argument, pointer);
  }
  if (reinterpret_cast<uintptr_t>(pointer) % element_bytes(request.dtype) != 0) {
    fail(ISTHMUS_INVALID_ARGUMENT, "%s: %s=%p is not aligned to its %zu-byte elements",
         kind_name(request.kind), argument, pointer, element_bytes(request.dtype));
  }
}

// Allowed in-place position of from in to, or of to in from, in bytes.
int64_t in_place_offset(const Request& request) {
  const auto own = static_cast<int64_t>(request.communicator->rank()) *
                   static_cast<int64_t>(request.count * element_bytes(request.dtype));
  switch (request.kind) {
    case Kind::kAllGather:
    case Kind::kGather:
      return own;
    case Kind::kReduceScatter:
    case Kind::kScatter:
      return -own;
    default:
      return 0;
  }
}

void require_no_overlap(const Request& request) {
  const auto* to = static_cast<const char*>(request.to);
  const auto* from = static_cast<const char*>(request.from);
  const uint64_t to_bytes = request.to_bytes(), from_bytes = request.from_bytes();
  if (to_bytes == 0 || from_bytes == 0 || to + to_bytes <= from || from + from_bytes <= to) return;
  const bool is_exchange = request.kind == Kind::kAllToAll || request.kind == Kind::kAllToAllV;
  if (!is_exchange && from - to == in_place_offset(request)) return;
  fail(ISTHMUS_INVALID_ARGUMENT, "%s: to=%p and from=%p overlap; %s", kind_name(request.kind), request.to,
       request.from, is_exchange ? "it has no in-place form" : "they may only be in place as a whole");
}

isthmus_status enqueue_checked(Request request, void* to, const void* from) {
  request.to = to;
  request.from = from;
  require_memory(request, request.to, request.to_bytes(), "to");
  require_memory(request, request.from, request.from_bytes(), "from");
  require_no_overlap(request);
  enqueue(std::move(request));
  return ISTHMUS_OK;
}

isthmus_status all_reduce(void* to, const void* from, size_t count, isthmus_dtype dtype, isthmus_reduce_op op,
                          const void* factor, isthmus_comm comm, isthmus_stream stream) {
  return call([&] {
    Request request = make_request(Kind::kAllReduce, comm, stream, count, dtype);
    set_reduction(request, op, factor);
    return enqueue_checked(std::move(request), to, from);
  });
}

isthmus_status reduce(void* to, const void* from, size_t count, isthmus_dtype dtype, isthmus_reduce_op op,
                      const void* factor, int32_t root, isthmus_comm comm, isthmus_stream stream) {
  return call([&] {
    Request request = make_request(Kind::kReduce, comm, stream, count, dtype);
    set_root(request, root, "root");
    set_reduction(request, op, factor);
    return enqueue_checked(std::move(request), to, from);
  });
}

isthmus_status broadcast(void* buffer, size_t count, isthmus_dtype dtype, int32_t root, isthmus_comm comm,
                         isthmus_stream stream) {
  return call([&] {
    Request request = make_request(Kind::kBroadcast, comm, stream, count, dtype);
    set_root(request, root, "root");
    return enqueue_checked(std::move(request), buffer, buffer);
  });
}

isthmus_status all_gather(void* to, const void* from, size_t count, isthmus_dtype dtype, isthmus_comm comm,
                          isthmus_stream stream) {
  return call([&] {
    Request request = make_request(Kind::kAllGather, comm, stream, count, dtype);
    return enqueue_checked(std::move(request), to, from);
  });
}

isthmus_status reduce_scatter(void* to, const void* from, size_t count, isthmus_dtype dtype,
                              isthmus_reduce_op op, const void* factor, isthmus_comm comm,
                              isthmus_stream stream) {
  return call([&] {
    Request request = make_request(Kind::kReduceScatter, comm, stream, count, dtype);
    set_reduction(request, op, factor);
    return enqueue_checked(std::move(request), to, from);
  });
}

isthmus_status all_to_all(void* to, const void* from, size_t count, isthmus_dtype dtype, isthmus_comm comm,
                          isthmus_stream stream) {
  return call([&] {
    Request request = make_request(Kind::kAllToAll, comm, stream, count, dtype);
    return enqueue_checked(std::move(request), to, from);
  });
}

std::vector<Part> parts_of(const Request& request, const size_t* counts, const size_t* offsets,
                           const char* side) {
  constexpr uint64_t kMost = uint64_t{1} << 58;  // elements, so that bytes and ends do not overflow
  if (counts == nullptr || offsets == nullptr) {
    fail(ISTHMUS_INVALID_ARGUMENT, "all_to_all_v: %s_counts or %s_offsets is null", side, side);
  }
  std::vector<Part> parts;
  for (int32_t rank = 0; rank < request.communicator->world_size(); ++rank) {
    parts.push_back({offsets[rank], counts[rank]});
    if (offsets[rank] < kMost && counts[rank] < kMost) continue;
    fail(ISTHMUS_INVALID_ARGUMENT, "all_to_all_v: %s_counts[%d]=%zu or %s_offsets[%d]=%zu is out of range",
         side, rank, counts[rank], side, rank, offsets[rank]);
  }
  return parts;
}

isthmus_status all_to_all_v(void* to, const size_t* to_counts, const size_t* to_offsets, const void* from,
                            const size_t* from_counts, const size_t* from_offsets, isthmus_dtype dtype,
                            isthmus_comm comm, isthmus_stream stream) {
  return call([&] {
    Request request = make_request(Kind::kAllToAllV, comm, stream, 0, dtype);
    request.to_parts = parts_of(request, to_counts, to_offsets, "to");
    request.from_parts = parts_of(request, from_counts, from_offsets, "from");
    return enqueue_checked(std::move(request), to, from);
  });
}

isthmus_status gather(void* to, const void* from, size_t count, isthmus_dtype dtype, int32_t root,
                      isthmus_comm comm, isthmus_stream stream) {
  return call([&] {
    Request request = make_request(Kind::kGather, comm, stream, count, dtype);
    set_root(request, root, "root");
    return enqueue_checked(std::move(request), to, from);
  });
}

isthmus_status scatter(void* to, const void* from, size_t count, isthmus_dtype dtype, int32_t root,
                       isthmus_comm comm, isthmus_stream stream) {
  return call([&] {
    Request request = make_request(Kind::kScatter, comm, stream, count, dtype);
    set_root(request, root, "root");
    return enqueue_checked(std::move(request), to, from);
  });
}

isthmus_status send(const void* from, size_t count, isthmus_dtype dtype, int32_t peer, isthmus_comm comm,
                    isthmus_stream stream) {
  return call([&] {
    Request request = make_request(Kind::kSend, comm, stream, count, dtype);
    set_root(request, peer, "peer");
    return enqueue_checked(std::move(request), nullptr, from);
  });
}

isthmus_status receive(void* to, size_t count, isthmus_dtype dtype, int32_t peer, isthmus_comm comm,
                       isthmus_stream stream) {
  return call([&] {
    Request request = make_request(Kind::kReceive, comm, stream, count, dtype);
    set_root(request, peer, "peer");
    return enqueue_checked(std::move(request), to, nullptr);
  });
}

isthmus_status group_start() {
  return call([] {
    start_group();
    return ISTHMUS_OK;
  });
}

isthmus_status group_end() {
  return call([] {
    end_group();
    return ISTHMUS_OK;
  });
}

}  // namespace

void add_collective_functions(isthmus_driver& table) {
  table.all_reduce = all_reduce;
  table.reduce = reduce;
  table.broadcast = broadcast;
  table.all_gather = all_gather;
  table.reduce_scatter = reduce_scatter;
  table.all_to_all = all_to_all;
  table.all_to_all_v = all_to_all_v;
  table.gather = gather;
  table.scatter = scatter;
  table.send = send;
  table.receive = receive;
  table.group_start = group_start;
  table.group_end = group_end;
}

}  // namespace isthmus::host
