#include "collectives/diagnostics/board.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <sstream>
#include <thread>
#include <vector>

#include "collectives/diagnostics/flight_recorder.h"
#include "collectives/diagnostics/watchdog.h"
#include "core/runtime.h"

namespace isthmus {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr char kSeparator = '\x1e';  // between a message and its record, in the store
constexpr auto kLook = 50ms, kShortest = 100ms, kLongest = 10000ms;
constexpr auto kPatience = 2s;    // with a store that does not respond
constexpr auto kAsk = 200ms;      // between two checks for a request
constexpr size_t kDescribed = 8;  // ranks in a message

// Publishes on a thread of its own, so that a store that does not respond blocks nothing else.
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

  std::vector<std::shared_ptr<Board>> all_boards() {
    const std::lock_guard<std::mutex> lock(mutex);
    return found_in(boards);
  }

  static std::vector<std::shared_ptr<Board>> found_in(const std::vector<std::weak_ptr<Board>>& boards) {
    std::vector<std::shared_ptr<Board>> found;
    for (const auto& board : boards)
      if (auto living = board.lock()) found.push_back(std::move(living));
    return found;
  }

  std::vector<std::shared_ptr<Board>> remove_expired() {
    const std::lock_guard<std::mutex> lock(mutex);
    std::vector<std::shared_ptr<Board>> found = found_in(boards);
    boards.assign(found.begin(), found.end());
    if (found.empty()) is_running = false;
    return found;
  }

