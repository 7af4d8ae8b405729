// An abstract Unix socket, which no earlier job can leave behind: rank 0 listens, the others connect.
#include "rendezvous.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <map>
#include <thread>

#include "comm.h"

namespace isthmus::ascend::hccl {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kRetry = std::chrono::milliseconds(5);

// Reply of rank 0: an id, or the message of a failure.
struct Reply {
  int32_t code;  // an HcclResult
  union {
    isthmus_unique_id id;
    char message[sizeof(isthmus_unique_id)];
  };
};

// An open socket; closed at the end.
class Socket {
 public:
  explicit Socket(int descriptor) : descriptor_(descriptor) {
    if (descriptor < 0)
      throw Failure{kInternal, std::string("cannot open a socket: ") + std::strerror(errno)};
  }
  Socket() : Socket(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}
  ~Socket() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  Socket(Socket&& other) noexcept : descriptor_(other.descriptor_) { other.descriptor_ = -1; }
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }

  int descriptor() const { return descriptor_; }

  // Whether a process of this user is at the other end: every user can bind and connect to abstract names.
  bool is_own() const {
    ucred peer{};
    socklen_t bytes = sizeof(peer);
    return getsockopt(descriptor_, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.uid == geteuid();
  }

  // Later reads fail after this time.
  void limit_reads(int64_t milliseconds) const {
    const timeval limit{milliseconds / 1000, milliseconds % 1000 * 1000};
    setsockopt(descriptor_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  }

  bool read(void* to, size_t bytes) const {
    return recv(descriptor_, to, bytes, MSG_WAITALL) == static_cast<ssize_t>(bytes);
  }

  bool write(const void* from, size_t bytes) const {
    return send(descriptor_, from, bytes, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes);
  }

 private:
  int descriptor_;
};

// The address of a name, of this user.
struct Address {
  sockaddr_un value{};
  socklen_t bytes;

  explicit Address(const std::string& name) {
    value.sun_family = AF_UNIX;
    const int count = std::snprintf(value.sun_path + 1, sizeof(value.sun_path) - 1, "isthmus-hccl-%u-%s",
                                    getuid(), name_of(name).c_str());
    bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + count);
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&value); }
};

struct Deadline {
  int64_t timeout_ms;
  Clock::time_point end = Clock::now() + std::chrono::milliseconds(timeout_ms);

  int64_t left_ms() const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
  }
  [[noreturn]] void pass(const std::string& ranks) const {
    throw Failure{kTimeout, "timed out after " + std::to_string(timeout_ms) + " ms waiting for " + ranks +
                                "; check these ranks, or raise HCCL_CONNECT_TIMEOUT"};
  }
};

// Connections of the ranks that have joined; the last of each rank counts.
class Host {
 public:
  Host(const std::string& name, uint32_t size, const Deadline& deadline) : size_(size), deadline_(deadline) {
    const Address address(name);
    while (bind(listener_.descriptor(), address.get(), address.bytes) != 0) {
      if (errno != EADDRINUSE || deadline_.left_ms() <= 0)
        throw Failure{kInternal, std::string("cannot wait for the other ranks: ") + std::strerror(errno) +
                                     "; two processes are rank 0"};
      std::this_thread::sleep_for(kRetry);
    }
    if (listen(listener_.descriptor(), static_cast<int>(size)) != 0)
      throw Failure{kInternal, std::string("cannot wait for the other ranks: ") + std::strerror(errno)};
  }

  void wait_for_all() {
    while (connections_.size() + 1 < size_) {
      pollfd polled{listener_.descriptor(), POLLIN, 0};
      const int64_t left = deadline_.left_ms();
      if (left <= 0) deadline_.pass("ranks [" + absent() + "] of " + std::to_string(size_));
      if (poll(&polled, 1, static_cast<int>(left)) > 0) accept_one();
    }
  }

  void send(const Reply& reply) const {
    for (const auto& [rank, connection] : connections_) connection.write(&reply, sizeof(reply));
  }

 private:
  void accept_one() {
    constexpr int64_t kPatience = 1000;
    Socket connection(accept4(listener_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!connection.is_own()) return;
    connection.limit_reads(kPatience);
    uint32_t rank = 0;
    if (connection.read(&rank, sizeof(rank)) && rank > 0 && rank < size_)
      connections_.insert_or_assign(rank, std::move(connection));
  }

  std::string absent() const {
    std::string ranks;
    for (uint32_t rank = 1; rank < size_; ++rank)
      if (connections_.count(rank) == 0) ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
    return ranks;
  }

  const uint32_t size_;
  const Deadline& deadline_;
  Socket listener_;
  std::map<uint32_t, Socket> connections_;
};

isthmus_unique_id host_id(const std::string& name, uint32_t size, const Deadline& deadline) {
  Host host(name, size, deadline);
  Reply reply{};
  try {
    host.wait_for_all();
    check(chip().comm_unique_id(&reply.id));
  } catch (const Failure& failure) {
    reply.code = failure.code;
    std::snprintf(reply.message, sizeof(reply.message), "%s", failure.message.c_str());
    host.send(reply);
    throw;
  }
  host.send(reply);
  return reply.id;
}

isthmus_unique_id ask_for_id(const std::string& name, uint32_t rank, const Deadline& deadline) {
  const Address address(name);
  Socket connection;
  while (connect(connection.descriptor(), address.get(), address.bytes) != 0) {
    if (deadline.left_ms() <= 0) deadline.pass("rank 0");
    std::this_thread::sleep_for(kRetry);
  }
  if (!connection.is_own())
    throw Failure{kInternal, "another user listens at the address of rank 0, @" +
                                 std::string(address.value.sun_path + 1) + ""};
  Reply reply{};
  connection.limit_reads(deadline.timeout_ms + 1000);  // rank 0 may have started its wait later
  if (!connection.write(&rank, sizeof(rank)) || !connection.read(&reply, sizeof(reply)))
    throw Failure{kRemoteFailure, "rank 0 exited before the communicator was created; see its error"};
  if (reply.code != kSuccess) throw Failure{reply.code, reply.message};
  return reply.id;
}

}  // namespace

isthmus_unique_id agree_on_id(const std::string& name, uint32_t rank, uint32_t size, int64_t timeout_ms) {
  const Deadline deadline{timeout_ms};
  return rank == 0 ? host_id(name, size, deadline) : ask_for_id(name, rank, deadline);
}

}  // namespace isthmus::ascend::hccl
