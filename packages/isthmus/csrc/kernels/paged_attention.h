// Attention over a paged cache. The keys of a sequence are computed in parts of kPart, each with a maximum of
// its own, and the parts are merged in order. So a query's result has the same bits whatever queries,
// sequences and threads compute beside it: no sum depends on them.
#pragma once

#include <ATen/Parallel.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/attention.h"
#include "kernels/exponential.h"
#include "kernels/paged_cache.h"

namespace isthmus::kernels::paged {

using at::vec::Vectorized;
using attention::Range;
using attention::Scratch;

constexpr int64_t kPart = 256;  // keys
constexpr int64_t kMostRows = 256;

// One sequence: its queries in the packed tensor, its keys, and the row of the block table.
struct Sequence {
  int64_t query, queries, keys;
  const int32_t* table;
};

// Arguments of a call, in the type computed in.
template <typename W>
struct Call {
  std::vector<Sequence> sequences;
  int64_t heads, key_heads, features, value_features;
  int64_t left, right;  // window of a query; beyond any length if unlimited
  W softcap;
  std::vector<W> scale;        // of the scores, by key head
  std::vector<W> value_scale;  // by key head
  std::vector<W> alibi;        // [sequences, heads], or empty
  std::vector<W> sinks;        // [heads], or empty

  int64_t groups() const { return heads / key_heads; }
  // Whether a score is a product and a scale.
  bool is_plain() const { return softcap == 0 && alibi.empty(); }
  // Keys that any of several consecutive queries of a sequence sees.
  Range visible(const Sequence& sequence, int64_t query, int64_t count = 1) const {
    const int64_t at = query + sequence.keys - sequence.queries;
    const int64_t first = std::clamp<int64_t>(at - left, 0, sequence.keys);
    return {first, std::clamp<int64_t>(at + count + right, first, sequence.keys)};
  }
};

// Consecutive queries of one sequence with all heads that share a key head; a row for each query and head.
struct Task {
  int64_t sequence, key_head, query, queries;
  Range parts;
};

// The softmax of a row over some keys: maximum, sum of exponentials, and the sum of the values weighted by
// them.
template <typename W>
struct Partial {
  W top, sum;
  W* total;
};

// Adds the softmax over later keys; total may be null for 0.
template <typename W>
[[gnu::noinline]] inline void merge(Partial<W>& into, W top, W sum, const W* total, int64_t columns) {
  using V = Vectorized<W>;
  constexpr W kNothing = -std::numeric_limits<W>::infinity();
  if (top == kNothing) return;
  const W most = std::isnan(into.top) || into.top > top ? into.top : top;
  const W kept = into.top == kNothing ? W(0) : std::exp(into.top - most), added = std::exp(top - most);
  into.top = most;
  into.sum = std::fma(sum, added, into.sum * kept);
  const V by(kept), with(added);
  for (int64_t c = 0; c < columns; c += V::size()) {
    const V scaled = V::loadu(into.total + c) * by;
    (total == nullptr ? scaled : at::vec::fmadd(V::loadu(total + c), with, scaled)).store(into.total + c);
  }
}

// The rows of a task and the softmax of one part of the keys; T is the type of queries, Weight that of
// weights.
template <typename T, typename Weight>
class PartRows {
 public:
  using W = kernels::Wide<T>;
  using V = Vectorized<W>;
  static constexpr int64_t kSize = V::size();

  int64_t rows() const { return task_.queries * groups_; }

  // The softmax of a row over the part computed last.
  Partial<W> result(int64_t row) const { return {top_[row], sum_[row], total_.get() + row * pitch_}; }

 protected:
  static constexpr W kNothing = -std::numeric_limits<W>::infinity();

  // Room for a number of rows, a pitch for their totals, and tiles of so many rows for exponentials().
  PartRows(const Call<W>& call, int64_t rows, int64_t pitch, int64_t tile)
      : call_(call),
        pitch_(pitch),
        tile_(tile),
        scores_(rows * kPart),
        total_(rows * pitch),
        top_(rows),
        sum_(rows) {}

  void begin(const Task& task) {
    task_ = task;
    sequence_ = call_.sequences[task.sequence];
    groups_ = call_.groups();
  }

  // Calls body(row, features) for the queries of the task, [tokens, heads, features] with these strides.
  template <typename Body>
  void for_queries(const T* query, int64_t token, int64_t head, const Body& body) const {
    for (int64_t r = 0; r < rows(); ++r)
      body(r, query + (sequence_.query + task_.query + r / groups_) * token +
                  (task_.key_head * groups_ + r % groups_) * head);
  }

