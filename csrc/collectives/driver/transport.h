// The operations of c10d by the driver's communicators.
#pragma once

#include <memory>
#include <vector>

#include "collectives/driver/launch.h"

namespace isthmus {

class DriverCollectives {
 public:
  using Tensors = std::vector<at::Tensor>;
  using Lists = std::vector<Tensors>;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  explicit DriverCollectives(std::shared_ptr<Group> group) : group_(std::move(group)) {}

  // Whether operations on the tensor, or messages of it, go through the driver. The first time, the ranks
  // meet.
  bool serves(const at::Tensor& tensor);
  bool serves(const at::Tensor& tensor, int peer);
  // Whether that would wait for the peer, now or behind other messages.
  bool waits_for(const at::Tensor& tensor, int peer);
  Group& group() const { return *group_; }

  WorkPtr broadcast(const at::Tensor& tensor, const c10d::BroadcastOptions& options);
  WorkPtr all_reduce(const Tensors& tensors, const c10d::AllreduceOptions& options, bool is_coalesced);
  WorkPtr reduce(const at::Tensor& tensor, const c10d::ReduceOptions& options);
  // Into a list of one tensor for each rank; sizes may differ.
  WorkPtr all_gather(const Tensors& outputs, const at::Tensor& input, const c10d::AllgatherOptions& options);
  WorkPtr all_gather_coalesced(const Lists& outputs, const Tensors& inputs,
                               const c10d::AllgatherOptions& options);
  WorkPtr all_gather_into(const Tensors& outputs, const Tensors& inputs,
                          const c10d::AllgatherOptions& options, bool is_coalesced);
  // outputs and inputs are empty where this rank is not the root.
  WorkPtr gather(const Tensors& outputs, const at::Tensor& input, const c10d::GatherOptions& options);
  WorkPtr scatter(const at::Tensor& output, const Tensors& inputs, const c10d::ScatterOptions& options);
  WorkPtr reduce_scatter(const at::Tensor& output, const Tensors& inputs,
                         const c10d::ReduceScatterOptions& options);
  WorkPtr reduce_scatter_into(const Tensors& outputs, const Tensors& inputs,
                              const c10d::ReduceScatterOptions& options, bool is_coalesced);
  // Splits are rows for each rank; empty for equal ones.
  WorkPtr all_to_all(const at::Tensor& output, const at::Tensor& input,
                     const std::vector<int64_t>& output_splits, const std::vector<int64_t>& input_splits,
                     const c10d::AllToAllOptions& options);
  WorkPtr all_to_all(const Tensors& outputs, const Tensors& inputs, const c10d::AllToAllOptions& options);
  WorkPtr send(const at::Tensor& tensor, int peer);
  WorkPtr receive(const at::Tensor& tensor, int peer);
  // The same, of a held message: from any thread, with no regard to coalescing; null if the driver cannot
  // connect the two.
  WorkPtr launch_held(c10d::OpType type, const at::Tensor& tensor, int peer);
  WorkPtr barrier(c10::DeviceIndex device, const c10d::BarrierOptions& options);

  // Operations in between become one work; null if there were none. Messages between ranks that the driver
  // cannot connect are left for another transport.
  void start_coalescing();
  WorkPtr end_coalescing(std::vector<Launch>* left);
  bool is_coalescing() const { return block_ != nullptr; }

 private:
  struct Block {
    std::vector<Launch> launches;
    c10::intrusive_ptr<DriverWork> work;
    Launch::Options options;
  };

  int rank() const { return group_->identity().rank; }
  int size() const { return group_->identity().size; }
  Launch::Options options(std::chrono::milliseconds timeout, bool is_async) const;
  WorkPtr launch(Launch&& launch, const Launch::Options& options);
  Launch message(c10d::OpType type, const at::Tensor& tensor, int peer) const;
  WorkPtr launch_message(Launch&& launch);
  WorkPtr launch_alone(Launch&& launch, std::shared_ptr<Communicator> communicator);
  WorkPtr hold(Launch&& launch, const Launch::Options& options);
  std::vector<std::shared_ptr<Communicator>> connect(std::vector<Launch>* launches,
                                                     std::vector<Launch>* left);

  const std::shared_ptr<Group> group_;
  std::unique_ptr<Block> block_;
};

}  // namespace isthmus
