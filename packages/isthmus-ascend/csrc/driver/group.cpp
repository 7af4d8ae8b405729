#include "group.h"

#include <map>
#include <utility>
#include <vector>

namespace isthmus::npu {
namespace {

// Operations of a group for one communicator.
struct Part {
  const Communicator* communicator = nullptr;
  std::vector<std::function<void()>> collectives;
  std::map<isthmus_stream, std::vector<SendReceiveItem>> messages;
};

// Ordered by name: all ranks go through their communicators in one order, so that none waits for another in a
// circle.
using Parts = std::map<std::string, Part>;

thread_local Parts parts;
thread_local int depth = 0;

Part& part_of(const Communicator& communicator) {
  Part& part = parts[communicator.common];
  part.communicator = &communicator;
  return part;
}

void run(const Part& part) {
  require_usable(*part.communicator);
  for (const auto& collective : part.collectives) collective();
  for (const auto& [stream, items] : part.messages)
    ISTHMUS_HCCL(BatchSendRecv, items.data(), static_cast<uint32_t>(items.size()), part.communicator->native,
                 stream);
}

}  // namespace

void submit(const Communicator& communicator, std::function<void()> collective) {
  if (depth == 0) return collective();
  part_of(communicator).collectives.push_back(std::move(collective));
}

// A message outside a group is a batch of one, as its peer's may be part of a batch.
void submit(const Communicator& communicator, isthmus_stream stream, const SendReceiveItem& message) {
  if (depth == 0) return run({&communicator, {}, {{stream, {message}}}});
  part_of(communicator).messages[stream].push_back(message);
}

void start_group() { ++depth; }

void end_group() {
  require(depth > 0, "group_end: no group_start() came before");
  if (--depth > 0) return;
  const Parts whole = std::exchange(parts, {});
  for (const auto& [name, part] : whole) run(part);
}

}  // namespace isthmus::npu
