// Events, as PyTorch's guard interface passes them: an opaque pointer made at the first record.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

namespace isthmus {

void record_event(void** event, c10::Stream stream, bool timing);
void wait_event(void* event, c10::Stream stream);
bool query_event(void* event);
void synchronize_event(void* event);
void destroy_event(void* event) noexcept;
double elapsed_ms(void* start, void* end);  // both recorded with timing and done

}  // namespace isthmus
