// histc of integers, which CUDA takes and CPU does not: programs ask for it on any device but the CPU.
#pragma once

#include "dispatch/overload.h"

namespace isthmus {

bool is_histogram_of_floats(c10::ArrayRef<c10::IValue> arguments);

// By way of float64, which holds every count and every edge that matters.
Decomposition histogram_of_integers();

}  // namespace isthmus
