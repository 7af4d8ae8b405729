#include "collectives/gloo/transport.h"

#include <c10/util/ScopeExit.h>
#include <torch/csrc/python_headers.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "collectives/elements.h"
#include "collectives/gloo/barrier.h"
#include "collectives/gloo/work.h"
#include "core/runtime.h"

namespace isthmus {
namespace {

using c10d::OpType;
using c10d::ReduceOp;
using Access = HostViews::Access;
using Elements = HostViews::Elements;
using Tensors = Transport::Tensors;
using WorkPtr = Transport::WorkPtr;

// The options for gloo: those given, with the reduction for these tensors by NCCL's rules. Gloo adds the
// bytes of booleans, and divides integers after it has overwritten them. hosts: those that gloo writes on
// this rank.
template <typename Given>
Given reduce_on_host(Given options, HostViews& views, const Tensors& hosts, int size) {
  if (!views.on_chip()) return options;
  const at::ScalarType dtype = views.first().scalar_type();
  check_average(options.reduceOp, dtype, views.collective());
  if (is_integer_average(options.reduceOp, dtype)) {
    views.divide(hosts, size);
    options.reduceOp = ReduceOp::SUM;
  } else {
    options.reduceOp = for_dtype(options.reduceOp, dtype);
  }
  return options;
}

// Gloo compares shapes where only the number of elements matters.
Tensors flat(Tensors hosts) {
  for (at::Tensor& host : hosts) host = host.view({-1});
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

}  // namespace

GlooTransport::GlooTransport(std::shared_ptr<Group> group, c10::intrusive_ptr<c10d::Backend> gloo)
    : group_(std::move(group)), gloo_(std::move(gloo)) {
  TORCH_CHECK(gloo_, "the chip backend got no gloo backend for rank ", rank(), " of ", size(), ".");
}

c10d::Backend& GlooTransport::gloo() const {
  TORCH_CHECK(gloo_, "the process group was destroyed.");
  return *gloo_;
}

void GlooTransport::end() {
  if (in_bad_fork()) {
    static_cast<void>(gloo_.release());  // its threads are the parent's
    return;
  }
  // Gloo joins its threads, and one of them may be waiting for the interpreter.
  if (Py_IsInitialized() && PyGILState_Check()) {
    PyThreadState* const thread = PyEval_SaveThread();
    const auto restore = c10::make_scope_exit([thread] { PyEval_RestoreThread(thread); });
    gloo_.reset();
  } else {
    gloo_.reset();
  }
}

void GlooTransport::start_coalescing() {
  coalesced_.clear();  // an exception may have ended a block
  is_coalescing_ = true;
}

std::vector<WorkPtr> GlooTransport::end_coalescing() {
  is_coalescing_ = false;
  return std::exchange(coalesced_, {});
}

WorkPtr GlooTransport::wrap(OpType type, WorkPtr inner, HostViews&& views) const {
  views.note_launch(group_->identity().size);
  if (!views.on_chip()) return inner;
  if (!c10d::isP2POp(type)) return CollectiveWork::follow(type, std::move(inner), std::move(views));
  return c10::make_intrusive<PointToPointWork>(type, std::move(inner), std::move(views));
}

WorkPtr GlooTransport::keep(WorkPtr work) {
  if (is_coalescing_) coalesced_.push_back(work);
  return work;
}

WorkPtr GlooTransport::wrap_and_keep(OpType type, WorkPtr inner, HostViews&& views) {
  return keep(wrap(type, std::move(inner), std::move(views)));
}

WorkPtr GlooTransport::broadcast(const at::Tensor& tensor, const c10d::BroadcastOptions& options) {
  HostViews views("broadcast", Elements::kMoved);
  Tensors hosts = {views.map(tensor, Access::kReadWrite)};
  return wrap_and_keep(OpType::BROADCAST, gloo().broadcast(hosts, options), std::move(views));
}

WorkPtr GlooTransport::all_reduce(const Tensors& tensors, const c10d::AllreduceOptions& options,
                                  bool is_coalesced) {
  HostViews views(is_coalesced ? "all_reduce_coalesced" : "all_reduce", Elements::kReduced);
  auto hosts = views.map(tensors, Access::kReadWrite);
  const int group_size = group_->identity().size;
  if (!is_coalesced)
    return wrap_and_keep(OpType::ALLREDUCE,
                         gloo().allreduce(hosts, reduce_on_host(options, views, hosts, group_size)),
                         std::move(views));
  c10d::AllreduceCoalescedOptions coalesced;
  static_cast<c10d::AllreduceOptions&>(coalesced) = reduce_on_host(options, views, hosts, group_size);
  return wrap_and_keep(OpType::ALLREDUCE_COALESCED, gloo().allreduce_coalesced(hosts, coalesced),
                       std::move(views));
}

WorkPtr GlooTransport::reduce(const at::Tensor& tensor, const c10d::ReduceOptions& options) {
  HostViews views("reduce", Elements::kReduced);
  Tensors hosts = {views.map(tensor, Access::kReadWrite)};
  const Tensors written = static_cast<int64_t>(rank()) == options.rootRank ? hosts : Tensors();
  const c10d::ReduceOptions reduction = reduce_on_host(options, views, written, group_->identity().size);
  return wrap_and_keep(OpType::REDUCE, gloo().reduce(hosts, reduction), std::move(views));
}

WorkPtr GlooTransport::all_gather(const Tensors& outputs, const at::Tensor& input,
                                  const c10d::AllgatherOptions& options) {
  if (input.is_privateuseone() && !are_equal(outputs)) return all_gather_unequal(outputs, input, options);
  HostViews views("all_gather", Elements::kMoved);
  Tensors host_inputs = {views.map(input, Access::kRead)};
  Lists host_outputs = {views.map(outputs, Access::kWrite)};
  return wrap_and_keep(OpType::ALLGATHER, gloo().allgather(host_outputs, host_inputs, options),
                       std::move(views));
}

// Gloo gathers equal parts only: these go as bytes, each in as many as the longest.
WorkPtr GlooTransport::all_gather_unequal(const Tensors& outputs, const at::Tensor& input,
                                          const c10d::AllgatherOptions& options) {
  const size_t expected = outputs.at(rank()).nbytes();
  TORCH_CHECK_VALUE(input.nbytes() == expected, "all_gather: the input has ", input.nbytes(),
                    " bytes, the output of this rank ", expected, ".");
  HostViews views("all_gather", Elements::kMoved);
  const at::Tensor host = views.map(input, Access::kRead);
  size_t longest = 0;
  for (const at::Tensor& output : outputs) longest = std::max(longest, output.nbytes());
  const auto room = [&] { return at::empty({static_cast<int64_t>(longest)}, at::kByte); };
  Tensors mine = {room()};
  if (expected != 0) std::memcpy(mine[0].mutable_data_ptr(), host.const_data_ptr(), expected);
  Lists parts(1);
  for (const at::Tensor& output : outputs) {
    parts[0].push_back(room());
    const at::Tensor bytes = parts[0].back().narrow(0, 0, static_cast<int64_t>(output.nbytes()));
    views.deliver(output, bytes.view(output.scalar_type()));
  }
  return wrap_and_keep(OpType::ALLGATHER, gloo().allgather(parts, mine, options), std::move(views));
}

WorkPtr GlooTransport::all_gather_coalesced(const Lists& outputs, const Tensors& inputs,
                                            const c10d::AllgatherOptions& options) {
  HostViews views("all_gather_coalesced", Elements::kMoved);
  auto host_inputs = views.map(inputs, Access::kRead);
  auto host_outputs = views.map(outputs, Access::kWrite);
  return wrap_and_keep(OpType::ALLGATHER_COALESCED,
                       gloo().allgather_coalesced(host_outputs, host_inputs, options), std::move(views));
}

WorkPtr GlooTransport::all_gather_into(const Tensors& outputs, const Tensors& inputs,
                                       const c10d::AllgatherOptions& options, bool is_coalesced) {
  HostViews views(is_coalesced ? "all_gather_into_tensor_coalesced" : "all_gather_into_tensor",
                  Elements::kMoved);
  auto host_inputs = flat(views.map(inputs, Access::kRead));
  auto host_outputs = flat(views.map(outputs, Access::kWrite));
  if (is_coalesced)
    return wrap_and_keep(OpType::COALESCED,
                         gloo().allgather_into_tensor_coalesced(host_outputs, host_inputs, options),
                         std::move(views));
  return wrap_and_keep(OpType::_ALLGATHER_BASE,
                       gloo()._allgather_base(host_outputs[0], host_inputs[0], options), std::move(views));
}

WorkPtr GlooTransport::gather(const Tensors& outputs, const at::Tensor& input,
                              const c10d::GatherOptions& options) {
  HostViews views("gather", Elements::kMoved);
  Tensors host_inputs = {views.map(input, Access::kRead)};
  Lists host_outputs;
  if (!outputs.empty()) host_outputs.push_back(views.map(outputs, Access::kWrite));
  return wrap_and_keep(OpType::GATHER, gloo().gather(host_outputs, host_inputs, options), std::move(views));
}

WorkPtr GlooTransport::scatter(const at::Tensor& output, const Tensors& inputs,
                               const c10d::ScatterOptions& options) {
  HostViews views("scatter", Elements::kMoved);
  Lists host_inputs;
  if (!inputs.empty()) host_inputs.push_back(views.map(inputs, Access::kRead));
  Tensors host_outputs = {views.map(output, Access::kWrite)};
  return wrap_and_keep(OpType::SCATTER, gloo().scatter(host_outputs, host_inputs, options), std::move(views));
}

// Gloo's reduce-scatter reduces everything everywhere. Done here, the work completes without wait(), and the
// tensors may have any shape and, in a list, different sizes.
WorkPtr GlooTransport::reduce_scatter_part(OpType type, const char* collective, const at::Tensor& output,
                                           const Tensors& inputs, int64_t start,
                                           const c10d::ReduceScatterOptions& options) {
  HostViews views(collective, Elements::kReduced);
  Tensors sum = {views.concatenate(inputs)};
  views.deliver(output, sum[0].narrow(0, start, output.numel()));
  c10d::AllreduceOptions reduction;
  reduction.reduceOp = reduce_on_host(options, views, sum, group_->identity().size).reduceOp;
  reduction.timeout = options.timeout;
  return wrap_and_keep(type, gloo().allreduce(sum, reduction), std::move(views));
}

WorkPtr GlooTransport::reduce_scatter(const at::Tensor& output, const Tensors& inputs,
                                      const c10d::ReduceScatterOptions& options) {
  if (output.is_cpu() && inputs[rank()].is_cpu()) {
    Tensors outputs = {output};
    Lists lists = {inputs};
    return gloo().reduce_scatter(outputs, lists, options);
  }
  TORCH_CHECK_VALUE(inputs[rank()].numel() == output.numel(), "reduce_scatter: the output has ",
                    output.numel(), " elements, input ", rank(), " has ", inputs[rank()].numel(), ".");
  int64_t start = 0;
  for (size_t i = 0; i < rank(); ++i) start += inputs[i].numel();
  return reduce_scatter_part(OpType::REDUCE_SCATTER, "reduce_scatter", output, inputs, start, options);
}

WorkPtr GlooTransport::reduce_scatter_into(const Tensors& outputs, const Tensors& inputs,
                                           const c10d::ReduceScatterOptions& options, bool is_coalesced) {
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(),
                    "reduce_scatter_tensor_coalesced takes one output for each input, not ", outputs.size(),
                    " for ", inputs.size(), ".");
  std::vector<WorkPtr> works;
  for (size_t i = 0; i < inputs.size(); ++i) {
    at::Tensor output = outputs[i], input = inputs[i];
    if (output.is_cpu() && input.is_cpu()) {
      works.push_back(gloo()._reduce_scatter_base(output, input, options));
      continue;
    }
    TORCH_CHECK_VALUE(input.numel() == output.numel() * group_->identity().size,
                      "reduce_scatter_tensor: the input has ", input.numel(), " elements, not ", size(),
                      " times the output's ", output.numel(), ".");
    works.push_back(reduce_scatter_part(OpType::_REDUCE_SCATTER_BASE, "reduce_scatter_tensor", output,
                                        {input}, group_->identity().rank * output.numel(), options));
  }
  if (!is_coalesced) return works[0];
  return c10::make_intrusive<CoalescedWork>(std::move(works));
}

WorkPtr GlooTransport::all_to_all_single(const at::Tensor& output, const at::Tensor& input,
                                         const Splits& splits, const c10d::AllToAllOptions& options) {
  HostViews views("all_to_all_single", Elements::kMoved);
  at::Tensor host_input = views.map(input, Access::kRead), host_output = views.map(output, Access::kWrite);
  std::vector<int64_t> taken = splits.outputs, sent = splits.inputs;
  return wrap_and_keep(OpType::ALLTOALL_BASE,
                       gloo().alltoall_base(host_output, host_input, taken, sent, options), std::move(views));
}

WorkPtr GlooTransport::all_to_all(const Tensors& outputs, const Tensors& inputs,
                                  const c10d::AllToAllOptions& options) {
  HostViews views("all_to_all", Elements::kMoved);
  if (inputs[0].is_cpu()) {
    Tensors to = outputs, from = inputs;
    return wrap_and_keep(OpType::ALLTOALL, gloo().alltoall(to, from, options), std::move(views));
  }
  // Gloo's takes equal parts only. A rank cannot tell whether those of other ranks are: they go as bytes.
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
  return wrap_and_keep(OpType::ALLTOALL, gloo().alltoall_base(to, from, taken, sent, options),
                       std::move(views));
}

WorkPtr GlooTransport::message_alone(OpType type, const at::Tensor& tensor, int peer, int tag) {
  const bool sends = type == OpType::SEND;
  HostViews views(sends ? "send" : "recv", Elements::kMoved);
  Tensors hosts = {views.map(tensor, sends ? Access::kRead : Access::kWrite)};
  return wrap(type, sends ? gloo().send(hosts, peer, tag) : gloo().recv(hosts, peer, tag), std::move(views));
}

WorkPtr GlooTransport::message(OpType type, const at::Tensor& tensor, int peer, int tag) {
  return keep(message_alone(type, tensor, peer, tag));
}

WorkPtr GlooTransport::receive_from_any(const at::Tensor& tensor, int tag) {
  HostViews views("recv", Elements::kMoved);
  Tensors hosts = {views.map(tensor, Access::kWrite)};
  return wrap_and_keep(OpType::RECVANYSOURCE, gloo().recvAnysource(hosts, tag), std::move(views));
}

WorkPtr GlooTransport::barrier(const c10d::BarrierOptions& options) {
  const profiler::Call call("chipLaunchCollective");
  group_->board().arrive_at_barrier();
  return c10::make_intrusive<GlooBarrier>(gloo().barrier(options), group_);
}

}  // namespace isthmus
