// Rows that compute, exchange data with other ranks on the stream, and compute further.
#pragma once

#include <ATen/core/Tensor.h>

#include "opapi/program.h"

namespace isthmus::ascend {

// The communicator of the parameter `group`.
struct Ranks {
  void* comm = nullptr;
  int64_t size = 1, rank = 0;
};

enum class Exchange : uint8_t { kAllReduce, kAllGather, kReduceScatter, kAllToAll, kAllToAllV };

struct Fused {
  const char* name;
  Exchange exchange;
  at::Tensor (*before)(const Call& call, const Ranks& ranks);  // tensor that this rank sends
  void (*after)(const Call& call, const at::Tensor& received, const Ranks& ranks);
};

// One exchange, with its buffers. Parts follow one another by rank along the first dimension.
struct Transfer {
  const Fused* fused = nullptr;
  Ranks ranks;
  at::Tensor sent, received;
  std::vector<uint64_t> send_counts, receive_counts;  // rows for each rank, of kAllToAllV
};

// Finds the communicator, and runs `before` for the shapes. Throws c10::Error.
Transfer prepare_transfer(const Fused& fused, const Call& call);

void before(Transfer& transfer, const Call& call);
void after(const Transfer& transfer, const Call& call);

// Enqueues the exchange on an aclrtStream. Returns 0, or an HcclResult, with its message.
int start(const Transfer& transfer, void* stream);

const std::vector<Fused>& fused_functions();

}  // namespace isthmus::ascend
