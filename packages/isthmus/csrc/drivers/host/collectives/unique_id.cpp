#include "drivers/host/collectives/unique_id.h"

#include <sys/stat.h>

#include <cstring>
#include <fstream>
#include <map>
#include <mutex>

namespace isthmus::host {
namespace {

constexpr char kMagic[8] = {'i', 's', 't', 'h', 'c', 'o', 'm', '1'};

// Scope in which memory files can be passed: one boot of one machine, one process namespace. A separate
// network namespace counts as a separate machine.
struct Machine {
  char boot[40];
  uint64_t processes, network;
};

struct Contents {
  char magic[8];
  uint64_t token[2];
  Machine machine;
  isthmus_ipc_handle file;
};
static_assert(sizeof(Contents) <= sizeof(isthmus_unique_id));

uint64_t namespace_of(const char* path) {
  struct stat info;
  return stat(path, &info) == 0 ? info.st_ino : 0;
}

Machine this_machine() {
  Machine machine{};
  std::ifstream("/proc/sys/kernel/random/boot_id").getline(machine.boot, sizeof(machine.boot));
  machine.processes = namespace_of("/proc/self/ns/pid");
  machine.network = namespace_of("/proc/self/ns/net");
  return machine;
}

bool is_same(const Machine& a, const Machine& b) {
  return std::strncmp(a.boot, b.boot, sizeof(a.boot)) == 0 && a.processes == b.processes &&
         a.network == b.network;
}

// The files of ids created by this process, by token.
struct Made {
  std::mutex mutex;
  std::map<uint64_t, File> files;
};

Made& made_identifiers() {
  static Made& instance = *new Made;  // threads may outlive main()
  return instance;
}

Contents contents_of(const isthmus_unique_id& id) {
  Contents contents;
  std::memcpy(&contents, id.bytes, sizeof(contents));
  if (std::memcmp(contents.magic, kMagic, sizeof(kMagic)) != 0) {
    fail(ISTHMUS_INVALID_ARGUMENT,
         "these bytes are not an id of the host chip; pass the id from comm_unique_id() of one rank");
  }
  return contents;
}

}  // namespace

isthmus_unique_id make_id() {
  Contents contents{};
  std::memcpy(contents.magic, kMagic, sizeof(kMagic));
  contents.machine = this_machine();
  File file = Control::create(contents.token);
  write_handle({SharedPart::kCommunicator, file.descriptor(), 0, 0}, &contents.file);
  isthmus_unique_id id{};
  std::memcpy(id.bytes, &contents, sizeof(contents));
  const std::lock_guard<std::mutex> lock(made_identifiers().mutex);
  made_identifiers().files.emplace(contents.token[0], std::move(file));
  return id;
}

void require_reachable(const isthmus_unique_id& id) {
  if (is_same(contents_of(id).machine, this_machine())) return;
  fail(ISTHMUS_UNSUPPORTED,
       "the id was created on another machine or in another container; the host chip shares memory on one "
       "machine only; use gloo between machines");
}

std::shared_ptr<Control> open_id(const isthmus_unique_id& id, int32_t world_size) {
  require_reachable(id);
  const Contents contents = contents_of(id);
  try {
    SharedPart part;
    const File file = open_handle(contents.file, SharedPart::kCommunicator, &part);
    return Control::open(file, contents.token, world_size);
  } catch (const Failure& failure) {
    if (failure.status != ISTHMUS_PEER_LOST) throw;
    fail(failure.status, "comm_create: the id is stale: %s", failure.message.c_str());
  }
}

void close_id(const isthmus_unique_id& id) noexcept {
  Contents contents;
  std::memcpy(&contents, id.bytes, sizeof(contents));
  const std::lock_guard<std::mutex> lock(made_identifiers().mutex);
  made_identifiers().files.erase(contents.token[0]);
}

}  // namespace isthmus::host
