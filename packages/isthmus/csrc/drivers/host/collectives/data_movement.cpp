// Collectives that only move elements. Elements for several ranks are read once by one rank and written to
// all; otherwise each rank copies what it needs from the others' memory.
#include "drivers/host/collectives/algorithms.h"

namespace isthmus::host {
namespace {

constexpr uint64_t kRunBytes = uint64_t{1} << 20;      // bytes between two checks for a failed communicator
constexpr uint64_t kBlockBytes = uint64_t{128} << 10;  // fits in a cache with other data

void move(const Exchange& exchange, const Buffer& to, const Buffer& from, uint64_t bytes) {
  for (uint64_t offset = 0; offset < bytes; offset += kRunBytes) {
    exchange.require_usable();
    copy(to, offset, from, offset, bytes - offset < kRunBytes ? bytes - offset : kRunBytes,
         exchange.past_caches);
  }
}

// Copies to several ranks in blocks that stay in a cache.
void move_to_all(const Exchange& exchange, const std::vector<Buffer>& targets, const Buffer& from,
                 uint64_t bytes) {
  for (uint64_t offset = 0; offset < bytes; offset += kBlockBytes) {
    exchange.require_usable();
    const uint64_t block = bytes - offset < kBlockBytes ? bytes - offset : kBlockBytes;
    for (const Buffer& to : targets) copy(to, offset, from, offset, block, exchange.past_caches);
  }
}

// Ranks starting after this one, so that not all write to one at the same time; this one is last.
std::vector<int32_t> ranks_in_turn(const Exchange& exchange) {
  std::vector<int32_t> ranks;
  for (int32_t i = 1; i <= exchange.ranks(); ++i) ranks.push_back((exchange.rank() + i) % exchange.ranks());
  return ranks;
}

// Calls take(rank) for every rank, starting after this one, so that not all ranks read the same memory at
// the same time.
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

const Buffer& buffer_of(const std::vector<Buffer>& buffers, int32_t rank) {
  return buffers[static_cast<size_t>(rank)];
}

}  // namespace

Plan broadcast_by_all(const Exchange& exchange) {
  return {1, {}, [&exchange](uint64_t) {
            const int32_t root = exchange.request.root;
            const Part share = share_of(bytes_of(exchange), exchange.ranks(), exchange.rank());
            std::vector<Buffer> targets;
            for (const int32_t rank : ranks_in_turn(exchange)) {
              if (rank != root) targets.push_back(buffer_of(exchange.to, rank).from(share.offset));
            }
            move_to_all(exchange, targets, buffer_of(exchange.from, root).from(share.offset), share.count);
          }};
}

Plan broadcast_from_root(const Exchange& exchange) {
  const int32_t root = exchange.request.root;
  if (exchange.rank() == root) return {};
  return {1, {}, [&exchange, root](uint64_t) {
            move(exchange, own(exchange.to, exchange), buffer_of(exchange.from, root), bytes_of(exchange));
          }};
}

// In place, this rank's elements are already in position.
Plan all_gather_to_all(const Exchange& exchange) {
  return {1, {}, [&exchange](uint64_t) {
            std::vector<Buffer> targets;
            for (const int32_t rank : ranks_in_turn(exchange)) {
              targets.push_back(buffer_of(exchange.to, rank).from(chunk(exchange, exchange.rank())));
            }
            move_to_all(exchange, targets, own(exchange.from, exchange), bytes_of(exchange));
          }};
}

Plan gather_here(const Exchange& exchange) {
  return from_every_rank(exchange, [&exchange](int32_t rank) {
    const Buffer to = own(exchange.to, exchange).from(chunk(exchange, rank));
    move(exchange, to, buffer_of(exchange.from, rank), bytes_of(exchange));
  });
}

Plan all_to_all(const Exchange& exchange) {
  return from_every_rank(exchange, [&exchange](int32_t rank) {
    const Buffer from = buffer_of(exchange.from, rank).from(chunk(exchange, exchange.rank()));
    move(exchange, own(exchange.to, exchange).from(chunk(exchange, rank)), from, bytes_of(exchange));
  });
}

Plan all_to_all_v(const Exchange& exchange) {
  return from_every_rank(exchange, [&exchange](int32_t rank) {
    const Part& taken = exchange.request.to_parts[static_cast<size_t>(rank)];
    const Part& sent = exchange.sent_parts[static_cast<size_t>(rank)][exchange.rank()];
    move(exchange, own(exchange.to, exchange).from(taken.offset * exchange.element()),
         buffer_of(exchange.from, rank).from(sent.offset * exchange.element()),
         taken.count * exchange.element());
  });
}

Plan gather_to_root(const Exchange& exchange) {
  return {1, {}, [&exchange](uint64_t) {
            const Buffer to =
                buffer_of(exchange.to, exchange.request.root).from(chunk(exchange, exchange.rank()));
            move(exchange, to, own(exchange.from, exchange), bytes_of(exchange));
          }};
}

Plan scatter(const Exchange& exchange) {
  return {1, {}, [&exchange](uint64_t) {
            const Buffer from =
                buffer_of(exchange.from, exchange.request.root).from(chunk(exchange, exchange.rank()));
            move(exchange, own(exchange.to, exchange), from, bytes_of(exchange));
          }};
}

}  // namespace isthmus::host
