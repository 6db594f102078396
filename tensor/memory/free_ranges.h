#pragma once

/// Free ranges of addresses, of which adjacent ones become one. Lies below the pools of streams. Not
/// thread-safe.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <utility>

namespace tessera {

/// Owns no memory: it only remembers what is free.
class FreeRanges {
 public:
  struct Range {
    char* begin = nullptr;
    std::size_t bytes = 0;
    std::uint64_t returned_at = 0;  ///< of the part that was returned last
  };

  /// `range` overlaps no other one. Throws std::bad_alloc, and changes nothing then. take(), remove_at() and
  /// remove() allocate nothing.
  void add(Range range);
  /// The last `bytes` (above 0) of the smallest range that has so many, of equal ones that with the lowest
  /// address; null if none has.
  void* take(std::size_t bytes) noexcept;
  /// Removes the range that begins at `begin`; one of 0 bytes if there is none.
  Range remove_at(char* begin) noexcept;
  /// Removes ranges that were returned at `done` or before, the largest first, until they have `bytes` in
  /// all, and calls `use` for each. Of the last one, only as much from its begin as is missing, and up to the next
  /// address that is a multiple of `unit`. Returns the bytes removed.
  std::size_t remove(std::size_t bytes, std::uint64_t done, std::size_t unit,
                     const std::function<void(char*, std::size_t)>& use);
  /// Moves all ranges to `other`, as returned at 0. Throws as add().
  void move_to(FreeRanges& other);

 private:
  struct Rest {
    std::size_t bytes;
    std::uint64_t returned_at;
  };
  using ByAddress = std::map<char*, Rest>;
  Range erase(ByAddress::iterator at) noexcept;
  void change(ByAddress::iterator at, char* begin, std::size_t bytes) noexcept;
  void insert(const Range& range);

  ByAddress by_address_;
  std::set<std::pair<std::size_t, char*>> by_size_;
};

}  // namespace tessera
