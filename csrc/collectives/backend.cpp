#include "collectives/backend.h"

#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "collectives/elements.h"
#include "collectives/gloo/barrier.h"
#include "collectives/gloo/work.h"
#include "core/stream.h"

namespace isthmus {
namespace {

using c10d::OpType;
using c10d::ReduceOp;
using Access = HostViews::Access;
using Elements = HostViews::Elements;
using Tensors = ChipBackend::Tensors;

// The operation for a tensor of this dtype. Gloo adds the bytes of booleans and divides integers after it has
// overwritten them; NCCL's rules are taken instead, except that integers have no average.
ReduceOp reduce_op(const ReduceOp& op, const at::Tensor& tensor, const char* collective) {
  const at::ScalarType dtype = tensor.scalar_type();
  TORCH_CHECK_TYPE(op.op_ != ReduceOp::AVG || at::isFloatingType(dtype), collective,
                   ": ReduceOp.AVG takes floating-point tensors on chip, not ", dtype,
                   "; use SUM and divide.");
  return for_dtype(op, dtype);
}

// The options for the transport: those given, with the operation for these tensors.
template <typename Given>
Given reducing(Given options, const HostViews& views) {
  if (views.on_chip()) options.reduceOp = reduce_op(options.reduceOp, views.first(), views.collective());
  return options;
}

// Where only the number of elements counts, gloo is given no shape to disagree about.
at::Tensor flat(const at::Tensor& host) { return host.view({-1}); }

Tensors flat(Tensors hosts) {
  for (at::Tensor& host : hosts) host = flat(host);
  return hosts;
}

bool are_equal(const Tensors& tensors) {
  return std::all_of(tensors.begin(), tensors.end(),
                     [&](const at::Tensor& tensor) { return tensor.numel() == tensors[0].numel(); });
}

std::vector<int64_t> byte_counts(const Tensors& tensors) {
  std::vector<int64_t> counts;
  for (const at::Tensor& tensor : tensors) counts.push_back(static_cast<int64_t>(tensor.nbytes()));
  return counts;
}

at::Tensor room_for(const std::vector<int64_t>& byte_counts) {
  return at::empty({std::accumulate(byte_counts.begin(), byte_counts.end(), int64_t{0})}, at::kByte);
}

Group::Identity identity(int rank, int size, const c10d::Backend::Options& options) {
  return {options.group_name, options.group_desc, rank, size, options.global_ranks_in_group};
}

// The part of the store that is this group's alone. A program that destroys its groups and makes new ones
// meets under the same names again; every rank counts how often it made a group of these members.
c10::intrusive_ptr<c10d::Store> own_part(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                         const c10d::Backend::Options& options) {
  std::string members;
  for (const auto member : options.global_ranks_in_group) members += std::to_string(member) + ",";
  const std::string prefix = "chip/" + c10::sha1(members).str() + "/";
  const int64_t number = store->add(prefix + std::to_string(rank), 1);
  return c10::make_intrusive<c10d::PrefixStore>(prefix + std::to_string(number) + "/group", store);
}

// Not so long that a job which has failed does not end.
constexpr std::chrono::milliseconds kPatience{5000};

}  // namespace

ChipBackend::ChipBackend(const StorePtr& store, int rank, int size, OptionsPtr options,
                         MakeTransport make_transport)
    : Backend(rank, size),
      store_(own_part(store, rank, *options)),
      options_(std::move(options)),
      group_(std::make_shared<Group>(store_, identity(rank, size, *options_), options_->timeout)),
      driver_(group_),
      make_transport_(std::move(make_transport)),
      transport_(make_transport_(store_, rank, size, options_)) {
  TORCH_CHECK(transport_, "the chip backend was given no transport for rank ", rank, " of ", size, ".");
}

ChipBackend::~ChipBackend() {
  group_->finish(kPatience);
  end_transport();
}

void ChipBackend::shutdown() {
  if (!transport_) return;
  group_->finish(options_->timeout);
  transport_->shutdown();
  end_transport();
}

c10d::Backend& ChipBackend::transport() const {
  TORCH_CHECK(transport_, "the process group was destroyed.");
  return *transport_;
}

void ChipBackend::end_transport() {
  // The transport joins its threads, and one of them may be waiting for the interpreter.
  if (Py_IsInitialized() && PyGILState_Check()) {
    const pybind11::gil_scoped_release release;
    transport_.reset();
  } else {
    transport_.reset();
  }
}

void ChipBackend::setTimeout(std::chrono::milliseconds timeout) {
  options_->timeout = timeout;
  group_->set_timeout(timeout);
  transport().setTimeout(timeout);
}

c10::intrusive_ptr<c10d::Backend> ChipBackend::split(const StorePtr& store, const std::vector<int>& ranks,
                                                     const OptionsPtr& options) {
  // c10d splits once per device type, with one store: the part serves them all, as its parent does.
  if (last_split_ && last_split_->store == store && last_split_->ranks == ranks)
    return last_split_->backend.lock();
  // c10d's store is named after the number of groups that this rank is in, which the others of the part may
  // count otherwise; all ranks of the parent count its splits alike.
  const auto prefix = "chip/split/" + std::to_string(splits_++) + "/" + std::to_string(ranks.at(0)) + "/";
  c10::intrusive_ptr<ChipBackend> part;
  if (const auto mine = std::find(ranks.begin(), ranks.end(), getRank()); mine != ranks.end())
    part = c10::make_intrusive<ChipBackend>(c10::make_intrusive<c10d::PrefixStore>(prefix, store_->clone()),
                                            static_cast<int>(mine - ranks.begin()),
                                            static_cast<int>(ranks.size()), options, make_transport_);
  group_->split(part ? part->group_.get() : nullptr, ranks);
  const c10::intrusive_ptr<c10d::Backend> backend = part;
  last_split_ = Split{store, ranks, c10::weak_intrusive_ptr<c10d::Backend>(backend)};
  return part;
}

uint64_t ChipBackend::getSequenceNumberForGroup() {
  return Group::driver_serves() ? group_->collectives() : transport().getSequenceNumberForGroup();
}

void ChipBackend::abort() {
  group_->fail(group_->title() + " was aborted.");
  transport().abort();
}

ChipBackend::WorkPtr ChipBackend::wrap(OpType type, WorkPtr inner, HostViews&& views) {
  views.launched(getSize());
  if (!views.on_chip()) return inner;
  if (!c10d::isP2POp(type)) return CollectiveWork::follow(type, std::move(inner), std::move(views));
  return c10::make_intrusive<PointToPointWork>(type, std::move(inner), std::move(views));
}

ChipBackend::WorkPtr ChipBackend::keep(WorkPtr work) {
  if (coalescing_) coalesced_.push_back(work);
  return work;
}

ChipBackend::WorkPtr ChipBackend::follow(OpType type, WorkPtr inner, HostViews&& views) {
  return keep(wrap(type, std::move(inner), std::move(views)));
}

ChipBackend::WorkPtr ChipBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  if (driver_.serves(tensors.at(0))) return driver_.broadcast(tensors[0], options);
  HostViews views("broadcast", Elements::kMoved);
  auto hosts = views.map(tensors, Access::kReadWrite);
  return follow(OpType::BROADCAST, transport().broadcast(hosts, options), std::move(views));
}

