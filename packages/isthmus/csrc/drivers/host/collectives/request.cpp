#include "drivers/host/collectives/request.h"

#include <algorithm>

#include "drivers/host/collectives/communicator.h"
#include "drivers/host/collectives/reduce_kernels.h"

namespace isthmus::host {
namespace {

constexpr const char* kNames[] = {"all_reduce",     "reduce",     "broadcast",    "all_gather",
                                  "reduce_scatter", "all_to_all", "all_to_all_v", "gather",
                                  "scatter",        "send",       "receive",      "comm_split"};

uint64_t end_of(const std::vector<Part>& parts) {
  uint64_t end = 0;
  for (const Part& part : parts)
    if (part.count != 0) end = std::max(end, part.offset + part.count);
  return end;
}

}  // namespace

const char* kind_name(Kind kind) noexcept { return kNames[static_cast<size_t>(kind)]; }

uint64_t Request::to_bytes() const {
  const auto ranks = static_cast<uint64_t>(communicator->world_size());
  const bool is_root = root == communicator->rank();
  const uint64_t bytes = count * element_bytes(dtype);
  switch (kind) {
    case Kind::kAllReduce:
    case Kind::kReduceScatter:
    case Kind::kScatter:
    case Kind::kReceive:
      return bytes;
    case Kind::kReduce:
      return is_root ? bytes : 0;
    case Kind::kBroadcast:
      return is_root ? 0 : bytes;
    case Kind::kAllGather:
    case Kind::kAllToAll:
      return ranks * bytes;
    case Kind::kGather:
      return is_root ? ranks * bytes : 0;
    case Kind::kAllToAllV:
      return end_of(to_parts) * element_bytes(dtype);
    default:
      return 0;
  }
}

uint64_t Request::from_bytes() const {
  const auto ranks = static_cast<uint64_t>(communicator->world_size());
  const bool is_root = root == communicator->rank();
  const uint64_t bytes = count * element_bytes(dtype);
  switch (kind) {
    case Kind::kAllToAll:
    case Kind::kReduceScatter:
      return ranks * bytes;
    case Kind::kBroadcast:
      return is_root ? bytes : 0;
    case Kind::kScatter:
      return is_root ? ranks * bytes : 0;
    case Kind::kAllToAllV:
      return end_of(from_parts) * element_bytes(dtype);
    case Kind::kReceive:
      return 0;
    default:
      return bytes;
  }
}

uint64_t Request::contribution() const {
  const uint64_t bytes = count * element_bytes(dtype);
  const bool is_per_rank = kind == Kind::kAllToAll || kind == Kind::kReduceScatter || kind == Kind::kScatter;
  if (kind == Kind::kAllToAllV) return from_bytes();
  return is_per_rank ? bytes * static_cast<uint64_t>(communicator->world_size()) : bytes;
}

std::string describe(Kind kind, uint64_t count, isthmus_dtype dtype, isthmus_reduce_op op, int32_t root) {
  std::string text = kind_name(kind);
  if (kind == Kind::kExchange) return text;
  if (kind != Kind::kAllToAllV) text += " of " + std::to_string(count);
  text += std::string(" ") + dtype_name(dtype);
  if (kind == Kind::kAllReduce || kind == Kind::kReduce || kind == Kind::kReduceScatter) {
    text += std::string(" (") + reduce_op_name(op) + ")";
  }
  const bool has_root =
      kind == Kind::kReduce || kind == Kind::kBroadcast || kind == Kind::kGather || kind == Kind::kScatter;
  if (has_root) text += " with root " + std::to_string(root);
  return text;
}

}  // namespace isthmus::host
