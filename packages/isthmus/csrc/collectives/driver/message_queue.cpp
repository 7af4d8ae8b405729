#include "collectives/driver/message_queue.h"

#include <deque>
#include <map>
#include <thread>

#include "core/dropping.h"

namespace isthmus {

void DeferredWork::begin(const std::function<WorkPtr()>& start) noexcept {
  WorkPtr work;
  std::exception_ptr error;
  try {
    work = start();
  } catch (...) {
    error = std::current_exception();
  }
  const std::lock_guard<std::mutex> lock(beginning_);
  work_ = std::move(work);
  error_ = std::move(error);
  has_begun_.notify_all();
}

DeferredWork::WorkPtr DeferredWork::begun(std::chrono::milliseconds timeout) {
  std::unique_lock<std::mutex> lock(beginning_);
  const auto has_begun = [this] { return work_ != nullptr || error_ != nullptr; };
  if (timeout == kNoTimeout) {
    has_begun_.wait(lock, has_begun);  // for the timeout of the group at most
  } else {
    TORCH_CHECK_WITH(DistBackendError, has_begun_.wait_for(lock, timeout, has_begun), "a message ",
                     opType_ == c10d::OpType::SEND ? "to" : "from", " rank ", peer_,
                     " had not begun after the ", timeout.count(),
                     " ms of wait(): that rank has not called a matching operation yet.");
  }
  if (error_) std::rethrow_exception(error_);
  return work_;
}

bool DeferredWork::isCompleted() {
  WorkPtr work;
  {
    const std::lock_guard<std::mutex> lock(beginning_);
    if (error_) return true;
    work = work_;
  }
  return work != nullptr && work->isCompleted();
}

bool DeferredWork::isSuccess() const {
  const std::lock_guard<std::mutex> lock(beginning_);
  return work_ != nullptr && work_->isSuccess();
}

std::exception_ptr DeferredWork::exception() const {
  const std::lock_guard<std::mutex> lock(beginning_);
  return work_ != nullptr ? work_->exception() : error_;
}

bool DeferredWork::wait(std::chrono::milliseconds timeout) { return begun(timeout)->wait(timeout); }

struct MessageQueue::State {
  struct Message {
    c10::intrusive_ptr<DeferredWork> work;
    Start start;
  };

  std::mutex mutex;
  std::condition_variable ended;
  std::map<Peer, std::deque<Message>> waiting;  // an entry for each thread

  void run(const Peer& peer) {
    for (;;) {
      Message message;
      {
        const std::lock_guard<std::mutex> lock(mutex);
        const auto found = waiting.find(peer);
        if (found->second.empty()) {
          waiting.erase(found);
          ended.notify_all();
          return;
        }
        message = std::move(found->second.front());
        found->second.pop_front();
      }
      message.work->begin(message.start);
      drop(std::move(message));
    }
  }
};

std::shared_ptr<MessageQueue::State> MessageQueue::make_state() { return std::make_shared<State>(); }

bool MessageQueue::has(const Peer& peer) const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->waiting.count(peer) != 0;
}

void MessageQueue::push(const Peer& peer, c10::intrusive_ptr<DeferredWork> work, Start start) {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  const bool is_first = state_->waiting.count(peer) == 0;
  state_->waiting[peer].push_back({std::move(work), std::move(start)});
  if (is_first) std::thread([state = state_, peer] { state->run(peer); }).detach();
}

void MessageQueue::await(const Peer& peer) const {
  std::unique_lock<std::mutex> lock(state_->mutex);
  state_->ended.wait(lock, [&] { return state_->waiting.count(peer) == 0; });
}

}  // namespace isthmus
