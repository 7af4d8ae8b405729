// The c10d backend of the chip: torch.distributed's "chip".
//
// Operations on chip tensors go through the driver's communicators, where the driver has them and can connect
// the ranks. Otherwise they go through gloo, over the chip's bytes. Operations on CPU tensors go through
// gloo.
#pragma once

#include <functional>
#include <optional>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "collectives/driver/transport.h"
#include "collectives/gloo/transport.h"

namespace isthmus {

// The only tensor, or list of tensors, of an operation: c10d's lists are for processes of several devices.
// Throws ValueError for several, or for none.
template <typename Element>
const Element& only(const std::vector<Element>& elements, const char* operation, const char* what) {
  TORCH_CHECK_VALUE(elements.size() == 1, operation, " takes one ", what, ", not ", elements.size(),
                    "; call it once for each.");
  return elements[0];
}

class ChipBackend final : public c10d::Backend {
 public:
  struct Options final : c10d::Backend::Options {
    Options() : c10d::Backend::Options("chip") {}
  };
  using Tensors = Transport::Tensors;
  using Lists = Transport::Lists;
  using WorkPtr = Transport::WorkPtr;
  using StorePtr = c10::intrusive_ptr<c10d::Store>;
  using OptionsPtr = c10::intrusive_ptr<c10d::Backend::Options>;
  // Makes gloo's backend of a group: store, rank, size, options.
  using MakeGloo =
      std::function<c10::intrusive_ptr<c10d::Backend>(const StorePtr&, int, int, const OptionsPtr&)>;

  ChipBackend(const StorePtr& store, int rank, int size, OptionsPtr options, MakeGloo make_gloo);
  ~ChipBackend() override;

  const std::string getBackendName() const override { return "chip"; }
  OptionsPtr getBackendOptions() override { return options_; }
  void setTimeout(std::chrono::milliseconds timeout) override;
  bool supportsSplitting() const override { return true; }
  c10::intrusive_ptr<c10d::Backend> split(const StorePtr& store, const std::vector<int>& ranks,
                                          const OptionsPtr& options) override;

  // Operations in between become one work. Gloo sends each at once; the driver starts all together.
  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  WorkPtr endCoalescing() override;

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr allgather(Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_coalesced(Lists& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override;
  WorkPtr gather(Lists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  WorkPtr scatter(Tensors& outputs, Lists& inputs, const c10d::ScatterOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, Lists& inputs, const c10d::ReduceScatterOptions& options) override;
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

  void setSequenceNumberForGroup() override { gloo_.gloo().setSequenceNumberForGroup(); }
  uint64_t getSequenceNumberForGroup() override;
  void enableCollectivesTiming() override { gloo_.gloo().enableCollectivesTiming(); }
  void abort() override;
  void shutdown() override;

 private:
  // The transport of an operation: the driver where it serves the tensors, otherwise gloo. These functions
  // are the only place that decides.
  Transport& choose_if(bool driver_serves);
  Transport& choose(const at::Tensor& tensor);  // for an operation of all ranks
  Transport& choose(const at::Tensor& tensor, int peer, int tag);
  Transport& choose_for_barrier();
  // Calls an operation of all ranks on tensors. If it raises, or is gloo's because they are CPU tensors, the
  // messages of ranks that wait for this one say so.
  template <typename Call>
  WorkPtr collective(const char* name, const Tensors& tensors, Call call);
  WorkPtr message(c10d::OpType type, const at::Tensor& tensor, int peer, int tag);
  // A message to a rank that is not connected yet: a thread waits for that rank and sends it then.
  WorkPtr make_deferred(c10d::OpType type, const at::Tensor& tensor, int peer);

  const StorePtr store_;
  const OptionsPtr options_;
  const std::shared_ptr<Group> group_;
  const MakeGloo make_gloo_;
  DriverTransport driver_;
  GlooTransport gloo_;
  struct Split {
    StorePtr store;
    std::vector<int> ranks;
    c10::weak_intrusive_ptr<c10d::Backend> backend;
  };
  std::optional<Split> last_split_;
  int splits_ = 0;
  bool is_coalescing_ = false;
};

}  // namespace isthmus