ChipBackend::WorkPtr ChipBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  if (driver_.serves(tensors.at(0))) return driver_.all_reduce(tensors, options, false);
  HostViews views("all_reduce", Elements::kReduced);
  auto hosts = views.map(tensors, Access::kReadWrite);
  return follow(OpType::ALLREDUCE, transport().allreduce(hosts, reducing(options, views)), std::move(views));
}

ChipBackend::WorkPtr ChipBackend::allreduce_coalesced(Tensors& tensors,
                                                      const c10d::AllreduceCoalescedOptions& options) {
  if (driver_.serves(tensors.at(0))) return driver_.all_reduce(tensors, options, true);
  HostViews views("all_reduce_coalesced", Elements::kReduced);
  auto hosts = views.map(tensors, Access::kReadWrite);
  return follow(OpType::ALLREDUCE_COALESCED, transport().allreduce_coalesced(hosts, reducing(options, views)),
                std::move(views));
}

ChipBackend::WorkPtr ChipBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  if (driver_.serves(tensors.at(0))) return driver_.reduce(tensors[0], options);
  HostViews views("reduce", Elements::kReduced);
  auto hosts = views.map(tensors, Access::kReadWrite);
  return follow(OpType::REDUCE, transport().reduce(hosts, reducing(options, views)), std::move(views));
}

