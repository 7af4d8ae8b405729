#include "collectives/driver/transport.h"

#include <utility>

#include "collectives/driver/checks.h"
#include "collectives/driver/reduction.h"
#include "collectives/settings.h"

namespace isthmus {

using c10d::OpType;
using namespace collective_checks;

namespace {

void scatter_reduced(const DriverReduction& part, size_t count, const char* name, isthmus_comm comm,
                     isthmus_stream stream) {
  part.enqueue(comm, stream, name, [&](void* to, const void* from, const Reduction& reduction) {
    return driver().reduce_scatter(to, from, count, reduction.dtype(), reduction.op(), reduction.factor(),
                                   comm, stream);
  });
}

}  // namespace

bool DriverTransport::is_available() {
  const isthmus_driver* table = driver_table();
  return settings().uses_driver && table != nullptr && ISTHMUS_HAS(*table, comm_unique_id);
}

bool DriverTransport::serves(const at::Tensor& tensor) {
  if (!tensor.is_privateuseone() || !is_available()) return false;
  group_->require_alive();
  return group_->all(tensor.device().index()) != nullptr;
}

bool DriverTransport::serves(const at::Tensor& tensor, int peer) {
  if (!tensor.is_privateuseone() || !is_available()) return false;
  group_->require_alive();
  // In a block of more than two ranks the pairs connect at its end, in an order common to all ranks.
  if (is_coalescing() && size() > 2) return true;
  return group_->with(tensor.device().index(), peer) != nullptr;
}

bool DriverTransport::serves_barrier() const {
  if (is_available()) group_->require_alive();
  return group_->connected_device().has_value();
}

bool DriverTransport::would_block(const at::Tensor& tensor, int peer) {
  if (!tensor.is_privateuseone() || !is_available() || is_coalescing()) return false;
  group_->require_alive();
  const c10::DeviceIndex device = tensor.device().index();
  return group_->deferred_messages().has({device, peer}) || group_->must_connect(device, peer);
}

Transport::WorkPtr DriverTransport::broadcast(const at::Tensor& tensor, const c10d::BroadcastOptions& given) {
  Launch launch(OpType::BROADCAST, "broadcast", "broadcast");
  const at::Tensor plain = launch.update(tensor);
  launch.enqueue(
      [plain, root = static_cast<int32_t>(given.rootRank)](isthmus_comm comm, isthmus_stream stream) {
        const auto [dtype, count] = elements_to_move(plain);
        check_collective(driver().broadcast(plain.mutable_data_ptr(), count, dtype, root, comm, stream),
                         "broadcast");
      });
  return this->launch(std::move(launch), options(given.timeout, given.asyncOp));
}

Transport::WorkPtr DriverTransport::all_reduce(const Tensors& tensors, const c10d::AllreduceOptions& given,
                                               bool is_coalesced) {
  Launch launch(is_coalesced ? OpType::ALLREDUCE_COALESCED : OpType::ALLREDUCE,
                is_coalesced ? "all_reduce_coalesced" : "all_reduce",
                is_coalesced ? "allreduce_coalesced" : "all_reduce");
  std::vector<std::pair<size_t, DriverReduction>> parts;
  for (const at::Tensor& tensor : tensors) {
    const Reduction reduction(given.reduceOp, tensor.scalar_type(), "all_reduce");
    const at::Tensor plain = launch.update(tensor);
    parts.emplace_back(reduction.count(plain), DriverReduction(launch, plain, plain, reduction, size()));
  }
  const bool is_group = parts.size() > 1;
  Launch::Enqueue enqueue = [parts = std::move(parts)](isthmus_comm comm, isthmus_stream stream) {
    for (const auto& [count, part] : parts)
      part.enqueue(comm, stream, "all_reduce",
                   [&, count = count](void* to, const void* from, const Reduction& reduction) {
                     return driver().all_reduce(to, from, count, reduction.dtype(), reduction.op(),
                                                reduction.factor(), comm, stream);
                   });
  };
  launch.enqueue(std::move(enqueue), is_group);
  return this->launch(std::move(launch), options(given.timeout, given.asyncOp));
}

Transport::WorkPtr DriverTransport::reduce(const at::Tensor& tensor, const c10d::ReduceOptions& given) {
  Launch launch(OpType::REDUCE, "reduce", "reduce");
  const Reduction reduction(given.reduceOp, tensor.scalar_type(), "reduce");
  const auto root = static_cast<int32_t>(given.rootRank);
  const at::Tensor plain = launch.update(tensor);
  const DriverReduction part(launch, rank() == root ? plain : at::Tensor(), plain, reduction, size());
  launch.enqueue([part, root, count = reduction.count(plain)](isthmus_comm comm, isthmus_stream stream) {
    part.enqueue(comm, stream, "reduce", [&](void* to, const void* from, const Reduction& reduction) {
      return driver().reduce(to, from, count, reduction.dtype(), reduction.op(), reduction.factor(), root,
                             comm, stream);
    });
  });
  return this->launch(std::move(launch), options(given.timeout, given.asyncOp));
}

Transport::WorkPtr DriverTransport::all_gather(const Tensors& outputs, const at::Tensor& input,
                                               const c10d::AllgatherOptions& given) {
  Launch launch(OpType::ALLGATHER, "all_gather", "all_gather");
  check_list(input, outputs, size(), "all_gather");
  check_count(input, outputs[static_cast<size_t>(rank())].numel(), "the input", "all_gather");
  const at::Tensor from = launch.read(input);
  const Tensors to = launch.write(outputs);
  if (have_equal_counts(to)) {
    const at::Tensor whole = launch.in_one(to);
    const Tensors parts = Launch::parts(whole, to);
    for (size_t i = 0; i < to.size(); ++i) launch.copy_after(to[i], parts[i]);
    launch.enqueue([whole, from](isthmus_comm comm, isthmus_stream stream) {
      const auto [dtype, count] = elements_to_move(from);
      check_collective(
          driver().all_gather(whole.mutable_data_ptr(), from.const_data_ptr(), count, dtype, comm, stream),
          "all_gather");
    });
  } else {
    launch.copy_before(to[static_cast<size_t>(rank())], from);
    launch.enqueue(
        [to](isthmus_comm comm, isthmus_stream stream) {
          for (size_t root = 0; root < to.size(); ++root) {
            const auto [dtype, count] = elements_to_move(to[root]);
            check_collective(driver().broadcast(to[root].mutable_data_ptr(), count, dtype,
                                                static_cast<int32_t>(root), comm, stream),
                             "all_gather");
          }
        },
        true);
  }
  return this->launch(std::move(launch), options(given.timeout, given.asyncOp));
}

// A coalescing block of one all_gather() for each input.
Transport::WorkPtr DriverTransport::all_gather_coalesced(const Lists& outputs, const Tensors& inputs,
                                                         const c10d::AllgatherOptions& given) {
  TORCH_CHECK_VALUE(outputs.size() == inputs.size() && !inputs.empty(),
                    "all_gather_coalesced takes one list of outputs for each "
                    "input, not ",
                    outputs.size(), " for ", inputs.size(), ".");
  const bool is_nested = is_coalescing();
  if (!is_nested) start_coalescing();
  WorkPtr work;
  for (size_t i = 0; i < inputs.size(); ++i) work = all_gather(outputs[i], inputs[i], given);
  if (is_nested) return work;
  std::vector<Launch> no_messages;
  return end_coalescing(&no_messages);
}

Transport::WorkPtr DriverTransport::all_gather_into(const Tensors& outputs, const Tensors& inputs,
                                                    const c10d::AllgatherOptions& given, bool is_coalesced) {
  const char* name = is_coalesced ? "all_gather_into_tensor_coalesced" : "all_gather_into_tensor";
  Launch launch(is_coalesced ? OpType::COALESCED : OpType::_ALLGATHER_BASE, name,
                is_coalesced ? name : "_all_gather_base");
  TORCH_CHECK_VALUE(outputs.size() == inputs.size() && !inputs.empty(), name,
                    " takes one output for each input, not ", outputs.size(), " for ", inputs.size(), ".");
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_same_dtype(inputs[i], outputs[i], name);
    check_count(outputs[i], inputs[i].numel() * size(), "the output", name);
  }
  const Tensors from = launch.read(inputs), to = launch.write(outputs);
  launch.enqueue(
      [from, to](isthmus_comm comm, isthmus_stream stream) {
        for (size_t i = 0; i < from.size(); ++i) {
          const auto [dtype, count] = elements_to_move(from[i]);
          check_collective(driver().all_gather(to[i].mutable_data_ptr(), from[i].const_data_ptr(), count,
                                               dtype, comm, stream),
                           "all_gather_into_tensor");
        }
      },
      from.size() > 1);
  return this->launch(std::move(launch), options(given.timeout, given.asyncOp));
}

