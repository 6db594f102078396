#include "tessera/tensor/memory/free_ranges.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace tessera {

FreeRanges::Range FreeRanges::erase(ByAddress::iterator at) noexcept {
  const Range range = {
      .begin = at->first, .bytes = at->second.bytes, .returned_at = at->second.returned_at};
  by_size_.erase({range.bytes, range.begin});
  by_address_.erase(at);
  return range;
}

// Moves nodes of the containers and allocates none.
void FreeRanges::change(ByAddress::iterator at, char* begin, std::size_t bytes) noexcept {
  auto size = by_size_.extract({at->second.bytes, at->first});
  size.value() = {bytes, begin};
  by_size_.insert(std::move(size));
  at->second.bytes = bytes;
  auto node = by_address_.extract(at);
  node.key() = begin;
  by_address_.insert(std::move(node));
}

void FreeRanges::add(Range range) {
  if (range.bytes == 0) return;
  const auto next = by_address_.lower_bound(range.begin);
  const bool joins_next = next != by_address_.end() && next->first == range.begin + range.bytes;
  const auto before = next == by_address_.begin() ? by_address_.end() : std::prev(next);
  const bool joins_before =
      before != by_address_.end() && before->first + before->second.bytes == range.begin;
  if (!joins_next && !joins_before) return insert(range);
  if (joins_next) {
    range.bytes += next->second.bytes;
    range.returned_at = std::max(range.returned_at, next->second.returned_at);
    next->second.returned_at = range.returned_at;
    if (!joins_before) return change(next, range.begin, range.bytes);
    erase(next);
  }
  before->second.returned_at = std::max(range.returned_at, before->second.returned_at);
  change(before, before->first, before->second.bytes + range.bytes);
}

void FreeRanges::insert(const Range& range) {
  const auto at =
      by_address_.insert({range.begin, {.bytes = range.bytes, .returned_at = range.returned_at}});
  try {
    by_size_.insert({range.bytes, range.begin});
  } catch (...) {
    by_address_.erase(at.first);
    throw;
  }
}

void* FreeRanges::take(std::size_t bytes) noexcept {
  const auto smallest = by_size_.lower_bound({bytes, nullptr});
  if (smallest == by_size_.end()) return nullptr;
  const auto at = by_address_.find(smallest->second);
  char* const begin = at->first;
  const std::size_t rest = at->second.bytes - bytes;
  if (rest == 0) {
    erase(at);
  } else {
    change(at, begin, rest);
  }
  return begin + rest;
}

FreeRanges::Range FreeRanges::remove_at(char* begin) noexcept {
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
    char* const begin = at->first;
    const std::size_t all = at->second.bytes, missing = std::min(all, bytes - removed);
    const auto address = reinterpret_cast<std::uintptr_t>(begin);
    const std::size_t part = std::min(all, (address + missing + unit - 1) / unit * unit - address);
    if (part == all) {
      erase(at);
    } else {
      change(at, begin + part, all - part);
    }
    use(begin, part);
    removed += part;
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
