// Preferences among routes, from the driver's description.
#pragma once

namespace isthmus {

struct Preferences {
  bool prefer_delegate = false;  // applies where an overload has a kernel and a delegate
  bool fallback = true;          // whether copies to CPU are allowed
};

namespace detail {
inline Preferences preferences;
}

// The defaults until set_preferences() is called.
inline const Preferences& preferences() noexcept { return detail::preferences; }

// Sets them once, when the driver is opened, before the first overload is registered.
inline void set_preferences(const Preferences& chosen) noexcept { detail::preferences = chosen; }

}  // namespace isthmus
