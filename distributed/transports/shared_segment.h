#pragma once

/// Memory in which a rank receives the messages of the other ranks of its host. Each rank has one
/// segment: a bell, and a channel for each peer. Nothing in it is a lock, so a rank that is killed
/// at any point blocks no other rank. It has no name in a file system: it is gone when the last process
/// that mapped it has ended, in whatever way.

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace tessera::distributed {

/// Wakes the threads of the rank whose segment it is in. All zeros is a bell that has not rung.
class SharedBell {
 public:
  std::uint32_t count() const { return count_.load(std::memory_order_acquire); }
  void ring() noexcept;
  /// Returns when the bell has rung since count() was `seen`, or after `limit`: true if it has
  /// rung. Polls for some microseconds before it sleeps.
  bool wait(std::uint32_t seen, std::chrono::nanoseconds limit) noexcept;

 private:
  std::atomic<std::uint32_t> count_;
  std::atomic<std::uint32_t> has_sleepers_;
};

/// What two ranks' messages pair up by.
struct MessageKey {
  std::uint64_t number = 0;
  std::uint64_t terms = 0;
  bool operator==(const MessageKey&) const = default;
};

/// One direction between two ranks: entries in order, and slots, which are used in any order. One
/// thread at a time writes, and one reads. All zeros is an empty channel.
class SharedChannel {
 public:
  static constexpr std::uint32_t kSlots = 16;
  static constexpr std::uint32_t kEntries = 64;

  enum class Kind : std::uint32_t {
    kChunk,   ///< `bytes` of a message lie in `slot`
    kOffer,   ///< a message waits until it is wanted
    kWanted,  ///< the other direction's message was offered, and has a receiver
  };
  struct Entry {
    MessageKey key;
    Kind kind = Kind::kChunk;
    std::uint32_t slot = 0;
    std::uint32_t bytes = 0;
  };

  // For the writer.
  std::uint32_t room() const {
    return kEntries -
           (written_.load(std::memory_order_relaxed) - read_.load(std::memory_order_acquire));
  }
  void write(const Entry& entry);  ///< if there is room
  /// The slots that were emptied since the last call, as bits.
  std::uint32_t take_emptied() {
    if (emptied_.load(std::memory_order_relaxed) == 0) return 0;
    return emptied_.exchange(0, std::memory_order_acquire);
  }

  // For the reader.
  std::uint32_t unread() const {
    return written_.load(std::memory_order_acquire) - read_.load(std::memory_order_relaxed);
  }
  Entry read();  ///< if there is one
  void empty(std::uint32_t slot) { emptied_.fetch_or(1U << slot, std::memory_order_release); }

 private:
  alignas(64) std::atomic<std::uint32_t> written_;  // entries ever
  alignas(64) std::atomic<std::uint32_t> read_;
  alignas(64) std::atomic<std::uint32_t> emptied_;
  alignas(64) std::array<Entry, kEntries> entries_;
};

/// A mapped segment. Movable; the mapping ends with the object.
class SharedSegment {
 public:
  /// A new one, for `channels` peers, whose slots have `slot_bytes` each. Pages are taken when they
  /// are first written. Throws Error with the system's reason and the remedy.
  static SharedSegment create(int channels, std::size_t slot_bytes);
  /// One that another process of this host has created and not closed. Throws Error when this
  /// process may not, or cannot, open it.
  static SharedSegment open(const std::string& address);
  ~SharedSegment();
  SharedSegment(SharedSegment&& other) noexcept;
  SharedSegment& operator=(SharedSegment&&) = delete;

  /// For open(), while this process keeps the segment open.
  std::string address() const;
  /// From now on no other process can open it.
  void close() noexcept;

  SharedBell& bell() const;
  SharedChannel& channel(int index) const;
  std::byte* slot(int channel, std::uint32_t index) const;
  std::size_t slot_bytes() const { return slot_bytes_; }

 private:
  SharedSegment(int fd, std::string name, int channels, std::size_t slot_bytes);

  int fd_;
  std::string name_;  // which other processes find at the descriptor
  int channels_;
  std::size_t slot_bytes_;
  std::byte* memory_ = nullptr;
};

/// Equal for processes that may open each other's segments: they run on one kernel, and have the
/// same process numbers. Empty where this process cannot tell.
std::string host_identity();

}  // namespace tessera::distributed
