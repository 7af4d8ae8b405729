// Algorithms on the memory of all ranks. Every element of a result is computed by one rank, or by all of
// them in the order of the ranks, so all ranks get the same bits.
#pragma once

#include "drivers/host/collectives/collective.h"
#include "drivers/host/config.h"

namespace isthmus::host {

// Algorithms of all_reduce. By default every rank reduces small messages from the control file, and
// larger ones use mesh: in shared memory it moves the fewest bytes and waits twice, for any size and
// number of ranks. Mesh: each rank reduces its share of the elements from all ranks and writes it to all.
Plan mesh_all_reduce(const Exchange& exchange);
// Ring: partial results pass from rank to rank, one block of each share at a time; then the results do.
Plan ring_all_reduce(const Exchange& exchange);
// Halving and doubling: pairs of ranks halve what each reduces, then double what each has.
Plan halving_doubling_all_reduce(const Exchange& exchange);

Plan reduce_from_all(const Exchange& exchange);  // all ranks' elements, for this rank
Plan reduce_to_root(const Exchange& exchange);   // this rank's share, for the root
Plan reduce_scatter(const Exchange& exchange);

Plan broadcast_by_all(const Exchange& exchange);     // this rank's share, from the root to all
Plan broadcast_from_root(const Exchange& exchange);  // all elements, to this rank
Plan all_gather_to_all(const Exchange& exchange);    // this rank's elements, to all
Plan gather_here(const Exchange& exchange);          // all ranks' elements, to this rank
Plan gather_to_root(const Exchange& exchange);       // this rank's elements, to the root
Plan all_to_all(const Exchange& exchange);
Plan all_to_all_v(const Exchange& exchange);
Plan scatter(const Exchange& exchange);

// A rank's part of the elements; parts begin at multiples of a cache line.
Part share_of(uint64_t count, int32_t ranks, int32_t rank) noexcept;
// The progress counter of a rank that has done this many steps.
uint64_t progress_of(const Exchange& exchange, uint64_t steps) noexcept;
// Publishes that this rank has done this many steps.
void post_progress(const Exchange& exchange, uint64_t steps) noexcept;
// Waits until another rank has done this many steps.
Wait progress_wait(const Exchange& exchange, int32_t rank, uint64_t steps) noexcept;

}  // namespace isthmus::host
