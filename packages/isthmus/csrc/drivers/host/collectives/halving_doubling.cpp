// All-reduce by recursive halving and doubling: a logarithm of the number of ranks in steps.
//
// The elements are cut into windows. Of each, every rank loads its own elements into accumulators in the
// control file; then pairs of ranks at ever smaller distances add each other's accumulators, each for one
// half of what they had; then pairs at ever larger distances take each other's results. Where the number of
// ranks is not a power of two, some ranks are folded: a neighbour adds their elements, and hands them the
// results.
#include <algorithm>

#include "drivers/host/collectives/algorithms.h"

namespace isthmus::host {
namespace {

constexpr uint64_t kLoad = 0, kFold = 1, kHalve = 2;  // steps of a window

class HalvingDoubling {
 public:
  explicit HalvingDoubling(const Exchange& exchange) : exchange_(exchange) {
    while (active_ * 2 <= exchange.ranks()) active_ *= 2, ++levels_;
    folded_ = exchange.ranks() - active_;
    window_ = 2 * kScratchBytes / exchange.kernels->accumulator_bytes;
  }

  uint64_t steps() const { return (exchange_.request.count + window_ - 1) / window_ * per_window(); }

  Waits waits(uint64_t step) const {
    const int32_t partner = partner_of(step % per_window());
    return {partner < 0 ? Wait{} : progress_wait(exchange_, partner, step)};
  }

  void work(uint64_t step) const {
    const uint64_t turn = step % per_window();
    const int32_t partner = partner_of(turn);
    if (turn == kLoad) {
      load(step);
    } else if (turn == store_turn() && !is_folded()) {
      store(step);
    } else if (turn < store_turn() && partner >= 0) {
      merge(step, partner);
    } else if (partner >= 0) {
      take(step, partner);
    }
    post_progress(exchange_, step + 1);
  }

 private:
  uint64_t store_turn() const { return kHalve + levels_; }
  uint64_t unfold_turn() const { return store_turn() + levels_ + 1; }
  uint64_t per_window() const { return unfold_turn() + 1; }

  // Ranks 0, 2, 4 ... are folded into 1, 3, 5 ... until a power of two remains.
  bool has_fold() const { return exchange_.rank() < 2 * folded_; }
  bool is_folded() const { return has_fold() && exchange_.rank() % 2 == 0; }
  int32_t place() const { return has_fold() ? exchange_.rank() / 2 : exchange_.rank() - folded_; }
  int32_t rank_at(int32_t place) const { return place < folded_ ? 2 * place + 1 : place + folded_; }

  // The rank whose memory a step reads; -1 for none.
  int32_t partner_of(uint64_t turn) const {
    if (turn == kLoad || turn == store_turn()) return -1;
    if (turn == kFold) return has_fold() && !is_folded() ? exchange_.rank() - 1 : -1;
    if (turn == unfold_turn()) return is_folded() ? exchange_.rank() + 1 : -1;
    if (is_folded()) return -1;
    if (turn < store_turn()) return rank_at(place() ^ (active_ >> (turn - kHalve + 1)));
    return rank_at(place() ^ (1 << (turn - store_turn() - 1)));
  }

  Part window_of(uint64_t step) const {
    const uint64_t begin = step / per_window() * window_;
    return {begin, std::min(window_, exchange_.request.count - begin)};
  }

  // The part of a place after some halvings; the offset is relative to the window.
  Part half_of(int32_t place, uint64_t halvings, uint64_t count) const {
    Part part{0, count};
    for (uint64_t level = 0; level < halvings; ++level) {
      const uint64_t lower = share_of(part.count, 2, 0).count;
      const bool is_upper = (place & (active_ >> (level + 1))) != 0;
      part = is_upper ? Part{part.offset + lower, part.count - lower} : Part{part.offset, lower};
    }
    return part;
  }

  char* accumulators(int32_t rank, uint64_t step) const {
    return exchange_.communicator.control().seat(rank).scratch[step / per_window() % 2 * 2];
  }

  void load(uint64_t step) const;
  void merge(uint64_t step, int32_t partner) const;
  void store(uint64_t step) const;
  void take(uint64_t step, int32_t partner) const;

  const Exchange& exchange_;
  int32_t active_ = 1, folded_;
  uint64_t levels_ = 0, window_;
};

void HalvingDoubling::load(uint64_t step) const {
  const auto rank = static_cast<size_t>(exchange_.rank());
  const Part window = window_of(step);
  for (uint64_t done = 0; done < window.count;) {
    uint64_t bytes = (window.count - done) * exchange_.element();
    const char* from = exchange_.from[rank].at((window.offset + done) * exchange_.element(), &bytes);
    char* to = accumulators(exchange_.rank(), step) + done * exchange_.kernels->accumulator_bytes;
    exchange_.kernels->load(to, from, bytes / exchange_.element(), exchange_.factors[rank]);
    done += bytes / exchange_.element();
  }
}

void HalvingDoubling::merge(uint64_t step, int32_t partner) const {
  const uint64_t turn = step % per_window();
  const uint64_t halvings = turn == kFold ? 0 : turn - kHalve + 1;
  const Part part = half_of(place(), halvings, window_of(step).count);
  const uint64_t offset = part.offset * exchange_.kernels->accumulator_bytes;
  exchange_.kernels->merge(accumulators(exchange_.rank(), step) + offset,
                           accumulators(partner, step) + offset, part.count);
}

void HalvingDoubling::store(uint64_t step) const {
  const Part window = window_of(step);
  const Part part = half_of(place(), levels_, window.count);
  for (uint64_t done = 0; done < part.count;) {
    uint64_t bytes = (part.count - done) * exchange_.element();
    const uint64_t first = part.offset + done;
    char* to = exchange_.to[static_cast<size_t>(exchange_.rank())].at(
        (window.offset + first) * exchange_.element(), &bytes);
    const char* from = accumulators(exchange_.rank(), step) + first * exchange_.kernels->accumulator_bytes;
    exchange_.kernels->store(to, from, bytes / exchange_.element(), exchange_.ranks());
    done += bytes / exchange_.element();
  }
}

void HalvingDoubling::take(uint64_t step, int32_t partner) const {
  const uint64_t turn = step % per_window();
  const Part window = window_of(step);
  Part part{0, window.count};
  if (turn != unfold_turn()) {
    const uint64_t doublings = turn - store_turn() - 1;
    part = half_of(place() ^ (1 << doublings), levels_ - doublings, window.count);
  }
  const uint64_t offset = (window.offset + part.offset) * exchange_.element();
  copy(exchange_.to[static_cast<size_t>(exchange_.rank())], offset,
       exchange_.to[static_cast<size_t>(partner)], offset, part.count * exchange_.element());
}

}  // namespace

Plan halving_doubling_all_reduce(const Exchange& exchange) {
  const HalvingDoubling algorithm(exchange);
  return {algorithm.steps(), [algorithm](uint64_t step) { return algorithm.waits(step); },
          [algorithm](uint64_t step) { algorithm.work(step); }};
}

}  // namespace isthmus::host