  void run() {
    for (auto found = remove_expired(); !found.empty(); found = remove_expired()) {
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

// Wall-clock time, which machines share.
int64_t seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

Publisher& publisher() {
  static Publisher& instance = *new Publisher;  // its thread may outlive main()
  return instance;
}

// The result of a function that asks a store, if it returns within kPatience. It runs on a thread of its own,
// because the store may never respond.
template <typename Answer>
std::optional<Answer> in_time(std::function<Answer()> function) {
  struct State {
    std::mutex mutex;
    std::condition_variable answered;
    std::optional<Answer> answer;
  };
  const auto state = std::make_shared<State>();
  std::thread([state, function = std::move(function)] {
    Answer answer = function();
    const std::lock_guard<std::mutex> lock(state->mutex);
    state->answer = std::move(answer);
    state->answered.notify_all();
  }).detach();
  std::unique_lock<std::mutex> lock(state->mutex);
  state->answered.wait_for(lock, kPatience, [&] { return state->answer.has_value(); });
  return state->answer;
}

// Runs a function that tells other ranks something. Ignores a store that is gone: the rank that served it
// exited, and the other ranks report that.
template <typename Function>
void ignoring_lost_store(Function function) noexcept {
  try {
    function();
  } catch (const std::exception&) {
  }
}

}  // namespace

Board::Board(const c10::intrusive_ptr<c10d::Store>& store, std::string group, int rank, int size,
             std::chrono::milliseconds timeout)
    : store_(store), group_(std::move(group)), rank_(rank), size_(size), interval_(interval_for(timeout)) {}

template <typename Answer>
Answer Board::ask(std::function<Answer(const Board&)> question, Answer (*without_store)(const char*)) {
  const auto answer =
      in_time<Answer>([self = shared_from_this(), question = std::move(question), without_store] {
        try {
          return question(*self);
        } catch (const std::exception&) {
          return without_store("; the store is gone: the process that served it has exited");
        }
      });
  return answer.value_or(without_store("; the store does not respond: the process that serves it hangs"));
}

void Board::set_timeout(std::chrono::milliseconds timeout) { interval_ = interval_for(timeout); }

void Board::note(uint64_t number, const char* operation) noexcept {
  number_.store(number, std::memory_order_relaxed);
  operation_.store(operation, std::memory_order_relaxed);
}

void Board::note_on_cpu(uint64_t number, const char* operation) noexcept {
  number_on_cpu_.store(number, std::memory_order_relaxed);
  on_cpu_.store(operation, std::memory_order_relaxed);
}

void Board::publish_refusal(uint64_t number, const char* operation, const std::string& error) noexcept {
  in_time<bool>([self = shared_from_this(), text = std::to_string(number) + " " + operation + " #" +
                                                   std::to_string(number) + ": " + error] {
    ignoring_lost_store([&] { self->store_->set(refusal_key(self->rank_), text); });
    return true;
  });
}

void Board::publish(bool at_once) {
  const std::lock_guard<std::mutex> lock(publishing_);
  const auto now = Clock::now();
  if (!at_once && now - published_ < interval_.load()) return;
  published_ = now;
  const char* const operation = operation_.load();
  const char* const on_cpu = on_cpu_.load();
  const Waits waits = watchdog::waits();
  if (operation == nullptr && on_cpu == nullptr && waits.empty()) return;
  std::ostringstream text;
  text << number_.load() << ' ' << seconds() << ' ' << (operation == nullptr ? "" : operation) << '\n'
       << number_on_cpu_.load() << ' ' << (on_cpu == nullptr ? "" : on_cpu) << '\n'
       << lines_of(waits);
  ignoring_lost_store([&] { store_->set(key(rank_), text.str()); });
}

Board::Notice Board::read(int rank) const {
  Notice notice;
  if (!store_->check({key(rank)})) return notice;
  std::istringstream text(store_->get_to_str(key(rank)));
  std::getline((text >> notice.number >> notice.seconds).ignore(1), notice.operation);
  std::getline((text >> notice.number_on_cpu).ignore(1), notice.on_cpu);
  std::ostringstream rest;
  rest << text.rdbuf();
  notice.waits = waits_of(rest.str());
  return notice;
}

std::string Board::refusal(int rank, uint64_t number) const {
  if (!store_->check({refusal_key(rank)})) return {};
  const std::string text = store_->get_to_str(refusal_key(rank));
  if (std::stoull(text) != number) return {};
  const size_t begin = text.find(' ') + 1,
               end = text.find_last_not_of('.') + 1;  // more of the sentence follows
  return "; rank " + std::to_string(rank) + " raised in " + text.substr(begin, end - begin);
}

std::string Board::describe(int rank, uint64_t number, const Notice& notice) const {
  const int64_t silence = seconds() - notice.seconds;
  const bool is_silent = notice.seconds != 0 &&
                         silence > 1 + std::chrono::ceil<std::chrono::seconds>(3 * interval_.load()).count();
  if (notice.number >= number && !is_silent) return {};
  const std::string raised = refusal(rank, number);
  if (!raised.empty()) return raised;
  std::string text = "; rank " + std::to_string(rank);
  if (notice.operation.empty())
    text += " has not enqueued any operation";
  else
    text += " last enqueued " + notice.operation + " #" + std::to_string(notice.number);
  if (notice.number_on_cpu == number)
    text += std::string(notice.operation.empty() ? " but" : " and then") + " called " + notice.on_cpu +
            " with a CPU tensor";
  if (is_silent) text += " and has not been heard from for " + std::to_string(silence) + " s";
  return text;
}

MissingRanks Board::missing_from_collective(uint64_t number, const std::vector<int>& peers,
                                            const Waits& waits) {
  return ask<MissingRanks>(
      [number, peers, waits](const Board& self) {
        MissingRanks found;
        std::map<int, RankState> states{{self.rank_, {self.number_.load(), waits}}};
        for (int rank = 0; rank < self.size_; ++rank) {
          const bool is_peer = std::find(peers.begin(), peers.end(), rank) != peers.end();
          if (rank == self.rank_ || (!peers.empty() && !is_peer)) continue;
          const Notice notice = self.read(rank);
          states[rank] = {notice.number, notice.waits};
          const std::string line = self.describe(rank, number, notice);
          if (line.empty()) continue;
          found.ranks.push_back(rank);
          if (found.ranks.size() <= kDescribed) found.details += line;
        }
        found.details += explain_waits({self.group_, number}, self.rank_, states, reached_in);
        return found;
      },
      [](const char* why) { return MissingRanks{{}, why}; });
}

std::string Board::refusals(uint64_t number) {
  return ask<std::string>(
      [number](const Board& self) {
        std::string found;
        for (int rank = 0; rank < self.size_; ++rank) found += self.refusal(rank, number);
        return found;
      },
      [](const char*) { return std::string(); });
}

std::optional<uint64_t> Board::reached_in(const std::string& group) {
  std::optional<uint64_t> found;
  for (const auto& board : publisher().all_boards())
    if (board->group_ == group) found = board->number_.load();
  return found;
}

void Board::arrive_at_barrier() noexcept {
  ignoring_lost_store([&] { store_->set(barrier_key(rank_), std::to_string(++barriers_)); });
}

MissingRanks Board::missing_from_barrier() {
  return ask<MissingRanks>(
      [barriers = barriers_.load()](const Board& self) {
        MissingRanks found;
        for (int rank = 0; rank < self.size_; ++rank) {
          const std::string key = self.barrier_key(rank);
          if (!self.store_->check({key}) || std::stoull(self.store_->get_to_str(key)) < barriers)
            found.ranks.push_back(rank);
        }
        return found;
      },
      [](const char* why) { return MissingRanks{{}, why}; });
}

PublishedFailure Board::first_failure(const PublishedFailure& own) {
  return ask<PublishedFailure>(
      [own](const Board& self) {
        const std::string text = own.message + kSeparator + own.json;
        const std::vector<uint8_t> value(text.begin(), text.end());
        const std::vector<uint8_t> found = self.store_->compareSet("chip/failure", {}, value);
        if (found.empty() || found == value) return PublishedFailure{};
        const std::string first(found.begin(), found.end());
        const size_t end = first.find(kSeparator);
        return PublishedFailure{"; before that " + first.substr(0, end), first.substr(end + 1)};
      },
      [](const char* why) { return PublishedFailure{why, ""}; });
}

void Board::start() { publisher().add(shared_from_this()); }

void Board::answer() {
  const auto now = Clock::now();
  if (!recorder::writes() || has_answered_ || now - asked_ < kAsk) return;
  asked_ = now;
  ignoring_lost_store([&] {
    if (!store_->check({"chip/record"})) return;
    has_answered_ = true;
    recorder::write();
    store_->set(record_key(rank_), "");
  });
}

void Board::request_records() noexcept {
  ignoring_lost_store([&] { store_->set("chip/record", ""); });
}

bool Board::has_all_records() noexcept {
  std::vector<std::string> keys;
  for (int rank = 0; rank < size_; ++rank) keys.push_back(record_key(rank));
  try {
    return store_->check(keys);
  } catch (const std::exception&) {
    return true;
  }
}

void write_records() noexcept {
  recorder::write();
  in_time<bool>([boards = publisher().all_boards()] {
    for (const auto& board : boards) board->request_records();
    const auto end = Clock::now() + kPatience;
    const auto has_all = [](const auto& board) { return board->has_all_records(); };
    while (!std::all_of(boards.begin(), boards.end(), has_all) && Clock::now() < end)
      std::this_thread::sleep_for(kLook);
    return true;
  });
}

}  // namespace isthmus
