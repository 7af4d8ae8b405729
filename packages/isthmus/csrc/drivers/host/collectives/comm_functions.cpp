// Communicators.
#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <tuple>

#include "drivers/host/collectives/collective.h"
#include "drivers/host/collectives/group.h"
#include "drivers/host/collectives/handles.h"
#include "drivers/host/collectives/unique_id.h"
#include "drivers/host/device.h"
#include "drivers/host/error.h"
#include "drivers/host/parts.h"

namespace isthmus::host {
namespace {

// Communicators that are not destroyed.
struct Communicators {
  std::mutex mutex;
  std::map<const Communicator*, std::shared_ptr<Communicator>> living;
};

Communicators& communicators() {
  static Communicators& instance = *new Communicators;  // threads may outlive main()
  return instance;
}

isthmus_comm handle_of(std::shared_ptr<Communicator> made) {
  const auto handle = reinterpret_cast<isthmus_comm>(made.get());
  Communicators& known = communicators();
  const std::lock_guard<std::mutex> lock(known.mutex);
  known.living.emplace(made.get(), std::move(made));
  return handle;
}

void require_no_group(const char* function) {
  if (in_group()) {
    fail(ISTHMUS_INVALID_ARGUMENT,
         "%s waits for the other ranks, so it cannot be part of a group; call it before the group", function);
  }
}

std::string name_in(const isthmus_comm_options& options, const std::string& otherwise) {
  return options.name != nullptr && *options.name != '\0' ? options.name : otherwise;
}

isthmus_status comm_unique_id(isthmus_unique_id* id) {
  return call([&] {
    require_not_null(id, "comm_unique_id", "id");
    *id = make_id();
    return ISTHMUS_OK;
  });
}

isthmus_status comm_create(const isthmus_unique_id* id, const isthmus_comm_options* options,
                           isthmus_comm* comm) {
  return call([&] {
    require_not_null(id, "comm_create", "id");
    require_not_null(options, "comm_create", "options");
    require_not_null(comm, "comm_create", "comm");
    require_no_group("comm_create");
    const Communicator::Options asked{options->rank, options->world_size, options->timeout_ms,
                                      name_in(*options, "unnamed")};
    *comm = handle_of(Communicator::create(*id, asked, current_device().index()));
    return ISTHMUS_OK;
  });
}

isthmus_status comm_reachable(const isthmus_unique_id* id) {
  return call([&] {
    require_not_null(id, "comm_reachable", "id");
    require_reachable(*id);
    return ISTHMUS_OK;
  });
}

// Choice that each rank announces when a communicator is split.
struct Choice {
  int32_t color, key, rank;
};

// Equally many bytes of each rank, in rank order.
std::vector<char> exchange(const std::shared_ptr<Communicator>& communicator, const void* bytes,
                           size_t count) {
  Request request{Kind::kExchange, communicator};
  request.from = bytes;
  request.count = count;
  std::vector<std::unique_ptr<Operation>> operations;
  {
    const std::lock_guard<std::mutex> lock(communicator->order());
    operations.push_back(make_operation(std::move(request)));
  }
  auto& collective = static_cast<Collective&>(*operations.back());
  Batch batch(std::move(operations));
  batch.run();
  return collective.gathered();
}

// The ranks of the color, by key, then by rank.
std::vector<Choice> members(const std::vector<char>& gathered, int32_t color) {
  std::vector<Choice> all(gathered.size() / sizeof(Choice)), found;
  std::memcpy(all.data(), gathered.data(), gathered.size());
  for (const Choice& choice : all)
    if (choice.color == color) found.push_back(choice);
  std::sort(found.begin(), found.end(), [](const Choice& a, const Choice& b) {
    return std::tie(a.key, a.rank) < std::tie(b.key, b.rank);
  });
  return found;
}

// The id created by the first rank of the color; all zero for a rank without a color.
isthmus_unique_id exchange_id(const std::shared_ptr<Communicator>& parent, const std::vector<Choice>& ranks) {
  const bool is_first = !ranks.empty() && ranks.front().rank == parent->rank();
  isthmus_unique_id id{};
  if (is_first) id = make_id();
  try {
    const std::vector<char> ids = exchange(parent, &id, sizeof(id));
    if (!ranks.empty()) {
      std::memcpy(&id, ids.data() + static_cast<size_t>(ranks.front().rank) * sizeof(id), sizeof(id));
    }
  } catch (const Failure&) {
    if (is_first) close_id(id);
    throw;
  }
  return id;
}

isthmus_status comm_split(isthmus_comm comm, int32_t color, int32_t key, const isthmus_comm_options* options,
                          isthmus_comm* out) {
  return call([&] {
    const std::shared_ptr<Communicator> parent = communicator_of(comm, "comm_split");
    require_not_null(out, "comm_split", "out");
    require_no_group("comm_split");
    parent->require_healthy();
    const Choice own{color, key, parent->rank()};
    std::vector<Choice> ranks = members(exchange(parent, &own, sizeof(own)), color);
    if (color < 0) ranks.clear();
    const isthmus_unique_id id = exchange_id(parent, ranks);
    if (color < 0) {
      *out = nullptr;
      return ISTHMUS_OK;
    }
    const auto place = std::find_if(ranks.begin(), ranks.end(),
                                    [&](const Choice& choice) { return choice.rank == parent->rank(); });
    Communicator::Options asked{static_cast<int32_t>(place - ranks.begin()),
                                static_cast<int32_t>(ranks.size()), parent->options().timeout_ms,
                                parent->options().name + "/" + std::to_string(color)};
    if (options != nullptr) {
      asked.timeout_ms = options->timeout_ms;
      asked.name = name_in(*options, asked.name);
    }
    *out = handle_of(Communicator::create(id, asked, parent->device()));
    return ISTHMUS_OK;
  });
}

isthmus_status comm_destroy(isthmus_comm comm) {
  return call([&] {
    const std::shared_ptr<Communicator> communicator = communicator_of(comm, "comm_destroy");
    communicator->leave();
    Communicators& known = communicators();
    const std::lock_guard<std::mutex> lock(known.mutex);
    known.living.erase(communicator.get());
    return ISTHMUS_OK;
  });
}

isthmus_status comm_abort(isthmus_comm comm) {
  return call([&] {
    communicator_of(comm, "comm_abort")->abort();
    return ISTHMUS_OK;
  });
}

isthmus_status comm_error(isthmus_comm comm) {
  return call([&] { return communicator_of(comm, "comm_error")->error(); });
}

isthmus_status comm_failure(isthmus_comm comm, isthmus_comm_failure* failure) {
  return call([&] {
    require_not_null(failure, "comm_failure", "failure");
    return communicator_of(comm, "comm_failure")->failure(failure);
  });
}

}  // namespace

std::shared_ptr<Communicator> communicator_of(isthmus_comm handle, const char* function) {
  Communicators& known = communicators();
  const std::lock_guard<std::mutex> lock(known.mutex);
  const auto found = known.living.find(reinterpret_cast<const Communicator*>(handle));
  if (found == known.living.end()) {
    fail(ISTHMUS_INVALID_ARGUMENT, "%s: %p is not a communicator; pass one that comm_create() returned",
         function, static_cast<void*>(handle));
  }
  return found->second;
}

void add_communicator_functions(isthmus_driver& table) {
  table.comm_unique_id = comm_unique_id;
  table.comm_create = comm_create;
  table.comm_reachable = comm_reachable;
  table.comm_split = comm_split;
  table.comm_destroy = comm_destroy;
  table.comm_abort = comm_abort;
  table.comm_error = comm_error;
  table.comm_failure = comm_failure;
}

}  // namespace isthmus::host
