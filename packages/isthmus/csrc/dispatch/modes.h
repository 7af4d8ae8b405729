// Process-wide modes of dispatch, set by the environment or by torch.chip.
#pragma once

namespace isthmus {

// Reads ISTHMUS_STRICT, ISTHMUS_TRACE and ISTHMUS_BATCH_INVARIANT, once, when the driver is opened. Throws
// options::Error.
void read_modes();

// Whether the fallback route raises.
bool strict() noexcept;
void set_strict(bool strict) noexcept;

// Whether new choices of a route are printed.
bool tracing() noexcept;
void set_tracing(bool tracing) noexcept;

// Whether rows have the same bits in every batch (ISTHMUS_BATCH_INVARIANT).
bool batch_invariant() noexcept;
void set_batch_invariant(bool on) noexcept;

}  // namespace isthmus
