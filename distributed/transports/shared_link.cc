#include "tessera/distributed/transports/shared_link.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "tessera/tensor/check.h"

namespace tessera::distributed {
namespace {

using Entry = SharedChannel::Entry;
using Kind = SharedChannel::Kind;

// Each slot's chunk finds room whatever else was written.
bool has_room_beside_chunks(const SharedChannel& channel) {
  return channel.room() > SharedChannel::kSlots;
}

bool is_offer_of(const SharedMessage& message, const Entry& entry) {
  return entry.kind == Kind::kOffer && entry.key == message.key;
}

}  // namespace

template <class Copy>
void SharedMessage::next(std::size_t bytes, Copy copy) {
  left -= bytes;
  for (std::size_t done = 0; done < bytes;) {
    const std::span<std::byte> rest = parts[part_].subspan(offset_);
    const std::size_t count = std::min(rest.size(), bytes - done);
    if (count > 0) copy(rest.data(), done, count);
    done += count;
    offset_ += count;
    if (offset_ < parts[part_].size()) continue;
    ++part_;
    offset_ = 0;
  }
}

void SharedLink::read_entries() {
  bool has_others = false;
  for (std::uint32_t unread = in().unread(); unread > 0; --unread) {
    const Entry entry = in().read();
    has_others = has_others || entry.kind != Kind::kChunk;
    if (entry.kind != Kind::kWanted) {
      arrived_.push_back(entry);
      continue;
    }
    const auto wanted = std::find_if(offers_.begin(), offers_.end(),
                                     [&](const auto* offer) { return offer->key == entry.key; });
    if (wanted == offers_.end()) continue;  // its sender has failed
    (*wanted)->taken_ = true;
    offers_.erase(wanted);
  }
  if (has_others) notify();  // it may wait for room for them
}

void SharedLink::take_back_slots() {
  for (std::uint32_t bits = out().take_emptied(); bits != 0; bits &= bits - 1) {
    const int index = std::countr_zero(bits);
    Slot& slot = slots_[static_cast<std::size_t>(index)];
    free_slots_ |= 1U << index;
    if (slot.is_unclaimed) --unclaimed_;
    if (slot.message != nullptr) slot.message->taken_ = true;
    slot = {};
  }
}

bool SharedLink::send_offer(SharedMessage& message) {
  if (message.offered_ || !has_room_beside_chunks(out())) return false;
  out().write({.key = message.key, .kind = Kind::kOffer});
  offers_.push_back(&message);
  message.offered_ = true;
  return true;
}

bool SharedLink::answer_offer(SharedMessage& message) {
  const auto offer = std::find_if(arrived_.begin(), arrived_.end(),
                                  [&](const Entry& entry) { return is_offer_of(message, entry); });
  if (offer == arrived_.end() || !has_room_beside_chunks(out())) return false;
  out().write({.key = message.key, .kind = Kind::kWanted});
  arrived_.erase(offer);
  return true;
}

// kSlots: none.
std::uint32_t SharedLink::claim_slot(SharedMessage& message) {
  if (free_slots_ == 0) return SharedChannel::kSlots;
  const bool is_claimed = message.taken_ || message.expected;
  const auto index = static_cast<std::uint32_t>(std::countr_zero(free_slots_));
  free_slots_ &= ~(1U << index);
  slots_[index] = {.is_unclaimed = !is_claimed, .message = is_claimed ? nullptr : &message};
  if (!is_claimed) ++unclaimed_;
  message.begun = true;
  return index;
}

bool SharedLink::send(SharedMessage& message) {
  Entry entry{.key = message.key, .kind = Kind::kChunk};
  {
    const std::lock_guard lock(mutex_);
    read_entries();
    take_back_slots();
    const bool is_claimed = message.taken_ || message.expected;
    message.done = message.begun && message.left == 0 && is_claimed;
    if (message.begun && (message.left == 0 || !is_claimed)) return false;
    if (!is_claimed && (message.offered_ || unclaimed_ >= kMostUnclaimed))
      return send_offer(message);
    entry.slot = claim_slot(message);
    if (entry.slot == SharedChannel::kSlots) return false;
  }
  const std::size_t bytes = std::min(message.left, to_.segment->slot_bytes());
  std::byte* slot = to_.segment->slot(to_.channel, entry.slot);
  message.next(bytes, [slot](const std::byte* data, std::size_t at, std::size_t count) {
    std::memcpy(slot + at, data, count);
  });
  entry.bytes = static_cast<std::uint32_t>(bytes);
  const std::lock_guard lock(mutex_);
  out().write(entry);
  message.done = message.left == 0 && (message.taken_ || message.expected);
  return true;
}

bool SharedLink::receive(SharedMessage& message) {
  Entry chunk;
  {
    const std::lock_guard lock(mutex_);
    read_entries();
    const auto found = std::find_if(arrived_.begin(), arrived_.end(), [&](const Entry& entry) {
      return entry.kind == Kind::kChunk && entry.key == message.key;
    });
    if (found == arrived_.end()) return !message.begun && answer_offer(message);
    chunk = *found;
    arrived_.erase(found);
    // It was offered, and then sent because our messages showed that we take part.
    if (!message.begun)
      std::erase_if(arrived_, [&](const Entry& entry) { return is_offer_of(message, entry); });
  }
  TESSERA_CHECK_AS(StateError, chunk.bytes <= message.left, "receive",
                   "a chunk of {} bytes has arrived for a message that lacks {}", chunk.bytes,
                   message.left);
  const std::byte* slot = from_.segment->slot(from_.channel, chunk.slot);
  message.next(chunk.bytes, [slot](std::byte* data, std::size_t at, std::size_t count) {
    std::memcpy(data, slot + at, count);
  });
  in().empty(chunk.slot);
  message.begun = true;
  message.done = message.left == 0;
  return true;
}

void SharedLink::forget(SharedMessage& message) noexcept {
  const std::lock_guard lock(mutex_);
  for (Slot& slot : slots_) {
    if (slot.message == &message) slot.message = nullptr;
  }
  std::erase(offers_, &message);
}

}  // namespace tessera::distributed
