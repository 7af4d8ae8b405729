// How the ranks work on each other's memory. Every element of a result is computed by one rank, or by all of
// them in the order of the ranks, so all ranks get the same bits.
#pragma once

#include "drivers/host/collectives/collective.h"
#include "drivers/host/config.h"

namespace isthmus::host {

// Of all_reduce. Where nobody forces one, small messages are reduced by all ranks from the control file, and
// the rest goes by mesh: on one memory it moves the fewest bytes and waits twice, whatever the size and the
// number of ranks. Mesh: each rank reduces its share of the elements from all ranks and writes it to all.
Plan mesh_all_reduce(const Exchange& exchange);
// Ring: partial results go from rank to rank, blocks of all shares at a time; then results do.
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

// Elements that are one rank's part of the work; parts begin at multiples of a cache line's elements.
Part share_of(uint64_t count, int32_t ranks, int32_t rank) noexcept;
// The progress of a rank that has done so many steps of the exchange.
uint64_t progress_of(const Exchange& exchange, uint64_t steps) noexcept;
// Says that this rank has done so many steps.
void post_progress(const Exchange& exchange, uint64_t steps) noexcept;
// This rank waits until another has done so many steps.
Wait progress_wait(const Exchange& exchange, int32_t rank, uint64_t steps) noexcept;

}  // namespace isthmus::host
