// Collectives by gloo: of CPU tensors, and of chip tensors over the chip's bytes.
//
// Gloo's headers are not in the torch wheel, so its groups come from a function that the caller passes in,
// and are used through c10d::Backend.
#pragma once

#include <memory>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "collectives/gloo/host_views.h"
#include "collectives/group.h"
#include "collectives/transport.h"

namespace isthmus {

class GlooTransport final : public Transport {
 public:
  GlooTransport(std::shared_ptr<Group> group, c10::intrusive_ptr<c10d::Backend> gloo);

  // Throws after end().
  c10d::Backend& gloo() const;
  bool has_ended() const { return gloo_ == nullptr; }
  // Ends gloo's threads, which would otherwise meet the end of the interpreter with tensors in hand.
  void end();

  WorkPtr broadcast(const at::Tensor&, const c10d::BroadcastOptions&) override;
  WorkPtr all_reduce(const Tensors&, const c10d::AllreduceOptions&, bool is_coalesced) override;
  WorkPtr reduce(const at::Tensor&, const c10d::ReduceOptions&) override;
  WorkPtr all_gather(const Tensors&, const at::Tensor&, const c10d::AllgatherOptions&) override;
  WorkPtr all_gather_coalesced(const Lists&, const Tensors&, const c10d::AllgatherOptions&) override;
  WorkPtr all_gather_into(const Tensors&, const Tensors&, const c10d::AllgatherOptions&, bool) override;
  WorkPtr gather(const Tensors&, const at::Tensor&, const c10d::GatherOptions&) override;
  WorkPtr scatter(const at::Tensor&, const Tensors&, const c10d::ScatterOptions&) override;
  WorkPtr reduce_scatter(const at::Tensor&, const Tensors&, const c10d::ReduceScatterOptions&) override;
  WorkPtr reduce_scatter_into(const Tensors&, const Tensors&, const c10d::ReduceScatterOptions&,
                              bool is_coalesced) override;
  WorkPtr all_to_all(const Tensors&, const Tensors&, const c10d::AllToAllOptions&) override;
  WorkPtr all_to_all_single(const at::Tensor&, const at::Tensor&, const Splits&,
                            const c10d::AllToAllOptions&) override;
  WorkPtr message(c10d::OpType, const at::Tensor&, int peer, int tag) override;
  WorkPtr receive_from_any(const at::Tensor&, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions&) override;

  // Each operation in between is sent at once; end_coalescing() returns their works.
  void start_coalescing();
  std::vector<WorkPtr> end_coalescing();
  // A send or a receive outside of any coalescing block, from any thread.
  WorkPtr message_alone(c10d::OpType type, const at::Tensor& tensor, int peer, int tag);

 private:
  size_t rank() const { return static_cast<size_t>(group_->identity().rank); }
  size_t size() const { return static_cast<size_t>(group_->identity().size); }
  WorkPtr all_gather_unequal(const Tensors& outputs, const at::Tensor& input,
                             const c10d::AllgatherOptions& options);
  WorkPtr reduce_scatter_part(c10d::OpType type, const char* collective, const at::Tensor& output,
                              const Tensors& inputs, int64_t start,
                              const c10d::ReduceScatterOptions& options);
  // The work of an operation on chip tensors; gloo's own for CPU tensors.
  WorkPtr wrap(c10d::OpType type, WorkPtr inner, HostViews&& views) const;
  WorkPtr wrap_and_keep(c10d::OpType type, WorkPtr inner, HostViews&& views);
  WorkPtr keep(WorkPtr work);

  const std::shared_ptr<Group> group_;
  c10::intrusive_ptr<c10d::Backend> gloo_;
  bool is_coalescing_ = false;
  std::vector<WorkPtr> coalesced_;
};

}  // namespace isthmus