ChipBackend::WorkPtr ChipBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                            const c10d::AllgatherOptions& options) {
  if (driver_.serves(inputs.at(0))) return driver_.all_gather(outputs.at(0), inputs[0], options);
  if (inputs[0].is_privateuseone() && !are_equal(outputs[0]))
    return all_gather_unequal(outputs[0], inputs[0], options);
  HostViews views("all_gather", Elements::kMoved);
  auto host_inputs = views.map(inputs, Access::kRead);
  auto host_outputs = views.map(outputs, Access::kWrite);
  return follow(OpType::ALLGATHER, transport().allgather(host_outputs, host_inputs, options),
                std::move(views));
}

// Gloo gathers equal parts only: these go as bytes, each in as many as the longest.
ChipBackend::WorkPtr ChipBackend::all_gather_unequal(const Tensors& outputs, const at::Tensor& input,
                                                     const c10d::AllgatherOptions& options) {
  const size_t expected = outputs.at(static_cast<size_t>(getRank())).nbytes();
  TORCH_CHECK_VALUE(input.nbytes() == expected, "all_gather: the input has ", input.nbytes(),
                    " bytes, the output of this rank ", expected, ".");
  HostViews views("all_gather", Elements::kMoved);
  const at::Tensor host = views.map(input, Access::kRead);
  size_t longest = 0;
  for (const at::Tensor& output : outputs) longest = std::max(longest, output.nbytes());
  const auto room = [&] { return at::empty({static_cast<int64_t>(longest)}, at::kByte); };
  Tensors mine = {room()};
  if (expected != 0) std::memcpy(mine[0].mutable_data_ptr(), host.const_data_ptr(), expected);
  std::vector<Tensors> parts(1);
  for (const at::Tensor& output : outputs) {
    parts[0].push_back(room());
    const at::Tensor bytes = parts[0].back().narrow(0, 0, static_cast<int64_t>(output.nbytes()));
    views.deliver(output, bytes.view(output.scalar_type()));
  }
  return follow(OpType::ALLGATHER, transport().allgather(parts, mine, options), std::move(views));
}

ChipBackend::WorkPtr ChipBackend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                                      const c10d::AllgatherOptions& options) {
  if (driver_.serves(inputs.at(0))) return driver_.all_gather_coalesced(outputs, inputs, options);
  HostViews views("all_gather_coalesced", Elements::kMoved);
  auto host_inputs = views.map(inputs, Access::kRead);
  auto host_outputs = views.map(outputs, Access::kWrite);
  return follow(OpType::ALLGATHER_COALESCED,
                transport().allgather_coalesced(host_outputs, host_inputs, options), std::move(views));
}

ChipBackend::WorkPtr ChipBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                  const c10d::AllgatherOptions& options) {
  if (driver_.serves(input)) return driver_.all_gather_into({output}, {input}, options, false);
  HostViews views("all_gather_into_tensor", Elements::kMoved);
  auto host_input = flat(views.map(input, Access::kRead));
  auto host_output = flat(views.map(output, Access::kWrite));
  return follow(OpType::_ALLGATHER_BASE, transport()._allgather_base(host_output, host_input, options),
                std::move(views));
}