Transport::WorkPtr DriverTransport::gather(const Tensors& outputs, const at::Tensor& input,
                                           const c10d::GatherOptions& given) {
  Launch launch(OpType::GATHER, "gather", "gather");
  const auto root = static_cast<int32_t>(given.rootRank);
  const at::Tensor from = launch.read(input);
  const auto elements = elements_to_move(from);
  if (rank() != root) {
    launch.enqueue([from, elements, root](isthmus_comm comm, isthmus_stream stream) {
      if (!ISTHMUS_HAS(driver(), gather)) return send_to(root, from.const_data_ptr(), elements, comm, stream);
      check_collective(
          driver().gather(nullptr, from.const_data_ptr(), elements.count, elements.dtype, root, comm, stream),
          "gather");
    });
    return this->launch(std::move(launch), options(given.timeout, given.asyncOp));
  }
  check_list(input, outputs, size(), "gather");
  for (const at::Tensor& output : outputs) check_count(output, input.numel(), "an output", "gather");
  const Tensors to = launch.write(outputs);
  if (ISTHMUS_HAS(driver(), gather)) {
    const at::Tensor whole = launch.in_one(to);
    const Tensors parts = Launch::parts(whole, to);
    for (size_t i = 0; i < to.size(); ++i) launch.copy_after(to[i], parts[i]);
    launch.enqueue([whole, from, elements, root](isthmus_comm comm, isthmus_stream stream) {
      check_collective(driver().gather(whole.mutable_data_ptr(), from.const_data_ptr(), elements.count,
                                       elements.dtype, root, comm, stream),
                       "gather");
    });
  } else {
    launch.copy_before(to[static_cast<size_t>(root)], from);
    launch.enqueue(
        [to, elements, root](isthmus_comm comm, isthmus_stream stream) {
          for (int peer = 0; peer < static_cast<int>(to.size()); ++peer)
            if (peer != root)
              receive_from(peer, to[static_cast<size_t>(peer)].mutable_data_ptr(), elements, comm, stream);
        },
        true);
  }
  return this->launch(std::move(launch), options(given.timeout, given.asyncOp));
}