  // Keys of this part that some rows see, from its first.
  Range seen(int64_t row, int64_t count) const {
    const int64_t query = row / groups_, last = (row + count - 1) / groups_;
    const Range all = call_.visible(sequence_, task_.query + query, last - query + 1);
    return {std::clamp<int64_t>(all.first - first_, 0, kPart),
            std::clamp<int64_t>(all.last - first_, 0, kPart)};
  }
  Range seen_by_tile(int64_t row) const { return seen(row, std::min(tile_, rows() - row)); }

  // Calls body(key, count, address of the first) for the keys first up to last of this part, by blocks.
  template <typename C, typename Body>
  void for_blocks(const Cache<const C>& cache, int64_t first, int64_t last, const Body& body) const {
    for (int64_t key = first; key < last;) {
      const int64_t number = (first_ + key) / cache.size, offset = first_ + key - number * cache.size;
      const int64_t count = std::min(last - key, cache.size - offset);
      body(key, count, cache.at(sequence_.table[number], offset, task_.key_head));
      key += count;
    }
  }

  // Asks for keys first up to last of this part, which blocks scatter so that the processor foresees no
  // address.
  template <typename C>
  void fetch(const Cache<const C>& cache, int64_t first, int64_t last, int64_t features) const {
    constexpr int64_t kLine = 64 / sizeof(C);
    for_blocks(cache, first, last, [&](int64_t, int64_t count, const C* rows) {
      for (int64_t i = 0; i < count; ++i)
        for (int64_t d = 0; d < features; d += kLine) __builtin_prefetch(rows + i * cache.token + d, 0, 2);
    });
  }

  // The products of a row with this part become its weights; those of its tile that it does not see become 0.
  [[gnu::noinline, gnu::flatten]] void exponentials(int64_t row, Weight* weights) {
    W* x = scores_.get() + row * kPart;
    const Range own = seen(row, 1), tile = seen_by_tile(row / tile_ * tile_);
    const int64_t begin = own.first / kStep * kStep, end = (own.last + kStep - 1) / kStep * kStep;
    top_[row] = kNothing;
    sum_[row] = 0;
    W scale = call_.scale[task_.key_head];
    if (own.first < own.last) {
      if (!call_.is_plain() || scale <= 0) {
        transform(row, x, begin, end);
        scale = 1;
      }
      top_[row] = maximum(x, own) * scale;
    }
    if (!std::isfinite(top_[row])) {  // an approximate exponential may miss these
      std::fill(weights + tile.first, weights + tile.last, Weight(0));
      if (top_[row] != kNothing) top_[row] = sum_[row] = std::numeric_limits<W>::quiet_NaN();
      return;
    }
    const V by(scale), top(top_[row]);
    V low(W(0)), high(W(0));
    for (int64_t j = begin; j < end; j += kStep) {
      const V one = exponential<W>(seen_only(V::loadu(x + j) * by, j, own) - top),
              two = exponential<W>(seen_only(V::loadu(x + j + kSize) * by, j + kSize, own) - top);
      low = low + one;
      high = high + two;
      store(one, two, weights + j);
    }
    sum_[row] = sum_of<V>(low + high);
    if (tile.first < begin) std::fill(weights + tile.first, weights + begin, Weight(0));
    if (end < tile.last) std::fill(weights + end, weights + tile.last, Weight(0));
  }

  const Call<W>& call_;
  const int64_t pitch_, tile_;
  const Scratch<W> scores_, total_;
  std::vector<W> top_, sum_;
  Task task_{};
  Sequence sequence_{};
  int64_t groups_ = 1, first_ = 0;

 private:
  static constexpr int64_t kStep = 2 * kSize;

  // -inf for keys that the row does not see.
  static V seen_only(const V& score, int64_t j, Range own) {
    if (j >= own.first && j + kSize <= own.last) return score;
    const V column = V::arange(static_cast<W>(j), W(1));
    return V::blendv(V(kNothing), score,
                     (column >= V(static_cast<W>(own.first))) & (column < V(static_cast<W>(own.last))));
  }

