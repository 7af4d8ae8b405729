// A caller's request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "driver.h"

namespace isthmus::host {

class Communicator;
class Stream;

enum class Kind : uint32_t {
  kAllReduce,
  kReduce,
  kBroadcast,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kAllToAllV,
  kGather,
  kScatter,
  kSend,
  kReceive,
  kExchange,  // comm_split(): bytes of host memory, gathered on all ranks
};
const char* kind_name(Kind kind) noexcept;

// A part of a buffer, in elements.
struct Part {
  uint64_t offset, count;
};

struct Request {
  Kind kind;
  std::shared_ptr<Communicator> communicator;
  Stream* stream = nullptr;
  void* to = nullptr;
  const void* from = nullptr;
  size_t count = 0;  // same meaning as in driver.h
  isthmus_dtype dtype = ISTHMUS_UINT8;
  isthmus_reduce_op op = ISTHMUS_SUM;
  int32_t root = -1;  // or the peer of a send or receive; -1 for none
  alignas(16) char factor[16] = {};
  std::vector<Part> to_parts{}, from_parts{};  // kAllToAllV: of each rank

  // Bytes that this rank's buffers hold; 0 for one that it does not use.
  uint64_t to_bytes() const;
  uint64_t from_bytes() const;
  // Bytes of the largest contribution of any rank; equal on all ranks except for kAllToAllV.
  uint64_t contribution() const;
};

// "all_reduce of 8 float32 (sum)", for messages.
std::string describe(Kind kind, uint64_t count, isthmus_dtype dtype, isthmus_reduce_op op, int32_t root);

}  // namespace isthmus::host