ChipBackend::WorkPtr ChipBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                  const c10d::AllgatherOptions& options) {
  if (driver_.serves(inputs.at(0))) return driver_.all_gather_into(outputs, inputs, options, true);
  HostViews views("all_gather_into_tensor_coalesced", Elements::kMoved);
  auto host_inputs = flat(views.map(inputs, Access::kRead));
  auto host_outputs = flat(views.map(outputs, Access::kWrite));
  return follow(OpType::COALESCED,
                transport().allgather_into_tensor_coalesced(host_outputs, host_inputs, options),
                std::move(views));
}

ChipBackend::WorkPtr ChipBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                         const c10d::GatherOptions& options) {
  if (driver_.serves(inputs.at(0)))
    return driver_.gather(outputs.empty() ? Tensors{} : outputs[0], inputs[0], options);
  HostViews views("gather", Elements::kMoved);
  auto host_inputs = views.map(inputs, Access::kRead);
  auto host_outputs = views.map(outputs, Access::kWrite);
  return follow(OpType::GATHER, transport().gather(host_outputs, host_inputs, options), std::move(views));
}

ChipBackend::WorkPtr ChipBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                          const c10d::ScatterOptions& options) {
  if (driver_.serves(outputs.at(0)))
    return driver_.scatter(outputs[0], inputs.empty() ? Tensors{} : inputs[0], options);
  HostViews views("scatter", Elements::kMoved);
  auto host_inputs = views.map(inputs, Access::kRead);
  auto host_outputs = views.map(outputs, Access::kWrite);
  return follow(OpType::SCATTER, transport().scatter(host_outputs, host_inputs, options), std::move(views));
}

// Gloo has no reduce-scatter of its own: it reduces everything everywhere. Done here, the work completes by
// itself and the tensors may have any shape and, in a list, different sizes.
ChipBackend::WorkPtr ChipBackend::reduce_scatter_part(OpType type, const char* collective,
                                                      const at::Tensor& output, const Tensors& inputs,
                                                      int64_t start,
                                                      const c10d::ReduceScatterOptions& options) {
  HostViews views(collective, Elements::kReduced);
  Tensors sum = {views.concatenated(inputs)};
  views.deliver(output, sum[0].narrow(0, start, output.numel()));
  c10d::AllreduceOptions reduction;
  reduction.reduceOp = reducing(options, views).reduceOp;
  reduction.timeout = options.timeout;
  return follow(type, transport().allreduce(sum, reduction), std::move(views));
}

ChipBackend::WorkPtr ChipBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                 const c10d::ReduceScatterOptions& options) {
  const auto size = static_cast<size_t>(getSize()), rank = static_cast<size_t>(getRank());
  TORCH_CHECK_VALUE(outputs.size() == 1 && inputs.size() == 1 && inputs[0].size() == size,
                    "reduce_scatter takes one output and a list of ", size, " inputs, one for each rank.");
  if (driver_.serves(outputs[0])) return driver_.reduce_scatter(outputs[0], inputs[0], options);
  const Tensors& parts = inputs[0];
  if (outputs[0].is_cpu() && parts[rank].is_cpu())
    return transport().reduce_scatter(outputs, inputs, options);
  TORCH_CHECK_VALUE(parts[rank].numel() == outputs[0].numel(), "reduce_scatter: the output has ",
                    outputs[0].numel(), " elements, input ", rank, " has ", parts[rank].numel(), ".");
  int64_t start = 0;
  for (size_t i = 0; i < rank; ++i) start += parts[i].numel();
  return reduce_scatter_part(OpType::REDUCE_SCATTER, "reduce_scatter", outputs[0], parts, start, options);
}

