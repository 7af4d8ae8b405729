#include "drivers/host/collectives/collective.h"

#include <algorithm>
#include <cstring>

#include "drivers/host/collectives/algorithms.h"
#include "drivers/host/device.h"
#include "drivers/host/error.h"

namespace isthmus::host {
namespace {

bool is_reduction(Kind kind) {
  return kind == Kind::kAllReduce || kind == Kind::kReduce || kind == Kind::kReduceScatter;
}

bool agree(const Announcement& a, const Announcement& b) {
  return a.sequence == b.sequence && a.kind == b.kind && a.count == b.count && a.dtype == b.dtype &&
         a.reduce_op == b.reduce_op && a.root == b.root && a.algorithm == b.algorithm;
}

std::string describe(const Announcement& call) {
  return describe(static_cast<Kind>(call.kind), call.count, static_cast<isthmus_dtype>(call.dtype),
                  static_cast<isthmus_reduce_op>(call.reduce_op), call.root);
}

const char* algorithm_name(uint32_t algorithm) {
  static constexpr const char* kNames[] = {"the default", "mesh", "ring", "halving-doubling"};
  return kNames[algorithm];
}

Plan plan_all_reduce(const Exchange& exchange, Algorithm algorithm) {
  if (exchange.is_inline) return reduce_from_all(exchange);
  switch (algorithm) {
    case Algorithm::kRing:
      return ring_all_reduce(exchange);
    case Algorithm::kHalvingDoubling:
      return halving_doubling_all_reduce(exchange);
    default:
      return mesh_all_reduce(exchange);
  }
}

Plan make_plan(const Exchange& exchange, Algorithm algorithm) {
  switch (exchange.request.kind) {
    case Kind::kAllReduce:
      return plan_all_reduce(exchange, algorithm);
    case Kind::kReduce:
      if (!exchange.is_inline) return reduce_to_root(exchange);
      return exchange.rank() == exchange.request.root ? reduce_from_all(exchange) : Plan{};
    case Kind::kBroadcast:
      return exchange.is_inline ? broadcast_from_root(exchange) : broadcast_by_all(exchange);
    case Kind::kAllGather:
      return exchange.is_inline ? gather_here(exchange) : all_gather_to_all(exchange);
    case Kind::kReduceScatter:
      return reduce_scatter(exchange);
    case Kind::kAllToAll:
      return all_to_all(exchange);
    case Kind::kAllToAllV:
      return all_to_all_v(exchange);
    case Kind::kGather:
      if (!exchange.is_inline) return gather_to_root(exchange);
      return exchange.rank() == exchange.request.root ? gather_here(exchange) : Plan{};
    case Kind::kScatter:
      return scatter(exchange);
    default:
      return Plan{};
  }
}

}  // namespace

Collective::Collective(Request request, uint64_t sequence)
    : Operation(std::move(request)), sequence_(sequence) {
  awaited_ = {&communicator().ended(), sequence_ - 1};
}

bool Collective::step() {
  switch (phase_) {
    case Phase::kTurn:
      start();
      announce();
      phase_ = Phase::kArrive;
      return false;
    case Phase::kArrive:
      require_agreement();
      is_barrier_ = prepare();
      phase_ = Phase::kWork;
      [[fallthrough]];
    case Phase::kWork:
      for (; planned_ < plan_.steps; ++planned_) {
        if (plan_.waits) {
          for (const Wait& wait : plan_.waits(planned_)) {
            awaited_ = wait;
            if (!awaited_.ready()) return false;
          }
        }
        exchange_->require_usable();
        const Access access(communicator());
        plan_.work(planned_);
      }
      return is_barrier_ ? finish() : end();
    case Phase::kFinish:
      return end();
  }
  return true;
}

// Bytes of the payload in which all_to_all_v announces its counts, before the data.
uint64_t Collective::data_offset() const {
  if (request_.kind != Kind::kAllToAllV) return 0;
  return 2 * sizeof(Part) * static_cast<uint64_t>(communicator().world_size());
}

// The slot is free: all ranks have arrived at the last operation, so they have completed the one before it.
void Collective::announce() {
  Control& control = communicator().control();
  const auto ranks = static_cast<uint64_t>(communicator().world_size());
  Announcement& call = slot(communicator().rank()).call;
  call.sequence = sequence_;
  call.count = request_.count;
  call.kind = static_cast<uint32_t>(request_.kind);
  call.dtype = static_cast<uint32_t>(request_.dtype);
  call.reduce_op = is_reduction(request_.kind) ? static_cast<uint32_t>(request_.op) : 0;
  call.root = request_.root;
  call.algorithm = static_cast<uint32_t>(runtime().config.algorithm);
  std::memcpy(call.factor, request_.factor, sizeof(call.factor));
  write_payload(call, slot(communicator().rank()).payload);
  communicator().own().arrived.store(sequence_);
  awaited_ = {&control.arrivals(), sequence_ * ranks};
  if (control.arrivals().fetch_add(1) + 1 == awaited_.target) control.ring_all();
}

void Collective::write_payload(Announcement& call, char* payload) {
  to_pieces_ = pieces_of(request_.to, request_.to_bytes());
  const uint64_t offset = data_offset();
  if (request_.kind == Kind::kAllToAllV) {
    std::memcpy(payload, request_.from_parts.data(), offset / 2);
    std::memcpy(payload + offset / 2, request_.to_parts.data(), offset / 2);
  }
  payload += offset;
  call.from_pieces = call.to_pieces = 0;
  if (request_.kind == Kind::kExchange) {
    call.is_inline = 1;
    std::memcpy(payload, request_.from, request_.count);
    return;
  }
  const bool is_free = request_.kind != Kind::kAllReduce || runtime().config.algorithm == Algorithm::kAuto;
  from_pieces_ = pieces_of(request_.from, request_.from_bytes());
  call.is_inline = is_free && request_.contribution() <= kInlineBytes ? 1 : 0;
  if (call.is_inline != 0) {
    const Buffer own = communicator().memory(communicator().rank(), from_pieces_.data(),
                                             static_cast<uint32_t>(from_pieces_.size()));
    copy(Buffer(payload), 0, own, 0, request_.from_bytes());
    return;
  }
  if (offset + (from_pieces_.size() + to_pieces_.size()) * sizeof(Piece) > kPayloadBytes) {
    fail(ISTHMUS_UNSUPPORTED, "%s: its buffers consist of %zu pieces, more than the host chip can share; %s",
         kind_name(request_.kind), from_pieces_.size() + to_pieces_.size(),
         "use larger segments, or memory that is not virtual memory");
  }
  call.from_pieces = static_cast<uint32_t>(from_pieces_.size());
  call.to_pieces = static_cast<uint32_t>(to_pieces_.size());
  std::copy(from_pieces_.begin(), from_pieces_.end(), reinterpret_cast<Piece*>(payload));
  std::copy(to_pieces_.begin(), to_pieces_.end(), reinterpret_cast<Piece*>(payload) + from_pieces_.size());
}

// Every rank compares all announcements in the same way, so all ranks fail if one does.
void Collective::require_agreement() const {
  const Announcement& first = slot(0).call;
  for (int32_t rank = 1; rank < communicator().world_size(); ++rank) {
    const Announcement& call = slot(rank).call;
    if (agree(first, call)) continue;
    const bool is_forced = first.algorithm != call.algorithm;
    const auto text = [&](int32_t of, const Announcement& call) {
      return communicator().name_of(of) + " " + describe(call) +
             (is_forced ? std::string(" by ") + algorithm_name(call.algorithm) : "");
    };
    throw Failure{ISTHMUS_INVALID_ARGUMENT,
                  communicator().title() + ": " + "operation " + std::to_string(sequence_) +
                      " differs between ranks: " + text(0, first) + ", " + text(rank, call) +
                      "; all ranks must make the same calls in the same order",
                  -1, 0, sequence_};
  }
  if (request_.kind == Kind::kAllToAllV) require_parts_agree();
}

void Collective::require_parts_agree() const {
  const int32_t ranks = communicator().world_size();
  for (int32_t from = 0; from < ranks; ++from) {
    for (int32_t to = 0; to < ranks; ++to) {
      const auto* sent = reinterpret_cast<const Part*>(slot(from).payload) + to;
      const auto* taken = reinterpret_cast<const Part*>(slot(to).payload) + ranks + from;
      if (sent->count == taken->count) continue;
      throw Failure{ISTHMUS_INVALID_ARGUMENT,
                    communicator().title() + ": operation " + std::to_string(sequence_) +
                        " (all_to_all_v): rank " + std::to_string(from) + " sends " +
                        std::to_string(sent->count) + " elements to rank " + std::to_string(to) +
                        ", which receives " + std::to_string(taken->count) + "; the counts must be equal",
                    -1, 0, sequence_};
    }
  }
}

bool Collective::prepare() {
  bool all_inline = true;
  for (int32_t rank = 0; rank < communicator().world_size(); ++rank) {
    all_inline = all_inline && slot(rank).call.is_inline != 0;
  }
  const Kernels* kernels = is_reduction(request_.kind) ? find_kernels(request_.dtype, request_.op) : nullptr;
  exchange_.reset(new Exchange{
      communicator(), request_, sequence_, kernels, bytes() >= kStreamBytes, all_inline, {}, {}, {}, {}});
  for (int32_t rank = 0; rank < communicator().world_size(); ++rank) {
    exchange_->from.push_back(from_of(rank));
    exchange_->to.push_back(to_of(rank));
    exchange_->factors.push_back(request_.op == ISTHMUS_PREMUL_SUM ? slot(rank).call.factor : nullptr);
    exchange_->sent_parts.push_back(reinterpret_cast<const Part*>(slot(rank).payload));
  }
  plan_ = make_plan(*exchange_, runtime().config.algorithm);
  if (request_.kind == Kind::kExchange) {
    for (int32_t rank = 0; rank < communicator().world_size(); ++rank) {
      const char* bytes = slot(rank).payload;
      gathered_.insert(gathered_.end(), bytes, bytes + request_.count);
    }
  }
  return !all_inline;
}

Buffer Collective::from_of(int32_t rank) const {
  char* payload = slot(rank).payload + data_offset();
  if (slot(rank).call.is_inline != 0) return Buffer(payload);
  return communicator().memory(rank, reinterpret_cast<const Piece*>(payload), slot(rank).call.from_pieces);
}

Buffer Collective::to_of(int32_t rank) const {
  if (rank == communicator().rank()) {
    return communicator().memory(rank, to_pieces_.data(), static_cast<uint32_t>(to_pieces_.size()));
  }
  if (slot(rank).call.is_inline != 0) return {};
  const char* payload = slot(rank).payload + data_offset();
  return communicator().memory(rank, reinterpret_cast<const Piece*>(payload) + slot(rank).call.from_pieces,
                               slot(rank).call.to_pieces);
}

bool Collective::finish() {
  Control& control = communicator().control();
  communicator().own().finished.store(sequence_);
  awaited_ = {&control.finishes(),
              communicator().next_barrier() * static_cast<uint64_t>(communicator().world_size())};
  if (control.finishes().fetch_add(1) + 1 == awaited_.target) control.ring_all();
  phase_ = Phase::kFinish;
  return false;
}

// Wakes the next collective of this rank, on whichever thread it waits.
bool Collective::end() {
  communicator().ended().store(sequence_);
  communicator().control().ring(communicator().rank());
  return true;
}

std::vector<int32_t> Collective::late_ranks() const {
  std::vector<int32_t> ranks;
  for (int32_t rank = 0; rank < communicator().world_size(); ++rank) {
    const Seat& seat = communicator().control().seat(rank);
    const uint64_t reached = phase_ == Phase::kArrive ? seat.arrived.load() : seat.finished.load();
    if (rank != communicator().rank() && reached < sequence_) ranks.push_back(rank);
  }
  return ranks;
}

std::string Collective::late_for() const { return phase_ == Phase::kArrive ? "arrive" : "finish"; }

std::string Collective::label() const {
  return "operation " + std::to_string(sequence_) + " (" +
         host::describe(request_.kind, request_.count, request_.dtype, request_.op, request_.root) + ")";
}

}  // namespace isthmus::host
