// The c10d backend of the chip: torch.distributed's "chip".
//
// Operations on chip tensors go through the driver's communicators, where it has them and can connect the
// ranks; otherwise through gloo over the chip's bytes, as those on CPU tensors do. Gloo's headers are not in
// the torch wheel, so its groups come from a function that the caller passes in, and are used through
// c10d::Backend.
#pragma once

#include <functional>
#include <optional>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "collectives/driver/transport.h"
#include "collectives/gloo/host_views.h"

namespace isthmus {

class ChipBackend final : public c10d::Backend {
 public:
  struct Options final : c10d::Backend::Options {
    Options() : c10d::Backend::Options("chip") {}
  };
  using Tensors = std::vector<at::Tensor>;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using StorePtr = c10::intrusive_ptr<c10d::Store>;
  using OptionsPtr = c10::intrusive_ptr<c10d::Backend::Options>;
  // Makes the transport of a group: store, rank, size, options.
  using MakeTransport =
      std::function<c10::intrusive_ptr<c10d::Backend>(const StorePtr&, int, int, const OptionsPtr&)>;

  ChipBackend(const StorePtr& store, int rank, int size, OptionsPtr options, MakeTransport make_transport);
  ~ChipBackend() override;

  const std::string getBackendName() const override { return "chip"; }
  OptionsPtr getBackendOptions() override { return options_; }
  void setTimeout(std::chrono::milliseconds timeout) override;
  bool supportsSplitting() const override { return true; }
  c10::intrusive_ptr<c10d::Backend> split(const StorePtr& store, const std::vector<int>& ranks,
                                          const OptionsPtr& options) override;

  // Work started in between is awaited as one. The transport sends each at once; the driver starts all
  // together.
  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  WorkPtr endCoalescing() override;

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                  const c10d::ScatterOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  WorkPtr send(Tensors& tensors, int destination, int tag) override;
  WorkPtr recv(Tensors& tensors, int source, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

  void setSequenceNumberForGroup() override { transport().setSequenceNumberForGroup(); }
  uint64_t getSequenceNumberForGroup() override;
  void enableCollectivesTiming() override { transport().enableCollectivesTiming(); }
  void abort() override;
  // Ends the transport's threads, which would otherwise meet the end of the interpreter with tensors in hand.
  void shutdown() override;

 private:
  WorkPtr reduce_scatter_part(c10d::OpType type, const char* collective, const at::Tensor& output,
                              const Tensors& inputs, int64_t start,
                              const c10d::ReduceScatterOptions& options);
  WorkPtr all_gather_unequal(const Tensors& outputs, const at::Tensor& input,
                             const c10d::AllgatherOptions& options);
  WorkPtr message(c10d::OpType type, const at::Tensor& tensor, int peer, int tag);
  WorkPtr by_transport(c10d::OpType type, const at::Tensor& tensor, int peer, int tag);
  WorkPtr later(c10d::OpType type, const at::Tensor& tensor, int peer);
  WorkPtr wrap(c10d::OpType type, WorkPtr inner, HostViews&& views);
  WorkPtr follow(c10d::OpType type, WorkPtr inner, HostViews&& views);
  WorkPtr keep(WorkPtr work);
  c10d::Backend& transport() const;  // throws after shutdown()
  void end_transport();

  StorePtr store_;
  OptionsPtr options_;
  std::shared_ptr<Group> group_;
  DriverCollectives driver_;
  MakeTransport make_transport_;
  c10::intrusive_ptr<c10d::Backend> transport_;
  struct Split {
    StorePtr store;
    std::vector<int> ranks;
    c10::weak_intrusive_ptr<c10d::Backend> backend;
  };
  std::optional<Split> last_split_;
  int splits_ = 0;
  bool coalescing_ = false;
  std::vector<WorkPtr> coalesced_;
};

}  // namespace isthmus