Transport::WorkPtr DriverTransport::scatter(const at::Tensor& output, const Tensors& inputs,
                                            const c10d::ScatterOptions& given) {
  Launch launch(OpType::SCATTER, "scatter", "scatter");
  const auto root = static_cast<int32_t>(given.rootRank);
  if (rank() == root) {
    check_list(output, inputs, size(), "scatter");
    for (const at::Tensor& input : inputs) check_count(input, output.numel(), "an input", "scatter");
  }
  const Tensors from = rank() == root ? launch.read(inputs) : Tensors{};
  const at::Tensor to = launch.write(output);
  const auto elements = elements_to_move(to);
  if (ISTHMUS_HAS(driver(), scatter)) {
    const at::Tensor whole = from.empty() ? at::Tensor() : launch.in_one(from);
    if (!from.empty()) {
      const Tensors parts = Launch::parts(whole, from);
      for (size_t i = 0; i < from.size(); ++i) launch.copy_before(parts[i], from[i]);
    }
    launch.enqueue([whole, to, elements, root](isthmus_comm comm, isthmus_stream stream) {
      const void* const data = whole.defined() ? whole.const_data_ptr() : nullptr;
      check_collective(
          driver().scatter(to.mutable_data_ptr(), data, elements.count, elements.dtype, root, comm, stream),
          "scatter");
    });
  } else if (from.empty()) {
    launch.enqueue([to, elements, root](isthmus_comm comm, isthmus_stream stream) {
      receive_from(root, to.mutable_data_ptr(), elements, comm, stream);
    });
  } else {
    launch.copy_before(to, from[static_cast<size_t>(root)]);
    launch.enqueue(
        [from, elements, root](isthmus_comm comm, isthmus_stream stream) {
          for (int peer = 0; peer < static_cast<int>(from.size()); ++peer)
            if (peer != root)
              send_to(peer, from[static_cast<size_t>(peer)].const_data_ptr(), elements, comm, stream);
        },
        true);
  }
  return this->launch(std::move(launch), options(given.timeout, given.asyncOp));
}

