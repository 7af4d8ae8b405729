// Messages between two ranks, exchanges made of messages, the barrier, and the launch of all operations.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>

#include <numeric>
#include <set>
#include <utility>

#include "collectives/driver/checks.h"
#include "collectives/driver/transport.h"
#include "core/stream.h"

namespace isthmus {

using c10d::OpType;
using namespace collective_checks;

namespace {

// The parts that one rank sends to each rank, or receives from each, in elements of the driver.
struct Parts {
  std::vector<size_t> counts, offsets;
};

Parts split(const at::Tensor& tensor, const std::vector<int64_t>& splits, int size, const char* side) {
  const auto ranks = static_cast<size_t>(size);
  const int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  TORCH_CHECK_VALUE(!splits.empty() || rows % size == 0, "all_to_all_single: the ", rows, " rows of the ",
                    side, " cannot be split evenly among ", size, " ranks; pass split sizes.");
  TORCH_CHECK_VALUE(splits.empty() || splits.size() == ranks, "all_to_all_single takes ", size, " ", side,
                    " split sizes, not ", splits.size(), ".");
  TORCH_CHECK_VALUE(splits.empty() || std::accumulate(splits.begin(), splits.end(), int64_t{0}) == rows,
                    "all_to_all_single: the ", side, " split sizes do not add up to its ", rows, " rows.");
  const size_t row = rows == 0 ? 0 : elements_to_move(tensor).count / static_cast<size_t>(rows);
  Parts parts;
  size_t offset = 0;
  for (size_t i = 0; i < ranks; ++i) {
    parts.counts.push_back(row * static_cast<size_t>(splits.empty() ? rows / size : splits[i]));
    parts.offsets.push_back(offset);
    offset += parts.counts.back();
  }
  return parts;
}

void exchange(const at::Tensor& to, const Parts& taken, const at::Tensor& from, const Parts& sent,
              isthmus_comm comm, isthmus_stream stream) {
  const isthmus_dtype dtype = elements_to_move(from).dtype;
  const size_t bytes = dtype == ISTHMUS_UINT8 ? 1 : from.element_size();
  const auto* source = static_cast<const char*>(from.const_data_ptr());
  auto* target = static_cast<char*>(to.mutable_data_ptr());
  for (int peer = 0; peer < static_cast<int>(sent.counts.size()); ++peer) {
    const auto i = static_cast<size_t>(peer);
    send_to(peer, source + sent.offsets[i] * bytes, {dtype, sent.counts[i]}, comm, stream);
    receive_from(peer, target + taken.offsets[i] * bytes, {dtype, taken.counts[i]}, comm, stream);
  }
}

bool are_equal(const Parts& parts) {
  return std::all_of(parts.counts.begin(), parts.counts.end(),
                     [&](size_t count) { return count == parts.counts[0]; });
}

}  // namespace

Transport::WorkPtr DriverTransport::all_to_all_single(const at::Tensor& output, const at::Tensor& input,
                                                      const Splits& splits,
                                                      const c10d::AllToAllOptions& given) {
  Launch launch(OpType::ALLTOALL_BASE, "all_to_all_single", "all_to_all_single");
  check_same_dtype(output, input, "all_to_all_single");
  const Parts taken = split(output, splits.outputs, size(), "output");
  const Parts sent = split(input, splits.inputs, size(), "input");
  const at::Tensor from = launch.read(input), to = launch.write(output);
  const bool is_even = splits.outputs.empty() && splits.inputs.empty() && are_equal(sent);
  const bool by_parts = ISTHMUS_HAS(driver(), all_to_all_v);
  if (is_even && ISTHMUS_HAS(driver(), all_to_all)) {
    launch.enqueue([from, to, count = sent.counts[0]](isthmus_comm comm, isthmus_stream stream) {
      check_collective(driver().all_to_all(to.mutable_data_ptr(), from.const_data_ptr(), count,
                                           elements_to_move(from).dtype, comm, stream),
                       "all_to_all_single");
    });
  } else if (by_parts) {
    launch.enqueue([from, to, sent, taken](isthmus_comm comm, isthmus_stream stream) {
      check_collective(driver().all_to_all_v(to.mutable_data_ptr(), taken.counts.data(), taken.offsets.data(),
                                             from.const_data_ptr(), sent.counts.data(), sent.offsets.data(),
                                             elements_to_move(from).dtype, comm, stream),
                       "all_to_all_single");
    });
  } else {
    launch.enqueue(
        [from, to, sent, taken](isthmus_comm comm, isthmus_stream stream) {
          exchange(to, taken, from, sent, comm, stream);
        },
        true);
  }
  return this->launch(std::move(launch), options(given.timeout, given.asyncOp));
}

Transport::WorkPtr DriverTransport::all_to_all(const Tensors& outputs, const Tensors& inputs,
                                               const c10d::AllToAllOptions& given) {
  Launch launch(OpType::ALLTOALL, "all_to_all", "all_to_all");
  TORCH_CHECK_VALUE(!inputs.empty(), "all_to_all takes a list of ", size(),
                    " tensors, one for each rank, not of 0.");
  check_list(inputs[0], inputs, size(), "all_to_all");
  check_list(inputs[0], outputs, size(), "all_to_all");
  const Tensors from = launch.read(inputs), to = launch.write(outputs);
  launch.enqueue(
      [from, to](isthmus_comm comm, isthmus_stream stream) {
        for (int peer = 0; peer < static_cast<int>(from.size()); ++peer) {
          const auto i = static_cast<size_t>(peer);
          send_to(peer, from[i].const_data_ptr(), elements_to_move(from[i]), comm, stream);
          receive_from(peer, to[i].mutable_data_ptr(), elements_to_move(to[i]), comm, stream);
        }
      },
      true);
  return this->launch(std::move(launch), options(given.timeout, given.asyncOp));
}

Launch DriverTransport::prepare_message(OpType type, const at::Tensor& tensor, int peer) const {
  const bool sends = type == OpType::SEND;
  const std::string ranks = std::to_string(rank()) + (sends ? "->" : "<-") + std::to_string(peer);
  Launch launch(type, sends ? "send" : "recv", (sends ? "send " : "recv ") + ranks);
  launch.description().peers = {peer};
  const at::Tensor plain = sends ? launch.read(tensor) : launch.write(tensor);
  launch.enqueue([plain, peer, sends, group = group_](isthmus_comm comm, isthmus_stream stream) {
    const int number = group->rank_in(comm, peer);
    if (sends)
      send_to(number, plain.const_data_ptr(), elements_to_move(plain), comm, stream);
    else
      receive_from(number, plain.mutable_data_ptr(), elements_to_move(plain), comm, stream);
  });
  return launch;
}

Transport::WorkPtr DriverTransport::message(OpType type, const at::Tensor& tensor, int peer, int) {
  Launch launch = prepare_message(type, tensor, peer);
  if (is_coalescing()) return hold(std::move(launch), options(c10d::kUnsetTimeout, true));
  auto communicator = group_->with(launch.device(), launch.peer());
  return launch_alone(std::move(launch), std::move(communicator));
}

Transport::WorkPtr DriverTransport::receive_from_any(const at::Tensor& tensor, int tag) {
  TORCH_CHECK_NOT_IMPLEMENTED(size() == 2, "recv: a chip cannot receive from any rank; pass src.");
  return message(OpType::RECV, tensor, 1 - rank(), tag);
}

Transport::WorkPtr DriverTransport::launch_deferred(OpType type, const at::Tensor& tensor, int peer) {
  auto communicator = group_->with(tensor.device().index(), peer);
  if (communicator == nullptr) return nullptr;
  return launch_alone(prepare_message(type, tensor, peer), std::move(communicator));
}

Transport::WorkPtr DriverTransport::barrier(const c10d::BarrierOptions& given) {
  Launch launch(OpType::BARRIER, "barrier", "all_reduce_barrier");
  const c10::DeviceIndex device = group_->connected_device().value();
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const at::Tensor token =
      launch.write(at::empty({1}, at::TensorOptions().dtype(at::kInt).device(c10::Device(kChip, device))));
  launch.enqueue([token](isthmus_comm comm, isthmus_stream stream) {
    void* const data = token.mutable_data_ptr();
    check_collective(driver().all_reduce(data, data, 1, ISTHMUS_INT32, ISTHMUS_MAX, nullptr, comm, stream),
                     "barrier");
  });
  Launch::Options chosen = options(given.timeout, given.asyncOp);
  chosen.blocks = true;
  return this->launch(std::move(launch), chosen);
}

void DriverTransport::start_coalescing() { block_ = std::make_unique<Block>(); }

Transport::WorkPtr DriverTransport::end_coalescing(std::vector<Launch>* left) {
  const std::unique_ptr<Block> block = std::move(block_);
  if (block == nullptr || block->launches.empty()) return nullptr;
  std::vector<Launch>& launches = block->launches;
  const auto communicators = connect(&launches, left);
  if (launches.empty()) return nullptr;
  const bool has_collective = std::any_of(launches.begin(), launches.end(),
                                          [](const Launch& launch) { return !c10d::isP2POp(launch.type()); });
  Description description = launches[0].description();
  if (launches.size() > 1) {
    description.title = "nccl:coalesced";
    description.peers.clear();
    if (!has_collective) {
      std::set<int> peers;
      for (const Launch& launch : launches) peers.insert(launch.peer());
      description.peers.assign(peers.begin(), peers.end());
    }
    for (size_t i = 1; i < launches.size(); ++i) {
      const Description& other = launches[i].description();
      description.inputs.insert(description.inputs.end(), other.inputs.begin(), other.inputs.end());
      description.outputs.insert(description.outputs.end(), other.outputs.begin(), other.outputs.end());
    }
  }
  (has_collective ? description.collective : description.message) =
      has_collective ? group_->next_collective() : group_->next_message();
  const auto use = has_collective ? Group::StreamUse::kCollective : Group::StreamUse::kBatch;
  const c10::DeviceIndex device = launches[0].device();
  const bool runs_here = has_collective && !block->options.is_async;
  const c10::Stream stream = runs_here ? current_stream(device) : group_->stream(device, use);
  Launch::run(launches, *block->work, *group_, communicators, stream, block->options, std::move(description));
  return block->work;
}

// Pairs of ranks connect in an order common to all ranks, which rules out deadlocks.
std::vector<std::shared_ptr<Communicator>> DriverTransport::connect(std::vector<Launch>* launches,
                                                                    std::vector<Launch>* left) {
  std::set<std::tuple<int, int, c10::DeviceIndex, int>> pairs;
  for (const Launch& launch : *launches) {
    const int peer = launch.peer();
    if (peer >= 0) pairs.emplace(std::min(peer, rank()), std::max(peer, rank()), launch.device(), peer);
  }
  for (const auto& [low, high, device, peer] : pairs) {
    group_->deferred_messages().await({device, peer});
    group_->with(device, peer);
  }
  std::vector<Launch> connected;
  std::vector<std::shared_ptr<Communicator>> communicators;
  for (Launch& launch : *launches) {
    const bool is_message = launch.peer() >= 0;
    auto found = is_message ? group_->with(launch.device(), launch.peer()) : group_->all(launch.device());
    (found != nullptr ? connected : *left).push_back(std::move(launch));
    if (found != nullptr) communicators.push_back(std::move(found));
  }
  *launches = std::move(connected);
  return communicators;
}

Launch::Options DriverTransport::options(std::chrono::milliseconds timeout, bool is_async) const {
  return {timeout == c10d::kUnsetTimeout ? group_->timeout() : timeout, is_async, false};
}

Transport::WorkPtr DriverTransport::hold(Launch&& launch, const Launch::Options& options) {
  if (block_->launches.empty()) {
    block_->options = options;
    block_->work = c10::make_intrusive<DriverWork>(group_, OpType::COALESCED);
  }
  TORCH_CHECK_NOT_IMPLEMENTED(block_->launches.empty() || block_->launches[0].device() == launch.device(),
                              "a coalescing block takes tensors of one device, not chip:",
                              static_cast<int>(block_->launches[0].device()),
                              " and chip:", static_cast<int>(launch.device()), ".");
  block_->launches.push_back(std::move(launch));
  return block_->work;
}

Transport::WorkPtr DriverTransport::launch(Launch&& launch, const Launch::Options& options) {
  if (is_coalescing()) return hold(std::move(launch), options);
  const auto work = c10::make_intrusive<DriverWork>(group_, launch.type());
  const c10::DeviceIndex device = launch.device();
  const c10::Stream stream =
      options.is_async ? group_->stream(device, Group::StreamUse::kCollective) : current_stream(device);
  Description description = std::move(launch.description());
  description.collective = group_->next_collective();
  std::vector<Launch> launches;
  launches.push_back(std::move(launch));
  Launch::run(launches, *work, *group_, {group_->all(device)}, stream, options, std::move(description));
  return work;
}

Transport::WorkPtr DriverTransport::launch_alone(Launch&& launch,
                                                 std::shared_ptr<Communicator> communicator) {
  const auto work = c10::make_intrusive<DriverWork>(group_, launch.type());
  const auto use = launch.type() == OpType::SEND ? Group::StreamUse::kSend : Group::StreamUse::kReceive;
  const c10::Stream stream = group_->stream(launch.device(), use, launch.peer());
  Description description = std::move(launch.description());
  description.message = group_->next_message();
  std::vector<Launch> launches;
  launches.push_back(std::move(launch));
  Launch::run(launches, *work, *group_, {std::move(communicator)}, stream, options(c10d::kUnsetTimeout, true),
              std::move(description));
  return work;
}

}  // namespace isthmus
