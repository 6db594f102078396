#pragma once

/// One rank's end of the two channels between it and a peer of its host.
///
/// A message goes through the slots of a channel in chunks, which the sending thread copies in and
/// the receiving thread copies out, at the same time. The first chunk is sent before the peer is
/// known to be there; the others when it has taken the first one. So of a message without a
/// receiver there is at most one chunk in the channel. If too many chunks wait for a receiver,
/// further messages are only offered, and are sent when the peer wants them: whatever the order in
/// which the threads of two ranks send and receive, some slots are left for a message that both
/// want.

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "tessera/distributed/transports/shared_segment.h"

namespace tessera::distributed {

/// A message, and how far it is. Owned and driven by one thread; it stays at its address.
struct SharedMessage {
  MessageKey key{};
  std::vector<std::span<std::byte>> parts{};  ///< one after another
  std::size_t left = 0;                       ///< bytes that are not sent or received yet
  bool begun = false;                         ///< a chunk was sent or received
  bool done = false;
  /// Of a message that is sent: the peer takes part in the collective, as its messages show.
  bool expected = false;

  void add(std::byte* data, std::size_t bytes) {
    parts.emplace_back(data, bytes);
    left += bytes;
  }

 private:
  friend class SharedLink;
  /// The next `bytes` of the parts, to or from `chunk`.
  template <class Copy>
  void next(std::size_t bytes, Copy copy);

  std::size_t part_ = 0;
  std::size_t offset_ = 0;
  // Of a message that is sent; guarded by the link's mutex.
  bool taken_ = false;  // the peer has taken the first chunk, or the offer
  bool offered_ = false;
};

/// Thread-safe.
class SharedLink {
 public:
  /// This rank's channel `to` the peer is in the peer's segment, the one `from` it in its own. The
  /// segments outlive the link.
  struct Place {
    const SharedSegment* segment = nullptr;
    int channel = 0;
  };
  SharedLink(Place to, Place from) : to_(to), from_(from) {}
  SharedLink(const SharedLink&) = delete;
  SharedLink& operator=(const SharedLink&) = delete;

  /// Sends or receives the next chunk, if that is possible without waiting. A message that is sent
  /// is done when all of it lies in the channel, and the peer is known to receive it. Return true
  /// if something was done, which the peer does not know until notify().
  bool send(SharedMessage& message);
  bool receive(SharedMessage& message);
  /// Rings the peer's bell.
  void notify() const noexcept { to_.segment->bell().ring(); }
  /// The message ends, done or not.
  void forget(SharedMessage& message) noexcept;

 private:
  // Lock held, in all of these.
  void read_entries();
  void take_back_slots();
  bool send_offer(SharedMessage& message);
  bool answer_offer(SharedMessage& message);
  std::uint32_t claim_slot(SharedMessage& message);

  SharedChannel& out() const { return to_.segment->channel(to_.channel); }
  SharedChannel& in() const { return from_.segment->channel(from_.channel); }

  // Chunks that no receiver is known for.
  static constexpr std::uint32_t kMostUnclaimed = SharedChannel::kSlots / 2;

  struct Slot {
    bool is_unclaimed = false;
    SharedMessage* message = nullptr;  // that waits for its first chunk to be taken; may be null
  };

  const Place to_;
  const Place from_;
  std::mutex mutex_;
  std::uint32_t free_slots_ = (1U << SharedChannel::kSlots) - 1;  // bits; of the channel `to`
  std::array<Slot, SharedChannel::kSlots> slots_{};
  std::uint32_t unclaimed_ = 0;
  std::vector<SharedMessage*> offers_;         // sent, and not yet wanted
  std::vector<SharedChannel::Entry> arrived_;  // chunks and offers that no thread has taken yet
};

}  // namespace tessera::distributed