ChipBackend::WorkPtr ChipBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                       const c10d::ReduceScatterOptions& options) {
  if (driver_.serves(input)) return driver_.reduce_scatter_into({output}, {input}, options, false);
  if (output.is_cpu() && input.is_cpu()) return transport()._reduce_scatter_base(output, input, options);
  TORCH_CHECK_VALUE(input.numel() == output.numel() * getSize(), "reduce_scatter_tensor: the input has ",
                    input.numel(), " elements, not ", getSize(), " times the output's ", output.numel(), ".");
  return reduce_scatter_part(OpType::_REDUCE_SCATTER_BASE, "reduce_scatter_tensor", output, {input},
                             getRank() * output.numel(), options);
}

ChipBackend::WorkPtr ChipBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                  const c10d::ReduceScatterOptions& options) {
  if (driver_.serves(inputs.at(0))) return driver_.reduce_scatter_into(outputs, inputs, options, true);
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(),
                    "reduce_scatter_tensor_coalesced takes one output for each input, not ", outputs.size(),
                    " for ", inputs.size(), ".");
  std::vector<WorkPtr> works;
  for (size_t i = 0; i < inputs.size(); ++i)
    works.push_back(_reduce_scatter_base(outputs[i], inputs[i], options));
  return c10::make_intrusive<CoalescedWork>(std::move(works));
}

ChipBackend::WorkPtr ChipBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                std::vector<int64_t>& output_splits,
                                                std::vector<int64_t>& input_splits,
                                                const c10d::AllToAllOptions& options) {
  if (driver_.serves(input)) return driver_.all_to_all(output, input, output_splits, input_splits, options);
  HostViews views("all_to_all_single", Elements::kMoved);
  auto host_input = views.map(input, Access::kRead);
  auto host_output = views.map(output, Access::kWrite);
  return follow(OpType::ALLTOALL_BASE,
                transport().alltoall_base(host_output, host_input, output_splits, input_splits, options),
                std::move(views));
}

ChipBackend::WorkPtr ChipBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                           const c10d::AllToAllOptions& options) {
  if (driver_.serves(inputs.at(0))) return driver_.all_to_all(outputs, inputs, options);
  HostViews views("all_to_all", Elements::kMoved);
  if (inputs[0].is_cpu())
    return follow(OpType::ALLTOALL, transport().alltoall(outputs, inputs, options), std::move(views));
  // Gloo's takes equal parts only, and whether they are equal no rank knows of the others: they go as bytes.
  std::vector<int64_t> sent = byte_counts(inputs), taken = byte_counts(outputs);
  at::Tensor from = room_for(sent), to = room_for(taken);
  for (size_t i = 0, start = 0; i < inputs.size(); start += inputs[i++].nbytes()) {
    const at::Tensor host = views.map(inputs[i], Access::kRead);
    if (host.nbytes() != 0)
      std::memcpy(from.mutable_data_ptr<uint8_t>() + start, host.const_data_ptr(), host.nbytes());
  }
  int64_t start = 0;
  for (size_t i = 0; i < outputs.size(); start += taken[i++])
    views.deliver(outputs[i], to.narrow(0, start, taken[i]).view(outputs[i].scalar_type()));
  return follow(OpType::ALLTOALL, transport().alltoall_base(to, from, taken, sent, options),
                std::move(views));
}

ChipBackend::WorkPtr ChipBackend::barrier(const c10d::BarrierOptions& options) {
  if (driver_initialized()) drain(current_stream(current_device()));
  if (Group::driver_serves()) group_->require_alive();
  if (const auto device = group_->meeting_place()) return driver_.barrier(*device, options);
  const profiler::Call call("chipLaunchCollective");
  group_->board().came();
  return c10::make_intrusive<TransportBarrier>(transport().barrier(options), group_);
}

void ChipBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  if (driver_initialized()) drain(current_stream(current_device()));
  transport().monitoredBarrier(options, wait_all_ranks);
}

}  // namespace isthmus
