// All-reduce on a ring: each rank works with its neighbours only.
//
// The elements are split into rounds, a round into one block per rank. In the first steps of a round a
// block's partial result passes around the ring, and each rank adds its elements, in accumulators in the
// control file; the last rank owns the block and writes the result. In the other steps the results pass
// around.
#include <algorithm>

#include "drivers/host/collectives/algorithms.h"

namespace isthmus::host {
namespace {

constexpr uint64_t kPartials = 4;  // partial results of a rank, not yet read by its successor

class Ring {
 public:
  explicit Ring(const Exchange& exchange)
      : exchange_(exchange),
        ranks_(static_cast<uint64_t>(exchange.ranks())),
        rank_(static_cast<uint64_t>(exchange.rank())),
        before_(static_cast<int32_t>((rank_ + ranks_ - 1) % ranks_)),
        after_(static_cast<int32_t>((rank_ + 1) % ranks_)) {
    const uint64_t largest = kScratchBytes / 2 / exchange.kernels->accumulator_bytes;
    block_ = std::min(largest, share_of(exchange.request.count, exchange.ranks(), 0).count);
  }

  uint64_t steps() const {
    if (block_ == 0) return 0;
    const uint64_t round = ranks_ * block_;
    return (exchange_.request.count + round - 1) / round * per_round();
  }

  // Waits until the predecessor has done all previous steps and the successor has read the partial result in
  // the slot.
  Waits waits(uint64_t step) const {
    const bool needs_place = reduces(step) && step >= kPartials;
    return {progress_wait(exchange_, before_, step),
            needs_place ? progress_wait(exchange_, after_, step - (kPartials - 2)) : Wait{}};
  }

  void work(uint64_t step) const {
    if (reduces(step)) {
      reduce(step);
    } else {
      take(step);
    }
    post_progress(exchange_, step + 1);
  }

 private:
  uint64_t per_round() const { return 2 * ranks_ - 1; }
  bool reduces(uint64_t step) const { return step % per_round() < ranks_; }

  // The owner's block in the step's round.
  Part block_of(uint64_t owner, uint64_t step) const {
    const uint64_t begin = (step / per_round() * ranks_ + owner) * block_;
    const uint64_t count = exchange_.request.count;
    return {begin, begin < count ? std::min(block_, count - begin) : 0};
  }

  static char* partial(Seat& seat, uint64_t step) { return seat.scratch[step % kPartials]; }

  void reduce(uint64_t step) const;
  void take(uint64_t step) const;

  const Exchange& exchange_;
  const uint64_t ranks_, rank_;
  const int32_t before_, after_;
  uint64_t block_;
};

void Ring::reduce(uint64_t step) const {
  const Kernels& kernels = *exchange_.kernels;
  const uint64_t turn = step % per_round();
  const Part block = block_of((rank_ + 2 * ranks_ - 1 - turn) % ranks_, step);
  Control& control = exchange_.communicator.control();
  char* own = partial(control.seat(exchange_.rank()), step);
  const char* received = partial(control.seat(before_), step + kPartials - 1);
  const void* factor = exchange_.factors[rank_];
  for (uint64_t done = 0; done < block.count;) {
    const uint64_t offset = (block.offset + done) * exchange_.element();
    uint64_t bytes = (block.count - done) * exchange_.element();
    const char* from = exchange_.from[rank_].at(offset, &bytes);
    char* to = exchange_.to[rank_].at(offset, &bytes);
    const uint64_t count = bytes / exchange_.element();
    const uint64_t at = done * kernels.accumulator_bytes;
    kernels.load(own + at, from, count, factor);
    if (turn > 0) kernels.merge(own + at, received + at, count);
    if (turn == ranks_ - 1) kernels.store(to, own + at, count, exchange_.ranks());
    done += count;
  }
}

void Ring::take(uint64_t step) const {
  const uint64_t turn = step % per_round() - ranks_ + 1;  // 1 to ranks - 1
  const Part block = block_of((rank_ + ranks_ - turn) % ranks_, step);
  const uint64_t offset = block.offset * exchange_.element();
  copy(exchange_.to[rank_], offset, exchange_.to[static_cast<size_t>(before_)], offset,
       block.count * exchange_.element());
}

}  // namespace

Plan ring_all_reduce(const Exchange& exchange) {
  const Ring ring(exchange);
  return {ring.steps(), [ring](uint64_t step) { return ring.waits(step); },
          [ring](uint64_t step) { ring.work(step); }};
}

}  // namespace isthmus::host
