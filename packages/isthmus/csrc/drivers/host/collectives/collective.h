// A collective: announce it, wait for all ranks, work on all ranks' memory, wait until all are done.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "drivers/host/collectives/operation.h"
#include "drivers/host/collectives/reduce_kernels.h"

namespace isthmus::host {

// The input of the algorithms, once all ranks have announced their part.
struct Exchange {
  Communicator& communicator;
  const Request& request;
  uint64_t sequence;
  const Kernels* kernels;  // null unless it reduces
  bool past_caches;        // the moved data is too large for the caches
  bool is_inline;          // every rank's from is a copy in the control file, and to is this rank's own only
  std::vector<Buffer> from, to;         // buffers of each rank
  std::vector<const void*> factors;     // factor of each rank; null unless ISTHMUS_PREMUL_SUM
  std::vector<const Part*> sent_parts;  // parts that each rank sends to each; only for kAllToAllV

  int32_t rank() const { return communicator.rank(); }
  int32_t ranks() const { return communicator.world_size(); }
  // Throws Failure if the communicator has failed: other ranks' memory may be unmapped.
  void require_usable() const {
    if (!is_inline) communicator.require_healthy();
  }
  uint64_t element() const { return element_bytes(request.dtype); }
};

using Waits = std::array<Wait, 2>;

// The work as steps, each of which may wait first.
struct Plan {
  uint64_t steps;
  std::function<Waits(uint64_t step)> waits;  // all of which must be ready; empty: no step waits
  std::function<void(uint64_t step)> work;
};

class Collective final : public Operation {
 public:
  Collective(Request request, uint64_t sequence);

  // Bytes of all ranks, of a completed kExchange.
  const std::vector<char>& gathered() const { return gathered_; }

 private:
  enum class Phase { kTurn, kArrive, kWork, kFinish };

  bool step() override;
  std::vector<int32_t> late_ranks() const override;
  std::string late_for() const override;
  std::string label() const override;
  uint64_t number() const override { return sequence_; }

  Slot& slot(int32_t rank) const { return communicator().control().seat(rank).slots[sequence_ % kSlots]; }
  uint64_t data_offset() const;
  void announce();
  void write_payload(Announcement& call, char* payload);
  void require_agreement() const;
  void require_parts_agree() const;
  bool prepare();  // returns whether all ranks must wait at the end
  Buffer from_of(int32_t rank) const;
  Buffer to_of(int32_t rank) const;
  bool finish();
  bool end();

  const uint64_t sequence_;
  Phase phase_ = Phase::kTurn;
  std::vector<Piece> from_pieces_, to_pieces_;
  std::unique_ptr<Exchange> exchange_;
  Plan plan_{};
  uint64_t planned_ = 0;  // steps done
  bool is_barrier_ = false;
  std::vector<char> gathered_;
};

}  // namespace isthmus::host
