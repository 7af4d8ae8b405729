// The flight recorder: the last operations of this process, in the form that PyTorch's fr_trace reads.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

namespace isthmus {

class Group;
struct Description;

namespace recorder {

// Keeps ISTHMUS_FLIGHT_RECORDER operations, 2000 by default; 0 switches it off. The number that begin() gives
// is nothing where it is off.
std::optional<size_t> begin(Group& group, const Description& description, std::chrono::milliseconds timeout);
void started(std::optional<size_t> number) noexcept;
void completed(std::optional<size_t> number) noexcept;

// A pickle of what PyTorch's recorder writes; only_active leaves out what has completed.
std::string dump(bool with_collectives, bool only_active);

// Has the group in the dumps, also before its first operation.
void know(const Group& group);

// Whether ISTHMUS_FLIGHT_RECORDER_FOLDER is set.
bool writes();
// Writes the dump there, as rank_<global rank>.
void write() noexcept;
bool was_written();

}  // namespace recorder
}  // namespace isthmus
