// Messages between two ranks, and blocks of operations, by the driver or by the transport.
#include <c10/core/StreamGuard.h>

#include "collectives/backend.h"
#include "collectives/elements.h"
#include "collectives/gloo/work.h"
#include "core/stream.h"

namespace isthmus {

using c10d::OpType;
using Access = HostViews::Access;
using Elements = HostViews::Elements;

void ChipBackend::startCoalescing() {
  driver_.start_coalescing();
  coalesced_.clear();  // of a block that an exception ended
  coalescing_ = true;
}

ChipBackend::WorkPtr ChipBackend::endCoalescing() {
  TORCH_CHECK(coalescing_, "the chip backend is not coalescing.");
  coalescing_ = false;
  std::vector<Launch> left;
  WorkPtr work = driver_.end_coalescing(&left);
  if (work && left.empty() && coalesced_.empty()) return work;
  if (work) coalesced_.push_back(std::move(work));
  for (Launch& launch : left) {
    const Description& message = launch.description();
    const at::Tensor& tensor = (message.inputs.empty() ? message.outputs : message.inputs)[0];
    coalesced_.push_back(by_transport(launch.type(), tensor, message.peer, 0));
  }
  return c10::make_intrusive<CoalescedWork>(std::exchange(coalesced_, {}));
}

ChipBackend::WorkPtr ChipBackend::send(Tensors& tensors, int destination, int tag) {
  return message(OpType::SEND, tensors.at(0), destination, tag);
}

ChipBackend::WorkPtr ChipBackend::recv(Tensors& tensors, int source, int tag) {
  return message(OpType::RECV, tensors.at(0), source, tag);
}

// The driver does not know tags.
ChipBackend::WorkPtr ChipBackend::message(OpType type, const at::Tensor& tensor, int peer, int tag) {
  if (tag != 0) return keep(by_transport(type, tensor, peer, tag));
  if (driver_.waits_for(tensor, peer)) return later(type, tensor, peer);
  if (!driver_.serves(tensor, peer)) return keep(by_transport(type, tensor, peer, tag));
  return type == OpType::SEND ? driver_.send(tensor, peer) : driver_.receive(tensor, peer);
}

ChipBackend::WorkPtr ChipBackend::by_transport(OpType type, const at::Tensor& tensor, int peer, int tag) {
  const bool sends = type == OpType::SEND;
  HostViews views(sends ? "send" : "recv", Elements::kMoved);
  Tensors hosts = {views.map(tensor, sends ? Access::kRead : Access::kWrite)};
  return wrap(type, sends ? transport().send(hosts, peer, tag) : transport().recv(hosts, peer, tag),
              std::move(views));
}

// On the stream of such messages, which waits for what was enqueued before this call and for nothing after
// it.
ChipBackend::WorkPtr ChipBackend::later(OpType type, const at::Tensor& tensor, int peer) {
  const c10::DeviceIndex device = tensor.device().index();
  const auto lane = type == OpType::SEND ? Group::Lane::kSend : Group::Lane::kReceive;
  const c10::Stream stream = group_->stream(device, lane, peer);
  Moment now;
  now.record(current_stream(device));
  now.hold_up(stream);
  const auto work = c10::make_intrusive<DeferredWork>(getRank(), peer, type);
  const auto self = c10::intrusive_ptr<ChipBackend>::reclaim_copy(this);
  group_->held_messages().push({device, peer}, work, [self, type, tensor = detached(tensor), peer, stream] {
    const c10::StreamGuard guard(stream);
    WorkPtr launched = self->driver_.launch_held(type, tensor, peer);
    return launched != nullptr ? launched : self->by_transport(type, tensor, peer, 0);
  });
  return work;
}

ChipBackend::WorkPtr ChipBackend::recvAnysource(Tensors& tensors, int tag) {
  if (tag == 0 && tensors.at(0).is_privateuseone() && Group::driver_serves()) {
    TORCH_CHECK_NOT_IMPLEMENTED(getSize() == 2,
                                "recv: a chip takes messages from a rank that is named; pass src.");
    const int source = 1 - getRank();
    if (driver_.serves(tensors[0], source)) return driver_.receive(tensors[0], source);
  }
  HostViews views("recv", Elements::kMoved);
  auto hosts = views.map(tensors, Access::kWrite);
  return follow(OpType::RECVANYSOURCE, transport().recvAnysource(hosts, tag), std::move(views));
}

}  // namespace isthmus