Transport::WorkPtr DriverTransport::reduce_scatter(const at::Tensor& output, const Tensors& inputs,
                                                   const c10d::ReduceScatterOptions& given) {
  Launch launch(OpType::REDUCE_SCATTER, "reduce_scatter", "reduce_scatter");
  const Reduction reduction(given.reduceOp, output.scalar_type(), "reduce_scatter");
  check_list(output, inputs, size(), "reduce_scatter");
  check_count(output, inputs[static_cast<size_t>(rank())].numel(), "the output", "reduce_scatter");
  const Tensors from = launch.read(inputs);
  const at::Tensor to = launch.write(output);
  if (have_equal_counts(from)) {
    const at::Tensor whole = launch.in_one(from);
    const Tensors parts = Launch::parts(whole, from);
    for (size_t i = 0; i < from.size(); ++i) launch.copy_before(parts[i], from[i]);
    const DriverReduction part(launch, to, whole, reduction, size(), rank() * to.numel());
    launch.enqueue([part, count = reduction.count(to)](isthmus_comm comm, isthmus_stream stream) {
      scatter_reduced(part, count, "reduce_scatter", comm, stream);
    });
  } else {
    std::vector<std::pair<size_t, DriverReduction>> parts;
    for (int root = 0; root < size(); ++root) {
      const at::Tensor& part = from[static_cast<size_t>(root)];
      const at::Tensor out = root == rank() ? to : at::Tensor();
      parts.emplace_back(reduction.count(part), DriverReduction(launch, out, part, reduction, size()));
    }
    launch.enqueue(
        [parts = std::move(parts)](isthmus_comm comm, isthmus_stream stream) {
          for (int32_t root = 0; root < static_cast<int32_t>(parts.size()); ++root) {
            const auto& [count, part] = parts[static_cast<size_t>(root)];
            part.enqueue(comm, stream, "reduce_scatter",
                         [&, count = count](void* to, const void* from, const Reduction& reduction) {
                           return driver().reduce(to, from, count, reduction.dtype(), reduction.op(),
                                                  reduction.factor(), root, comm, stream);
                         });
          }
        },
        true);
  }
  return this->launch(std::move(launch), options(given.timeout, given.asyncOp));
}

Transport::WorkPtr DriverTransport::reduce_scatter_into(const Tensors& outputs, const Tensors& inputs,
                                                        const c10d::ReduceScatterOptions& given,
                                                        bool is_coalesced) {
  const char* name = is_coalesced ? "reduce_scatter_tensor_coalesced" : "reduce_scatter_tensor";
  Launch launch(is_coalesced ? OpType::REDUCE_SCATTER_TENSOR_COALESCED : OpType::_REDUCE_SCATTER_BASE, name,
                is_coalesced ? name : "_reduce_scatter_base");
  TORCH_CHECK_VALUE(outputs.size() == inputs.size() && !inputs.empty(), name,
                    " takes one output for each input, not ", outputs.size(), " for ", inputs.size(), ".");
  std::vector<std::pair<size_t, DriverReduction>> parts;
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_same_dtype(inputs[i], outputs[i], name);
    TORCH_CHECK_VALUE(inputs[i].numel() == outputs[i].numel() * size(), name, ": the input has ",
                      inputs[i].numel(), " elements, not ", size(), " times the output's ",
                      outputs[i].numel(), ".");
    const Reduction reduction(given.reduceOp, inputs[i].scalar_type(), name);
    const at::Tensor from = launch.read(inputs[i]), to = launch.write(outputs[i]);
    parts.emplace_back(reduction.count(to),
                       DriverReduction(launch, to, from, reduction, size(), rank() * to.numel()));
  }
  const bool is_group = parts.size() > 1;
  launch.enqueue(
      [parts = std::move(parts)](isthmus_comm comm, isthmus_stream stream) {
        for (const auto& [count, part] : parts)
          scatter_reduced(part, count, "reduce_scatter_tensor", comm, stream);
      },
      is_group);
  return this->launch(std::move(launch), options(given.timeout, given.asyncOp));
}

}  // namespace isthmus
