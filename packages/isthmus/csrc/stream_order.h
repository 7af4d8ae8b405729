// Order of the work of several streams: which of it comes before which, by vector clocks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <vector>

namespace isthmus {

// Not thread-safe.
template <typename Key>
class StreamOrder {
 public:
  // Work was enqueued on the stream.
  void add(const Key& stream) { before_[stream][stream] = ++last_; }

  // The mark that an event recorded on the stream now stands for.
  size_t mark(const Key& stream) {
    marks_.push_back(before_[stream]);
    return marks_.size() - 1;
  }

  // The stream waits for such an event.
  void wait(const Key& stream, size_t mark) {
    Clock& known = before_[stream];
    for (const auto& [other, number] : marks_[mark]) known[other] = std::max(known[other], number);
  }

  // The number of streams with work that is not before the end of this one.
  size_t count_unjoined(const Key& stream) {
    Clock& known = before_[stream];
    return static_cast<size_t>(std::count_if(before_.begin(), before_.end(), [&known](auto& each) {
      const auto own = each.second.find(each.first);
      return own != each.second.end() && known[each.first] < own->second;
    }));
  }

 private:
  using Clock = std::map<Key, size_t>;  // number of the last earlier work, by stream

  size_t last_ = 0;
  std::map<Key, Clock> before_;
  std::vector<Clock> marks_;
};

}  // namespace isthmus
