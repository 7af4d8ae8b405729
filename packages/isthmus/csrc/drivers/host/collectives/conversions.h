// Vectorized conversions of 16- and 8-bit floats to float and back.
#pragma once

#include <cstddef>

#include "drivers/host/collectives/formats.h"

namespace isthmus::host {

void widen(float* to, const Float16* from, size_t count) noexcept;
void widen(float* to, const BFloat16* from, size_t count) noexcept;
void widen(float* to, const Float8E4M3* from, size_t count) noexcept;
void widen(float* to, const Float8E5M2* from, size_t count) noexcept;

void narrow(Float16* to, const float* from, size_t count) noexcept;
void narrow(BFloat16* to, const float* from, size_t count) noexcept;
void narrow(Float8E4M3* to, const float* from, size_t count) noexcept;
void narrow(Float8E5M2* to, const float* from, size_t count) noexcept;

}  // namespace isthmus::host
