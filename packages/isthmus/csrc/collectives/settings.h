// The options of the collectives.
#pragma once

#include <cstddef>
#include <string>

#include "isthmus_options.h"

namespace isthmus {

struct Settings {
  bool uses_driver;     // whether the driver's communicators are used, where it has them; else gloo
  bool blocks;          // wait() blocks the host
  size_t flight_count;  // operations that the flight recorder keeps
  bool keeps_stacks;    // in the flight recorder
  std::string flight_folder;
};

// The options as the first call finds them. The constructor of each group calls it, so that a wrong option is
// reported there. Throws options::Error.
inline const Settings& settings() {
  // Threads that outlive main() read it.
  static const Settings& found = *new Settings{
      options::read(options::kCollectives) == "driver", options::read(options::kBlockingWait),
      static_cast<size_t>(options::read(options::kFlightRecorder)),
      options::read(options::kFlightRecorderStacks), options::read(options::kFlightRecorderFolder)};
  return found;
}

}  // namespace isthmus
