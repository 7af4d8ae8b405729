#include "memory/segments.h"

namespace isthmus::memory {
namespace {

uintptr_t end_of(const Segment& segment) { return segment.address + segment.bytes; }

bool continues(const Segment& first, const Segment& second) {
  return first.expandable >= 0 && first.expandable == second.expandable && first.pool == second.pool &&
         first.stream == second.stream && end_of(first) == second.address;
}

}  // namespace

void Segments::add(const Segment& segment) {
  auto it = by_address_.insert_or_assign(segment.address, segment).first;
  const auto next = std::next(it);
  if (next != by_address_.end() && continues(it->second, next->second)) {
    it->second.bytes += next->second.bytes;
    by_address_.erase(next);
  }
  if (it == by_address_.begin()) return;
  const auto previous = std::prev(it);
  if (!continues(previous->second, it->second)) return;
  previous->second.bytes += it->second.bytes;
  by_address_.erase(it);
}

void Segments::remove(const void* pointer, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(pointer), end = begin + bytes;
  auto it = by_address_.upper_bound(begin);
  if (it != by_address_.begin()) --it;
  while (it != by_address_.end() && it->first < end) {
    const Segment whole = it->second;
    if (end_of(whole) <= begin) {
      ++it;
      continue;
    }
    it = by_address_.erase(it);
    Segment rest = whole;
    if (whole.address < begin) {
      rest.bytes = begin - whole.address;
      by_address_.emplace(rest.address, rest);
    }
    if (end_of(whole) > end) {
      rest.address = end;
      rest.bytes = end_of(whole) - end;
      by_address_.emplace(rest.address, rest);
    }
  }
}

}  // namespace isthmus::memory
