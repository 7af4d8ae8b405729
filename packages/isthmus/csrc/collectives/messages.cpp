// ChipBackend's messages between two ranks and its coalescing blocks, which may use both transports.
#include <c10/core/StreamGuard.h>

#include "collectives/backend.h"
#include "collectives/elements.h"
#include "collectives/gloo/work.h"
#include "core/stream.h"

namespace isthmus {

using c10d::OpType;

void ChipBackend::startCoalescing() {
  driver_.start_coalescing();
  gloo_.start_coalescing();
  is_coalescing_ = true;
}

ChipBackend::WorkPtr ChipBackend::endCoalescing() {
  TORCH_CHECK(std::exchange(is_coalescing_, false), "the chip backend is not coalescing.");
  std::vector<Launch> unconnected;
  WorkPtr by_driver = driver_.end_coalescing(&unconnected);
  std::vector<WorkPtr> works = gloo_.end_coalescing();
  if (by_driver && unconnected.empty() && works.empty()) return by_driver;
  if (by_driver) works.push_back(std::move(by_driver));
  for (Launch& launch : unconnected) {
    const Description& message = launch.description();
    const at::Tensor& tensor = (message.inputs.empty() ? message.outputs : message.inputs)[0];
    works.push_back(gloo_.message_alone(launch.type(), tensor, message.peer(), 0));
  }
  return c10::make_intrusive<CoalescedWork>(std::move(works));
}

ChipBackend::WorkPtr ChipBackend::send(Tensors& tensors, int destination, int tag) {
  return message(OpType::SEND, only(tensors, "send", "tensor"), destination, tag);
}

ChipBackend::WorkPtr ChipBackend::recv(Tensors& tensors, int source, int tag) {
  return message(OpType::RECV, only(tensors, "recv", "tensor"), source, tag);
}

ChipBackend::WorkPtr ChipBackend::message(OpType type, const at::Tensor& tensor, int peer, int tag) {
  if (tag == 0 && driver_.would_block(tensor, peer)) return make_deferred(type, tensor, peer);
  return choose(tensor, peer, tag).message(type, tensor, peer, tag);
}

ChipBackend::WorkPtr ChipBackend::recvAnysource(Tensors& tensors, int tag) {
  const at::Tensor& tensor = only(tensors, "recv", "tensor");
  Transport& chosen =
      getSize() == 2 ? choose(tensor, 1 - getRank(), tag)
                     : choose_if(tag == 0 && tensor.is_privateuseone() && DriverTransport::is_available());
  return chosen.receive_from_any(tensor, tag);
}

// Runs on the stream of such messages, which waits for what was enqueued before this call and for nothing
// after it.
ChipBackend::WorkPtr ChipBackend::make_deferred(OpType type, const at::Tensor& tensor, int peer) {
  const c10::DeviceIndex device = tensor.device().index();
  const auto use = type == OpType::SEND ? Group::StreamUse::kSend : Group::StreamUse::kReceive;
  const c10::Stream stream = group_->stream(device, use, peer);
  Event now;
  now.record(current_stream(device));
  now.block(stream);
  const auto work = c10::make_intrusive<DeferredWork>(getRank(), peer, type);
  const auto self = c10::intrusive_ptr<ChipBackend>::reclaim_copy(this);
  group_->deferred_messages().push(
      {device, peer}, work, [self, type, tensor = detached(tensor), peer, stream] {
        const c10::StreamGuard guard(stream);
        WorkPtr launched = self->driver_.launch_deferred(type, tensor, peer);
        return launched != nullptr ? launched : self->gloo_.message_alone(type, tensor, peer, 0);
      });
  return work;
}

}  // namespace isthmus
