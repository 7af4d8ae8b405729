// Collectives by the driver's communicators.
#pragma once

#include <memory>
#include <vector>

#include "collectives/driver/launch.h"
#include "collectives/transport.h"

namespace isthmus {

class DriverTransport final : public Transport {
 public:
  explicit DriverTransport(std::shared_ptr<Group> group) : group_(std::move(group)) {}

  // Whether the driver has collectives, and ISTHMUS_COLLECTIVES does not ask for gloo.
  static bool is_available();
  // Whether the driver connects the ranks for operations on the tensor, for messages of it to or from the
  // peer, or for a barrier. The ranks connect at the first call.
  bool serves(const at::Tensor& tensor);
  bool serves(const at::Tensor& tensor, int peer);
  bool serves_barrier() const;
  // Whether a message would block until the peer connects, or queue behind messages that do.
  bool would_block(const at::Tensor& tensor, int peer);

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

  // Launches a deferred message, from any thread and outside of any coalescing block; null if the driver
  // cannot connect the two ranks.
  WorkPtr launch_deferred(c10d::OpType type, const at::Tensor& tensor, int peer);

  // Operations in between become one work, started together; null if there were none. Messages between ranks
  // that the driver cannot connect are returned in *left.
  void start_coalescing();
  WorkPtr end_coalescing(std::vector<Launch>* left);

 private:
  // Operations of a coalescing block.
  struct Block {
    std::vector<Launch> launches;
    c10::intrusive_ptr<DriverWork> work;
    Launch::Options options;
  };

  bool is_coalescing() const { return block_ != nullptr; }
  int rank() const { return group_->identity().rank; }
  int size() const { return group_->identity().size; }
  Launch::Options options(std::chrono::milliseconds timeout, bool is_async) const;
  WorkPtr launch(Launch&& launch, const Launch::Options& options);
  Launch prepare_message(c10d::OpType type, const at::Tensor& tensor, int peer) const;
  WorkPtr launch_alone(Launch&& launch, std::shared_ptr<Communicator> communicator);
  WorkPtr hold(Launch&& launch, const Launch::Options& options);
  std::vector<std::shared_ptr<Communicator>> connect(std::vector<Launch>* launches,
                                                     std::vector<Launch>* left);

  const std::shared_ptr<Group> group_;
  std::unique_ptr<Block> block_;
};

}  // namespace isthmus
