#include "collectives/backend.h"

#include <algorithm>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "core/stream.h"

namespace isthmus {
namespace {

using Tensors = ChipBackend::Tensors;

Group::Identity identity(int rank, int size, const c10d::Backend::Options& options) {
  return {options.group_name, options.group_desc, rank, size, options.global_ranks_in_group};
}

// The part of the store that belongs to this group alone. A program that destroys its groups and makes new
// ones reuses their names, so every rank counts how often it made a group of these members.
c10::intrusive_ptr<c10d::Store> own_part(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                         const c10d::Backend::Options& options) {
  std::string members;
  for (const auto member : options.global_ranks_in_group) members += std::to_string(member) + ",";
  const std::string prefix = "chip/" + c10::sha1(members).str() + "/";
  const int64_t number = store->add(prefix + std::to_string(rank), 1);
  return c10::make_intrusive<c10d::PrefixStore>(prefix + std::to_string(number) + "/group", store);
}

// The only list of tensors of the root; empty on the other ranks.
ChipBackend::Tensors of_root(const ChipBackend::Lists& lists, const char* operation) {
  return lists.empty() ? ChipBackend::Tensors{} : only(lists, operation, "list of tensors");
}

// Time that the destructor waits for outstanding work: short, so that a failed job ends.
constexpr std::chrono::milliseconds kPatience{5000};

}  // namespace

ChipBackend::ChipBackend(const StorePtr& store, int rank, int size, OptionsPtr options, MakeGloo make_gloo)
    : Backend(rank, size),
      store_(own_part(store, rank, *options)),
      options_(std::move(options)),
      group_(std::make_shared<Group>(store_, identity(rank, size, *options_), options_->timeout)),
      make_gloo_(std::move(make_gloo)),
      driver_(group_),
      gloo_(group_, make_gloo_(store_, rank, size, options_)) {}

ChipBackend::~ChipBackend() {
  group_->finish(kPatience);
  gloo_.end();
}

void ChipBackend::shutdown() {
  if (gloo_.has_ended()) return;
  group_->finish(options_->timeout);
  gloo_.gloo().shutdown();
  gloo_.end();
}

void ChipBackend::setTimeout(std::chrono::milliseconds timeout) {
  options_->timeout = timeout;
  group_->set_timeout(timeout);
  gloo_.gloo().setTimeout(timeout);
}

c10::intrusive_ptr<c10d::Backend> ChipBackend::split(const StorePtr& store, const std::vector<int>& ranks,
                                                     const OptionsPtr& options) {
  // c10d splits once per device type, with one store. One part serves all of them, as its parent does.
  if (last_split_ && last_split_->store == store && last_split_->ranks == ranks)
    return last_split_->backend.lock();
  // c10d names its store after the number of groups of this rank, which may differ between the ranks of the
  // part. The number of splits of the parent does not.
  const auto prefix = "chip/split/" + std::to_string(splits_++) + "/" + std::to_string(ranks.at(0)) + "/";
  c10::intrusive_ptr<ChipBackend> part;
  if (const auto mine = std::find(ranks.begin(), ranks.end(), getRank()); mine != ranks.end())
    part = c10::make_intrusive<ChipBackend>(c10::make_intrusive<c10d::PrefixStore>(prefix, store_->clone()),
                                            static_cast<int>(mine - ranks.begin()),
                                            static_cast<int>(ranks.size()), options, make_gloo_);
  group_->split(part ? part->group_.get() : nullptr, ranks);
  const c10::intrusive_ptr<c10d::Backend> backend = part;
  last_split_ = Split{store, ranks, c10::weak_intrusive_ptr<c10d::Backend>(backend)};
  return part;
}

void ChipBackend::abort() {
  group_->abort(" was aborted.");
  gloo_.gloo().abort();
}

// ---- the choice -------------------------------------------------------------------------------------------

Transport& ChipBackend::choose_if(bool driver_serves) {
  if (driver_serves) return driver_;
  return gloo_;
}

Transport& ChipBackend::choose(const at::Tensor& tensor) { return choose_if(driver_.serves(tensor)); }

Transport& ChipBackend::choose(const at::Tensor& tensor, int peer, int tag) {
  return choose_if(tag == 0 && driver_.serves(tensor, peer));  // the driver's messages have no tags
}

Transport& ChipBackend::choose_for_barrier() { return choose_if(driver_.serves_barrier()); }

// ---- operations of all ranks ------------------------------------------------------------------------------

uint64_t ChipBackend::getSequenceNumberForGroup() {
  return DriverTransport::is_available() ? group_->collectives() : gloo_.gloo().getSequenceNumberForGroup();
}

template <typename Call>
Transport::WorkPtr ChipBackend::collective(const char* name, const Tensors& tensors, Call call) {
  const uint64_t number = group_->collectives() + 1;
  if (!tensors.empty() && tensors[0].is_cpu()) group_->board().note_on_cpu(number, name);
  try {
    return call();
  } catch (const c10::Error& error) {
    if (group_->failure().empty())
      group_->board().publish_refusal(number, name, error.what_without_backtrace());
    throw;
  }
}

Transport::WorkPtr ChipBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  return collective("broadcast", tensors, [&] {
    const at::Tensor& tensor = only(tensors, "broadcast", "tensor");
    return choose(tensor).broadcast(tensor, options);
  });
}

