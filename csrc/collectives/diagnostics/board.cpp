#include "collectives/diagnostics/board.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <sstream>
#include <thread>
#include <vector>

#include "collectives/diagnostics/flight_recorder.h"
#include "core/runtime.h"

namespace isthmus {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kLook = 50ms, kShortest = 100ms, kLongest = 10000ms;
constexpr auto kPatience = 2s;  // with a store that does not answer
constexpr auto kAsk = 200ms;    // between two looks for a request
constexpr int kNamed = 8;       // ranks in a message

// Publishes on a thread of its own: a store that does not answer holds up nobody else.
struct Publisher {
  std::mutex mutex;
  std::vector<std::weak_ptr<Board>> boards;
  bool is_running = false;

  void add(const std::shared_ptr<Board>& board) {
    const std::lock_guard<std::mutex> lock(mutex);
    for (const auto& known : boards)
      if (known.lock() == board) return;
    boards.push_back(board);
    if (is_running) return;
    is_running = true;
    std::thread([this] { run(); }).detach();
  }

  std::vector<std::shared_ptr<Board>> known() {
    const std::lock_guard<std::mutex> lock(mutex);
    return found_in(boards);
  }

  static std::vector<std::shared_ptr<Board>> found_in(const std::vector<std::weak_ptr<Board>>& boards) {
    std::vector<std::shared_ptr<Board>> found;
    for (const auto& board : boards)
      if (auto living = board.lock()) found.push_back(std::move(living));
    return found;
  }

  std::vector<std::shared_ptr<Board>> living() {
    const std::lock_guard<std::mutex> lock(mutex);
    std::vector<std::shared_ptr<Board>> found = found_in(boards);
    boards.assign(found.begin(), found.end());
    if (found.empty()) is_running = false;
    return found;
  }

  void run() {
    for (auto found = living(); !found.empty(); found = living()) {
      for (const auto& board : found) {
        board->publish(false);
        board->answer();
      }
      found.clear();
      std::this_thread::sleep_for(kLook);
    }
  }
};

std::chrono::milliseconds interval_for(std::chrono::milliseconds timeout) {
  return std::clamp<std::chrono::milliseconds>(timeout / 10, kShortest, kLongest);
}

// Of the clock that machines share.
int64_t seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

Publisher& publisher() {
  static Publisher& instance = *new Publisher;  // its thread may outlive main()
  return instance;
}

// What a function returns that asks a store, if it does within kPatience: on a thread, for the store may
// never answer.
template <typename Answer>
std::optional<Answer> in_time(std::function<Answer()> function) {
  struct State {
    std::mutex mutex;
    std::condition_variable came;
    std::optional<Answer> answer;
  };
  const auto state = std::make_shared<State>();
  std::thread([state, function = std::move(function)] {
    Answer answer = function();
    const std::lock_guard<std::mutex> lock(state->mutex);
    state->answer = std::move(answer);
    state->came.notify_all();
  }).detach();
  std::unique_lock<std::mutex> lock(state->mutex);
  state->came.wait_for(lock, kPatience, [&] { return state->answer.has_value(); });
  return state->answer;
}

// For what only the other ranks need: where the store is gone, most likely with its rank, they say what there
// is to say.
template <typename Function>
void if_there_is_a_store(Function function) noexcept {
  try {
    function();
  } catch (const std::exception&) {
  }
}

}  // namespace

Board::Board(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
             std::chrono::milliseconds timeout)
    : store_(store), rank_(rank), size_(size), interval_(interval_for(timeout)) {}

void Board::set_timeout(std::chrono::milliseconds timeout) { interval_ = interval_for(timeout); }

void Board::note(uint64_t number, const char* operation) noexcept {
  number_.store(number, std::memory_order_relaxed);
  if (C10_LIKELY(operation_.exchange(operation) != nullptr)) return;
  publisher().add(shared_from_this());
}

void Board::publish(bool at_once) {
  const char* const operation = operation_.load();
  if (operation == nullptr) return;
  const std::lock_guard<std::mutex> lock(publishing_);
  const auto now = Clock::now();
  if (!at_once && now - published_ < interval_.load()) return;
  published_ = now;
  if_there_is_a_store([&] {
    store_->set(key(rank_),
                std::to_string(number_.load()) + " " + std::to_string(seconds()) + " " + operation);
  });
}

