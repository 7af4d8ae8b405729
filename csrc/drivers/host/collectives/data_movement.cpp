// Collectives that move elements as they are: each rank takes what it needs from the others' memory.
#include "drivers/host/collectives/algorithms.h"

namespace isthmus::host {
namespace {

constexpr uint64_t kRunBytes = uint64_t{1} << 20;  // between two looks whether the communicator has failed

void move(const Exchange& exchange, const Buffer& to, const Buffer& from, uint64_t bytes) {
  for (uint64_t offset = 0; offset < bytes; offset += kRunBytes) {
    exchange.require_usable();
    copy(to, offset, from, offset, bytes - offset < kRunBytes ? bytes - offset : kRunBytes,
         exchange.past_caches);
  }
}

// Calls take(rank) for every rank, each rank beginning behind itself, so that they do not all read one's
// memory.
template <typename Take>
Plan from_every_rank(const Exchange& exchange, Take take) {
  return {1, {}, [&exchange, take](uint64_t) {
            for (int32_t i = 0; i < exchange.ranks(); ++i) take((exchange.rank() + i) % exchange.ranks());
          }};
}

uint64_t bytes_of(const Exchange& exchange) { return exchange.request.count * exchange.element(); }

uint64_t chunk(const Exchange& exchange, int32_t index) {
  return static_cast<uint64_t>(index) * bytes_of(exchange);
}

const Buffer& own(const std::vector<Buffer>& buffers, const Exchange& exchange) {
  return buffers[static_cast<size_t>(exchange.rank())];
}

const Buffer& of(const std::vector<Buffer>& buffers, int32_t rank) {
  return buffers[static_cast<size_t>(rank)];
}

}  // namespace

Plan broadcast(const Exchange& exchange) {
  const int32_t root = exchange.request.root;
  if (exchange.rank() == root) return {};
  return {1, {}, [&exchange, root](uint64_t) {
            move(exchange, own(exchange.to, exchange), of(exchange.from, root), bytes_of(exchange));
          }};
}

Plan all_gather(const Exchange& exchange) {
  return from_every_rank(exchange, [&exchange](int32_t rank) {
    const Buffer to = own(exchange.to, exchange).from(chunk(exchange, rank));
    // In place, this rank's elements are there already.
    move(exchange, to, of(exchange.from, rank), bytes_of(exchange));
  });
}

Plan all_to_all(const Exchange& exchange) {
  return from_every_rank(exchange, [&exchange](int32_t rank) {
    const Buffer from = of(exchange.from, rank).from(chunk(exchange, exchange.rank()));
    move(exchange, own(exchange.to, exchange).from(chunk(exchange, rank)), from, bytes_of(exchange));
  });
}

Plan all_to_all_v(const Exchange& exchange) {
  return from_every_rank(exchange, [&exchange](int32_t rank) {
    const Part& taken = exchange.request.to_parts[static_cast<size_t>(rank)];
    const Part& sent = exchange.sent_parts[static_cast<size_t>(rank)][exchange.rank()];
    move(exchange, own(exchange.to, exchange).from(taken.offset * exchange.element()),
         of(exchange.from, rank).from(sent.offset * exchange.element()), taken.count * exchange.element());
  });
}

Plan gather_by_root(const Exchange& exchange) {
  return exchange.rank() == exchange.request.root ? all_gather(exchange) : Plan{};
}

Plan gather_by_all(const Exchange& exchange) {
  return {1, {}, [&exchange](uint64_t) {
            const Buffer to = of(exchange.to, exchange.request.root).from(chunk(exchange, exchange.rank()));
            move(exchange, to, own(exchange.from, exchange), bytes_of(exchange));
          }};
}

Plan scatter(const Exchange& exchange) {
  return {1, {}, [&exchange](uint64_t) {
            const Buffer from =
                of(exchange.from, exchange.request.root).from(chunk(exchange, exchange.rank()));
            move(exchange, own(exchange.to, exchange), from, bytes_of(exchange));
          }};
}

}  // namespace isthmus::host
