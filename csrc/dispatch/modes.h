// Process-wide modes of dispatch, set by the environment or by torch.chip.
#pragma once

namespace isthmus {

// Whether the fallback route raises.
bool strict() noexcept;
void set_strict(bool strict) noexcept;

// Whether new choices of a route are printed (ISTHMUS_TRACE=1).
bool tracing() noexcept;
void set_tracing(bool tracing) noexcept;

}  // namespace isthmus