std::string Board::describe(int rank, uint64_t number) const {
  const std::string name = "rank " + std::to_string(rank);
  if (!store_->check({key(rank)})) return name + " has enqueued nothing";
  const std::vector<uint8_t> value = store_->get(key(rank));
  std::istringstream text(std::string(value.begin(), value.end()));
  uint64_t reached = 0;
  int64_t at = 0;
  std::string operation;
  text >> reached >> at;
  std::getline(text >> std::ws, operation);
  const int64_t silence = seconds() - at;
  const bool is_silent = silence > 1 + std::chrono::ceil<std::chrono::seconds>(3 * interval_.load()).count();
  if (reached >= number && !is_silent) return {};
  return name + (reached < number ? " did not arrive: its last is " : " is silent: its last is ") +
         operation + " (operation " + std::to_string(reached) + ")" +
         (is_silent ? ", heard from " + std::to_string(silence) + " s ago" : "");
}

std::string Board::read(uint64_t number, int peer) const {
  std::string found;
  int named = 0;
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_ || (peer >= 0 && rank != peer)) continue;
    const std::string line = describe(rank, number);
    if (line.empty()) continue;
    if (++named > kNamed) return found + " ...";
    found += "; " + line;
  }
  return found;
}

std::string Board::absent(uint64_t number, int peer) {
  return ask([number, peer](const Board& self) { return self.read(number, peer); });
}

std::string Board::first(const std::string& failure) {
  return ask([failure](const Board& self) {
    const std::vector<uint8_t> own(failure.begin(), failure.end());
    const std::vector<uint8_t> found = self.store_->compareSet("chip/failure", {}, own);
    return found.empty() || found == own ? "" : "; before that " + std::string(found.begin(), found.end());
  });
}

void Board::came() noexcept {
  if_there_is_a_store([&] { store_->set(meeting_key(rank_), std::to_string(++meetings_)); });
}

std::string Board::missing() {
  return ask([meetings = meetings_.load()](const Board& self) {
    std::string names;
    for (int rank = 0; rank < self.size_; ++rank) {
      const std::string key = self.meeting_key(rank);
      if (self.store_->check({key}) && std::stoull(self.store_->get_to_str(key)) >= meetings) continue;
      names += (names.empty() ? "" : ", ") + std::to_string(rank);
    }
    if (names.empty()) return names;
    return "; these of " + std::to_string(self.size_) + " ranks did not come: " + names;
  });
}

void Board::answer_requests() { publisher().add(shared_from_this()); }

void Board::answer() {
  const auto now = Clock::now();
  if (!recorder::writes() || has_answered_ || now - asked_ < kAsk) return;
  asked_ = now;
  if_there_is_a_store([&] {
    if (!store_->check({"chip/record"})) return;
    has_answered_ = true;
    recorder::write();
    store_->set(record_key(rank_), "");
  });
}

void Board::request_records() noexcept {
  if_there_is_a_store([&] { store_->set("chip/record", ""); });
}

bool Board::has_all_records() noexcept {
  std::vector<std::string> keys;
  for (int rank = 0; rank < size_; ++rank) keys.push_back(record_key(rank));
  try {
    return store_->check(keys);
  } catch (const std::exception&) {
    return true;  // none will come any more
  }
}

std::string Board::ask(std::function<std::string(const Board&)> question) {
  const auto answer = in_time<std::string>([self = shared_from_this(), question = std::move(question)] {
    try {
      return question(*self);
    } catch (const std::exception&) {
      return std::string("; the store does not answer: its rank has ended");
    }
  });
  return answer.value_or("; the store does not answer: its rank hangs");
}

void write_records() noexcept {
  recorder::write();
  in_time<bool>([boards = publisher().known()] {
    for (const auto& board : boards) board->request_records();
    const auto end = Clock::now() + kPatience;
    const auto has_all = [](const auto& board) { return board->has_all_records(); };
    while (!std::all_of(boards.begin(), boards.end(), has_all) && Clock::now() < end)
      std::this_thread::sleep_for(kLook);
    return true;
  });
}

}  // namespace isthmus
