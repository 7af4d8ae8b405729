// Reductions in which a rank reads the elements of all ranks at once.
#include <algorithm>
#include <cstring>

#include "drivers/host/collectives/algorithms.h"

namespace isthmus::host {
namespace {

constexpr uint64_t kAccumulatorBytes = uint64_t{16} << 10;  // the accumulators stay in the L1 cache

struct Accumulators {
  alignas(64) char bytes[kAccumulatorBytes];
};

thread_local Accumulators accumulators;

// Reduces a run of all inputs into outputs[0] and copies it to the other outputs.
struct Reduction {
  const Exchange& exchange;
  std::vector<Buffer> inputs, outputs;
  std::vector<const char*> sources;
  std::vector<char*> targets;

  void run(uint64_t count);
  void block(uint64_t count);
};

void Reduction::run(uint64_t count) {
  const uint64_t element = exchange.element();
  const uint64_t limit = kAccumulatorBytes / exchange.kernels->accumulator_bytes * element;
  const uint64_t bytes = count * element;
  sources.resize(inputs.size());
  targets.resize(outputs.size());
  for (uint64_t offset = 0; offset < bytes;) {
    exchange.require_usable();
    uint64_t length = std::min(limit, bytes - offset);
    for (const Buffer& buffer : inputs) buffer.at(offset, &length);
    for (const Buffer& buffer : outputs) buffer.at(offset, &length);
    uint64_t any = length;
    for (size_t i = 0; i < inputs.size(); ++i) sources[i] = inputs[i].at(offset, &any);
    for (size_t i = 0; i < outputs.size(); ++i) targets[i] = outputs[i].at(offset, &any);
    block(length / element);
    for (size_t i = 1; i < targets.size(); ++i) std::memcpy(targets[i], targets[0], length);
    offset += length;
  }
}

// Reduces in the order of the ranks. The target may be one of the sources, so it is in a cache and is not
// written past it.
void Reduction::block(uint64_t count) {
  const Kernels& kernels = *exchange.kernels;
  if (sources.size() == 2 && kernels.combine != nullptr) {
    return kernels.combine(targets[0], sources[0], sources[1], count);
  }
  kernels.load(accumulators.bytes, sources[0], count, exchange.factors[0]);
  for (size_t i = 1; i < sources.size(); ++i) {
    kernels.accumulate(accumulators.bytes, sources[i], count, exchange.factors[i]);
  }
  kernels.store(targets[0], accumulators.bytes, count, exchange.ranks());
}

// [first, first + count) of all ranks' from, in elements, to the ranks' to from its element to_first on.
Plan reduce(const Exchange& exchange, const Part& part, uint64_t to_first, std::vector<int32_t> to_ranks) {
  return {1, {}, [&exchange, part, to_first, to_ranks = std::move(to_ranks)](uint64_t) {
            Reduction reduction{exchange, {}, {}, {}, {}};
            for (const Buffer& from : exchange.from) {
              reduction.inputs.push_back(from.from(part.offset * exchange.element()));
            }
            for (const int32_t rank : to_ranks) {
              const Buffer& to = exchange.to[static_cast<size_t>(rank)];
              reduction.outputs.push_back(to.from(to_first * exchange.element()));
            }
            reduction.run(part.count);
          }};
}

}  // namespace

Part share_of(uint64_t count, int32_t ranks, int32_t rank) noexcept {
  constexpr uint64_t kUnit = 64;  // elements; a cache line of the smallest
  const auto all = static_cast<uint64_t>(ranks), own = static_cast<uint64_t>(rank);
  const uint64_t share = ((count + all - 1) / all + kUnit - 1) / kUnit * kUnit;
  const uint64_t begin = std::min(count, own * share);
  return {begin, std::min(count, begin + share) - begin};
}

// No other rank reads this rank's share of a buffer, so it may be reduced in place.
Plan mesh_all_reduce(const Exchange& exchange) {
  const Part share = share_of(exchange.request.count, exchange.ranks(), exchange.rank());
  std::vector<int32_t> ranks;
  for (int32_t i = 0; i < exchange.ranks(); ++i) {
    ranks.push_back((exchange.rank() + i) % exchange.ranks());
  }
  return reduce(exchange, share, share.offset, std::move(ranks));
}

Plan reduce_from_all(const Exchange& exchange) {
  return reduce(exchange, {0, exchange.request.count}, 0, {exchange.rank()});
}

Plan reduce_to_root(const Exchange& exchange) {
  const Part share = share_of(exchange.request.count, exchange.ranks(), exchange.rank());
  return reduce(exchange, share, share.offset, {exchange.request.root});
}

Plan reduce_scatter(const Exchange& exchange) {
  const uint64_t count = exchange.request.count;
  return reduce(exchange, {static_cast<uint64_t>(exchange.rank()) * count, count}, 0, {exchange.rank()});
}

}  // namespace isthmus::host
