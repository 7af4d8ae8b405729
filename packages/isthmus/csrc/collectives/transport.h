// The interface of what carries collectives: the driver's communicators (driver/transport.h) or gloo
// (gloo/transport.h). ChipBackend::choose() decides which one takes an operation.
#pragma once

#include <ATen/core/Tensor.h>

#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

namespace isthmus {

class Transport {
 public:
  using Tensors = std::vector<at::Tensor>;
  using Lists = std::vector<Tensors>;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  struct Splits {
    std::vector<int64_t> outputs, inputs;  // rows for each rank; empty for equal ones
  };

  virtual ~Transport() = default;

  virtual WorkPtr broadcast(const at::Tensor& tensor, const c10d::BroadcastOptions& options) = 0;
  virtual WorkPtr all_reduce(const Tensors& tensors, const c10d::AllreduceOptions& options,
                             bool is_coalesced) = 0;
  virtual WorkPtr reduce(const at::Tensor& tensor, const c10d::ReduceOptions& options) = 0;
  // Into a list of one tensor for each rank; sizes may differ.
  virtual WorkPtr all_gather(const Tensors& outputs, const at::Tensor& input,
                             const c10d::AllgatherOptions& options) = 0;
  virtual WorkPtr all_gather_coalesced(const Lists& outputs, const Tensors& inputs,
                                       const c10d::AllgatherOptions& options) = 0;
  virtual WorkPtr all_gather_into(const Tensors& outputs, const Tensors& inputs,
                                  const c10d::AllgatherOptions& options, bool is_coalesced) = 0;
  // outputs of gather and inputs of scatter are empty on ranks other than the root.
  virtual WorkPtr gather(const Tensors& outputs, const at::Tensor& input,
                         const c10d::GatherOptions& options) = 0;
  virtual WorkPtr scatter(const at::Tensor& output, const Tensors& inputs,
                          const c10d::ScatterOptions& options) = 0;
  virtual WorkPtr reduce_scatter(const at::Tensor& output, const Tensors& inputs,
                                 const c10d::ReduceScatterOptions& options) = 0;
  virtual WorkPtr reduce_scatter_into(const Tensors& outputs, const Tensors& inputs,
                                      const c10d::ReduceScatterOptions& options, bool is_coalesced) = 0;
  virtual WorkPtr all_to_all(const Tensors& outputs, const Tensors& inputs,
                             const c10d::AllToAllOptions& options) = 0;
  virtual WorkPtr all_to_all_single(const at::Tensor& output, const at::Tensor& input, const Splits& splits,
                                    const c10d::AllToAllOptions& options) = 0;
  // A message to (SEND) or from (RECV) the peer.
  virtual WorkPtr message(c10d::OpType type, const at::Tensor& tensor, int peer, int tag) = 0;
  virtual WorkPtr receive_from_any(const at::Tensor& tensor, int tag) = 0;
  virtual WorkPtr barrier(const c10d::BarrierOptions& options) = 0;
};

}  // namespace isthmus