  W maximum(const W* x, Range own) const {
    V low(kNothing), high(kNothing);
    for (int64_t j = own.first / kStep * kStep; j < own.last; j += kStep) {
      low = at::vec::maximum(low, seen_only(V::loadu(x + j), j, own));
      high = at::vec::maximum(high, seen_only(V::loadu(x + j + kSize), j + kSize, own));
    }
    return at::vec::vec_reduce_all([](V& a, V& b) { return at::vec::maximum(a, b); },
                                   at::vec::maximum(low, high));
  }

  // Scale, soft cap and ALiBi.
  void transform(int64_t row, W* x, int64_t begin, int64_t end) const {
    const int64_t head = task_.key_head * groups_ + row % groups_;
    const W slope = call_.alibi.empty() ? W(0) : call_.alibi[task_.sequence * call_.heads + head];
    const V scale(call_.scale[task_.key_head]), cap(call_.softcap),
        inverse(W(1) / (call_.softcap != 0 ? call_.softcap : W(1))), by(slope),
        at(static_cast<W>(task_.query + row / groups_ + sequence_.keys - sequence_.queries - first_));
    for (int64_t j = begin; j < end; j += kSize) {
      V score = V::loadu(x + j) * scale;
      if (call_.softcap != 0) score = (score * inverse).tanh() * cap;
      if (slope != 0) score = score - by * (at - V::arange(static_cast<W>(j), W(1))).abs();
      score.store(x + j);
    }
  }

  static void store(const V& one, const V& two, Weight* to) {
    if constexpr (std::is_same_v<Weight, W>) {
      one.store(to);
      two.store(to + kSize);
    } else {
      at::vec::convert_from_float<Weight>(one, two).store(to);
    }
  }
};

// The output and the logarithms of the sums, [heads, tokens], which may be null.
template <typename T>
struct Results {
  T* out;
  int64_t token, head;
  kernels::Wide<T>* lse;
  int64_t lse_head, lse_token;
};

template <typename W>
std::vector<Task> tasks_of(const Call<W>& call) {
  const int64_t most = std::max<int64_t>(1, kMostRows / call.groups());
  std::vector<Task> tasks;
  for (size_t i = 0; i < call.sequences.size(); ++i) {
    const Sequence& sequence = call.sequences[i];
    for (int64_t head = 0; head < call.key_heads; ++head)
      for (int64_t query = 0; query < sequence.queries; query += most) {
        const int64_t count = std::min(most, sequence.queries - query);
        const Range seen = call.visible(sequence, query, count);
        tasks.push_back({static_cast<int64_t>(i),
                         head,
                         query,
                         count,
                         {seen.first / kPart, (seen.last + kPart - 1) / kPart}});
      }
  }
  return tasks;
}

// Calls body(worker, index) for every index below count, on all threads, each taking the next when it is
// done.
template <typename Make, typename Body>
void for_each_task(int64_t count, const Make& make, const Body& body) {
  std::atomic<int64_t> next{0};
  const int64_t threads = std::min<int64_t>(count, at::get_num_threads());
  at::parallel_for(0, threads, 1, [&](int64_t begin, int64_t end) {
    for (; begin < end; ++begin) {
      auto worker = make();
      for (int64_t i = next++; i < count; i = next++) body(worker, i);
    }
  });
}

// A row's softmax so far.
template <typename W>
class Running {
 public:
  Running(const Call<W>& call, int64_t rows, int64_t pitch)
      : call_(call), pitch_(pitch), totals_(rows * pitch), rows_(rows) {}

  void begin() {
    std::fill_n(totals_.get(), rows_.size() * pitch_, W(0));
    for (size_t r = 0; r < rows_.size(); ++r)
      rows_[r] = {-std::numeric_limits<W>::infinity(), W(0), totals_.get() + r * pitch_};
  }
  void add(int64_t row, W top, W sum, const W* total) { merge(rows_[row], top, sum, total, pitch_); }

  template <typename T>
  void finish(const Task& task, const Results<T>& results) {
    const Sequence& sequence = call_.sequences[task.sequence];
    const int64_t groups = call_.groups();
    for (int64_t r = 0; r < task.queries * groups; ++r) {
      const int64_t head = task.key_head * groups + r % groups,
                    token = sequence.query + task.query + r / groups;
      Partial<W>& row = rows_[r];
      if (!call_.sinks.empty()) merge<W>(row, call_.sinks[head], W(1), nullptr, pitch_);
      const W share = row.sum == 0 ? W(0) : call_.value_scale[task.key_head] / row.sum;
      T* to = results.out + token * results.token + head * results.head;
      for (int64_t c = 0; c < call_.value_features; ++c) to[c] = static_cast<T>(row.total[c] * share);
      if (results.lse != nullptr)
        results.lse[head * results.lse_head + token * results.lse_token] =
            row.sum == 0 ? -std::numeric_limits<W>::infinity() : row.top + std::log(row.sum);
    }
  }

