#include "drivers/host/collectives/point_to_point.h"

#include <algorithm>

#include "drivers/host/collectives/reduce_kernels.h"
#include "drivers/host/error.h"

namespace isthmus::host {

PointToPoint::PointToPoint(Request request, uint64_t number)
    : Operation(std::move(request)),
      number_(number),
      channel_(sends() ? communicator().control().channel(communicator().rank(), request_.root)
                       : communicator().control().channel(request_.root, communicator().rank())) {
  awaited_ = {sends() ? &channel_.sent : &channel_.received, number_ - 1};
}

bool PointToPoint::step() { return sends() ? step_of_sender() : step_of_receiver(); }

bool PointToPoint::step_of_sender() {
  switch (phase_) {
    case Phase::kTurn:
      start();
      awaited_ = {&channel_.received, number_ > kDepth ? number_ - kDepth : 0};
      phase_ = Phase::kRoom;
      return false;
    case Phase::kRoom: {
      Message& message = channel_.message(number_);
      write(message);
      const bool is_inline = message.is_inline != 0;
      channel_.sent.store(number_);
      ring_both();
      awaited_ = {&channel_.received, number_};
      phase_ = Phase::kTaken;
      return is_inline;
    }
    default:
      return true;
  }
}

bool PointToPoint::step_of_receiver() {
  if (phase_ == Phase::kTurn) {
    start();
    awaited_ = {&channel_.sent, number_};
    phase_ = Phase::kTaken;
    return false;
  }
  {
    const Access access(communicator());
    read(channel_.message(number_));
  }
  channel_.received.store(number_);
  ring_both();
  return true;
}

void PointToPoint::write(Message& message) {
  const std::vector<Piece> pieces = pieces_of(request_.from, request_.from_bytes());
  message.count = request_.count;
  message.dtype = static_cast<uint32_t>(request_.dtype);
  message.pieces = static_cast<uint32_t>(pieces.size());
  message.is_inline = request_.from_bytes() <= kInlineBytes ? 1 : 0;
  if (message.is_inline != 0) {
    copy(Buffer(message.payload), 0,
         communicator().memory(communicator().rank(), pieces.data(), message.pieces), 0,
         request_.from_bytes());
    return;
  }
  if (pieces.size() * sizeof(Piece) > kChannelBytes) {
    fail(
        ISTHMUS_UNSUPPORTED,
        "send: its buffer consists of %zu pieces, more than the host chip can share; use larger segments, or "
        "memory that is not virtual memory",
        pieces.size());
  }
  std::copy(pieces.begin(), pieces.end(), reinterpret_cast<Piece*>(message.payload));
}

void PointToPoint::read(const Message& message) {
  constexpr uint64_t kRunBytes = uint64_t{1} << 20;  // between two checks of the communicator
  if (message.count != request_.count || message.dtype != static_cast<uint32_t>(request_.dtype)) {
    fail(ISTHMUS_INVALID_ARGUMENT,
         "%s: message %llu from %s to %s differs: sent %llu %s, to be received %llu %s; both must be equal",
         communicator().title().c_str(), static_cast<unsigned long long>(number_),
         communicator().name_of(request_.root).c_str(), communicator().name_of(communicator().rank()).c_str(),
         static_cast<unsigned long long>(message.count),
         dtype_name(static_cast<isthmus_dtype>(message.dtype)),
         static_cast<unsigned long long>(request_.count), dtype_name(request_.dtype));
  }
  const std::vector<Piece> pieces = pieces_of(request_.to, request_.to_bytes());
  const Buffer to =
      communicator().memory(communicator().rank(), pieces.data(), static_cast<uint32_t>(pieces.size()));
  char* payload = const_cast<char*>(message.payload);
  const Buffer from =
      message.is_inline != 0
          ? Buffer(payload)
          : communicator().memory(request_.root, reinterpret_cast<const Piece*>(payload), message.pieces);
  const uint64_t bytes = request_.to_bytes();
  for (uint64_t offset = 0; offset < bytes; offset += kRunBytes) {
    if (message.is_inline == 0) communicator().require_healthy();
    copy(to, offset, from, offset, std::min(bytes - offset, kRunBytes), bytes >= kStreamBytes);
  }
}

// Wakes the peer, and the next message of this rank, on whichever thread it waits.
void PointToPoint::ring_both() {
  communicator().control().ring(request_.root);
  if (request_.root != communicator().rank()) communicator().control().ring(communicator().rank());
}

std::vector<int32_t> PointToPoint::late_ranks() const {
  if (request_.root == communicator().rank() || awaited_.ready()) return {};
  return {request_.root};
}

std::string PointToPoint::late_for() const { return sends() ? "receive it" : "send it"; }

std::string PointToPoint::label() const {
  return "message " + std::to_string(number_) + " (" +
         host::describe(request_.kind, request_.count, request_.dtype, request_.op, -1) +
         (sends() ? " from rank " : " by rank ") + std::to_string(communicator().rank()) +
         (sends() ? " to rank " : " from rank ") + std::to_string(request_.root) + ")";
}

}  // namespace isthmus::host