Transport::WorkPtr ChipBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  return collective("all_reduce", tensors, [&] {
    return choose(only(tensors, "all_reduce", "tensor")).all_reduce(tensors, options, false);
  });
}

Transport::WorkPtr ChipBackend::allreduce_coalesced(Tensors& tensors,
                                                    const c10d::AllreduceCoalescedOptions& options) {
  return collective("all_reduce_coalesced", tensors,
                    [&] { return choose(tensors.at(0)).all_reduce(tensors, options, true); });
}

Transport::WorkPtr ChipBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  return collective("reduce", tensors, [&] {
    const at::Tensor& tensor = only(tensors, "reduce", "tensor");
    return choose(tensor).reduce(tensor, options);
  });
}

Transport::WorkPtr ChipBackend::allgather(Lists& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) {
  return collective("all_gather", inputs, [&] {
    const at::Tensor& input = only(inputs, "all_gather", "input");
    return choose(input).all_gather(only(outputs, "all_gather", "list of outputs"), input, options);
  });
}

Transport::WorkPtr ChipBackend::allgather_coalesced(Lists& outputs, Tensors& inputs,
                                                    const c10d::AllgatherOptions& options) {
  return collective("all_gather_coalesced", inputs,
                    [&] { return choose(inputs.at(0)).all_gather_coalesced(outputs, inputs, options); });
}

Transport::WorkPtr ChipBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                const c10d::AllgatherOptions& options) {
  return collective("all_gather_into_tensor", {input},
                    [&] { return choose(input).all_gather_into({output}, {input}, options, false); });
}

Transport::WorkPtr ChipBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                const c10d::AllgatherOptions& options) {
  return collective("all_gather_into_tensor_coalesced", inputs,
                    [&] { return choose(inputs.at(0)).all_gather_into(outputs, inputs, options, true); });
}

Transport::WorkPtr ChipBackend::gather(Lists& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  return collective("gather", inputs, [&] {
    const at::Tensor& input = only(inputs, "gather", "input");
    return choose(input).gather(of_root(outputs, "gather"), input, options);
  });
}

Transport::WorkPtr ChipBackend::scatter(Tensors& outputs, Lists& inputs,
                                        const c10d::ScatterOptions& options) {
  return collective("scatter", outputs, [&] {
    const at::Tensor& output = only(outputs, "scatter", "output");
    return choose(output).scatter(output, of_root(inputs, "scatter"), options);
  });
}

Transport::WorkPtr ChipBackend::reduce_scatter(Tensors& outputs, Lists& inputs,
                                               const c10d::ReduceScatterOptions& options) {
  return collective("reduce_scatter", outputs, [&] {
    TORCH_CHECK_VALUE(
        outputs.size() == 1 && inputs.size() == 1 && inputs[0].size() == static_cast<size_t>(getSize()),
        "reduce_scatter takes one output and a list of ", getSize(), " inputs, one for each rank.");
    return choose(outputs[0]).reduce_scatter(outputs[0], inputs[0], options);
  });
}

Transport::WorkPtr ChipBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                     const c10d::ReduceScatterOptions& options) {
  return collective("reduce_scatter_tensor", {input},
                    [&] { return choose(input).reduce_scatter_into({output}, {input}, options, false); });
}

Transport::WorkPtr ChipBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                const c10d::ReduceScatterOptions& options) {
  return collective("reduce_scatter_tensor_coalesced", inputs,
                    [&] { return choose(inputs.at(0)).reduce_scatter_into(outputs, inputs, options, true); });
}

Transport::WorkPtr ChipBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                              std::vector<int64_t>& output_splits,
                                              std::vector<int64_t>& input_splits,
                                              const c10d::AllToAllOptions& options) {
  return collective("all_to_all_single", {input}, [&] {
    return choose(input).all_to_all_single(output, input, {output_splits, input_splits}, options);
  });
}

Transport::WorkPtr ChipBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                         const c10d::AllToAllOptions& options) {
  return collective("all_to_all", inputs,
                    [&] { return choose(inputs.at(0)).all_to_all(outputs, inputs, options); });
}

Transport::WorkPtr ChipBackend::barrier(const c10d::BarrierOptions& options) {
  if (driver_initialized()) drain(current_stream(current_device()));
  return choose_for_barrier().barrier(options);
}

void ChipBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  if (driver_initialized()) drain(current_stream(current_device()));
  gloo_.gloo().monitoredBarrier(options, wait_all_ranks);
}

}  // namespace isthmus
