// Communicators without a root info: of ranks of another communicator.
#include <set>
#include <vector>

#include "comm.h"
#include "rendezvous.h"

namespace isthmus::ascend::hccl {
namespace {

constexpr int64_t kConnectSeconds = 120;  // default of HCCL_CONNECT_TIMEOUT

void* meet(const std::string& name, uint32_t rank, uint32_t size) {
  const int64_t timeout_ms = milliseconds_of("HCCL_CONNECT_TIMEOUT", kConnectSeconds);
  return create(agree_on_id(name, rank, size, timeout_ms), size, rank);
}

// members: ranks of the parent, in the order of the new communicator.
void require_members(const std::vector<uint32_t>& members, uint32_t rank, const Comm& parent) {
  const auto refuse = [](const std::string& message) { throw Failure{kInvalidParameter, message}; };
  for (const uint32_t member : members)
    if (member >= static_cast<uint32_t>(parent.size))
      refuse("rank " + std::to_string(member) + " is not in the communicator of " +
             std::to_string(parent.size) + " ranks");
  if (std::set<uint32_t>(members.begin(), members.end()).size() != members.size())
    refuse("a rank occurs twice in the list of ranks");
  if (rank >= members.size())
    refuse("rank " + std::to_string(rank) + " of the new communicator is not in 0 to " +
           std::to_string(static_cast<int64_t>(members.size()) - 1));
  if (members[rank] != static_cast<uint32_t>(parent.rank))
    refuse("rank " + std::to_string(rank) + " of the list is " + std::to_string(members[rank]) +
           ", but the caller is rank " + std::to_string(parent.rank));
}

}  // namespace
}  // namespace isthmus::ascend::hccl

using namespace isthmus::ascend::hccl;

// Called by the members only. members: ranks of *parent; rank: the caller's place among them; id: the same on
// all members, another one for each communicator that they create at the same time.
ISTHMUS_ASCEND_EXPORT int HcclCreateSubCommConfig(void** parent, uint32_t size, const uint32_t* members,
                                                  uint64_t id, uint32_t rank, const void*, void** comm) {
  return call("HcclCreateSubCommConfig", [&] {
    require_not_null(parent, "parent");
    require_not_null(members, "ranks");
    require_not_null(comm, "comm");
    const auto found = comm_of(*parent);
    if (size > static_cast<uint32_t>(found->size))
      throw Failure{kInvalidParameter,
                    std::to_string(size) + " ranks of a communicator of " + std::to_string(found->size)};
    const std::vector<uint32_t> ranks(members, members + size);
    require_members(ranks, rank, *found);
    std::string name = found->name + '/' + std::to_string(id);
    for (const uint32_t member : ranks) name += ' ' + std::to_string(member);
    *comm = meet(name, rank, size);
  });
}
