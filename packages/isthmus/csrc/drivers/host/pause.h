// Processor hint for spin loops.
#pragma once

namespace isthmus::host {

inline void pause_processor() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace isthmus::host
