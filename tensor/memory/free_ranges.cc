#include "tessera/tensor/memory/free_ranges.h"

#include <algorithm>
#include <iterator>

namespace tessera {

FreeRanges::Range FreeRanges::erase(ByAddress::iterator at) {
  const Range range = {
      .begin = at->first, .bytes = at->second.bytes, .returned_at = at->second.returned_at};
  by_size_.erase({range.bytes, range.begin});
  by_address_.erase(at);
  return range;
}

void FreeRanges::add(Range range) {
  if (range.bytes == 0) return;
  const auto join = [&](const Range& with) {
    range.begin = std::min(range.begin, with.begin);
    range.bytes += with.bytes;
    range.returned_at = std::max(range.returned_at, with.returned_at);
  };
  auto next = by_address_.lower_bound(range.begin);
  if (next != by_address_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second.bytes == range.begin) join(erase(before));
  }
  next = by_address_.lower_bound(range.begin);
  if (next != by_address_.end() && next->first == range.begin + range.bytes) join(erase(next));
  by_address_.insert({range.begin, {.bytes = range.bytes, .returned_at = range.returned_at}});
  by_size_.insert({range.bytes, range.begin});
}

void* FreeRanges::take(std::size_t bytes) {
  const auto smallest = by_size_.lower_bound({bytes, nullptr});
  if (smallest == by_size_.end()) return nullptr;
  Range range = erase(by_address_.find(smallest->second));
  range.bytes -= bytes;
  add(range);
  return range.begin + range.bytes;
}

FreeRanges::Range FreeRanges::remove_at(char* begin) {
  const auto at = by_address_.find(begin);
  return at == by_address_.end() ? Range{.begin = begin} : erase(at);
}

std::size_t FreeRanges::remove(std::size_t bytes, std::uint64_t done, std::size_t unit,
                               const std::function<void(char*, std::size_t)>& use) {
  std::size_t removed = 0;
  auto next = by_size_.end();
  while (removed < bytes && next != by_size_.begin()) {
    const auto largest = std::prev(next);
    const auto at = by_address_.find(largest->second);
    if (at->second.returned_at > done) {
      next = largest;
      continue;
    }
    const Range range = erase(at);
    const auto begin = reinterpret_cast<std::uintptr_t>(range.begin);
    const std::size_t missing = std::min(range.bytes, bytes - removed);
    const std::size_t part =
        std::min(range.bytes, (begin + missing + unit - 1) / unit * unit - begin);
    use(range.begin, part);
    removed += part;
    if (part < range.bytes) add({range.begin + part, range.bytes - part, range.returned_at});
  }
  return removed;
}

void FreeRanges::move_to(FreeRanges& other) {
  for (const auto& [begin, rest] : by_address_)
    other.add({.begin = begin, .bytes = rest.bytes, .returned_at = 0});
  by_address_.clear();
  by_size_.clear();
}

}  // namespace tessera
