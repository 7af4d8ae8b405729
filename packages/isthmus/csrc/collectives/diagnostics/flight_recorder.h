// The flight recorder: the last operations of this process, in the format of PyTorch's fr_trace.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

namespace isthmus {

class Group;
struct Description;

namespace recorder {

// Records an operation. The recorder keeps ISTHMUS_FLIGHT_RECORDER operations, 2000 by default; 0 switches it
// off, and begin() then returns nothing.
std::optional<size_t> begin(Group& group, const Description& description, std::chrono::milliseconds timeout);
void record_start(std::optional<size_t> number) noexcept;
void record_end(std::optional<size_t> number) noexcept;

// A pickle in the format of PyTorch's recorder; only_active leaves out completed operations.
std::string dump(bool with_collectives, bool only_active);

// Adds the group to the dumps, even before its first operation.
void add_group(const Group& group);

// Whether ISTHMUS_FLIGHT_RECORDER_FOLDER is set.
bool writes();
// Writes the dump there, as rank_<global rank>.
void write() noexcept;
bool was_written();

}  // namespace recorder
}  // namespace isthmus