 private:
  const Call<W>& call_;
  const int64_t pitch_;
  const Scratch<W> totals_;
  std::vector<Partial<W>> rows_;
};

// Parts of all tasks, computed by any thread and merged afterwards.
template <typename W>
class Parts {
 public:
  Parts(const std::vector<Task>& tasks, int64_t groups, int64_t pitch) : pitch_(pitch) {
    for (size_t i = 0; i < tasks.size(); ++i) {
      rows_.push_back(tasks[i].queries * groups);
      first_.push_back(static_cast<int64_t>(units_.size()));
      for (int64_t part = tasks[i].parts.first; part < tasks[i].parts.last; ++part) {
        units_.push_back({static_cast<int64_t>(i), part, static_cast<int64_t>(values_)});
        values_ += rows_[i] * (pitch + 2);
      }
    }
    first_.push_back(static_cast<int64_t>(units_.size()));
    data_.resize(values_);
  }

  struct Unit {
    int64_t task, part, at;
  };
  const std::vector<Unit>& units() const { return units_; }

  template <typename Worker>
  void keep(const Unit& unit, const Worker& worker) {
    W* to = data_.data() + unit.at;
    for (int64_t r = 0; r < worker.rows(); ++r, to += pitch_ + 2) {
      const Partial<W> row = worker.result(r);
      to[0] = row.top;
      to[1] = row.sum;
      std::copy_n(row.total, pitch_, to + 2);
    }
  }
  void add_to(Running<W>& running, int64_t task) const {
    for (int64_t i = first_[task]; i < first_[task + 1]; ++i) {
      const W* from = data_.data() + units_[i].at;
      for (int64_t r = 0; r < rows_[task]; ++r, from += pitch_ + 2)
        running.add(r, from[0], from[1], from + 2);
    }
  }

 private:
  const int64_t pitch_;
  int64_t values_ = 0;
  std::vector<Unit> units_;
  std::vector<int64_t> rows_, first_;
  std::vector<W> data_;
};

// out = softmax(scores) @ values for every query of every sequence.
template <typename Worker, typename T, typename C>
void compute(const Call<kernels::Wide<T>>& call, const T* query, int64_t token, int64_t head,
             Cache<const C> keys, Cache<const C> values, const Results<T>& results) {
  using W = kernels::Wide<T>;
  struct State {
    Worker worker;
    Running<W> running;
  };
  const std::vector<Task> tasks = tasks_of(call);
  int64_t rows = 0;
  for (const Task& task : tasks) rows = std::max(rows, task.queries * call.groups());
  const int64_t pitch = Worker::pitch(call), count = static_cast<int64_t>(tasks.size());
  const auto make = [&] { return State{Worker(call, keys, values, rows), Running<W>(call, rows, pitch)}; };
  const int64_t threads = at::get_num_threads();
  if (threads == 1 || count >= 2 * threads) {
    for_each_task(count, make, [&](State& state, int64_t i) {
      auto& [worker, running] = state;
      running.begin();
      worker.begin(tasks[i], query, token, head);
      for (int64_t part = tasks[i].parts.first; part < tasks[i].parts.last; ++part) {
        worker.compute(part);
        for (int64_t r = 0; r < worker.rows(); ++r) {
          const auto found = worker.result(r);
          running.add(r, found.top, found.sum, found.total);
        }
      }
      running.finish(tasks[i], results);
    });
    return;
  }
  Parts<W> parts(tasks, call.groups(), pitch);
  for_each_task(static_cast<int64_t>(parts.units().size()), make, [&](State& state, int64_t i) {
    const auto& unit = parts.units()[i];
    state.worker.begin(tasks[unit.task], query, token, head);
    state.worker.compute(unit.part);
    parts.keep(unit, state.worker);
  });
  for_each_task(
      count, [&] { return Running<W>(call, rows, pitch); },
      [&](Running<W>& running, int64_t i) {
        running.begin();
        parts.add_to(running, i);
        running.finish(tasks[i], results);
      });
}

}  // namespace isthmus::kernels::paged
