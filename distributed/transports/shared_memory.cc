#include "tessera/distributed/transports/shared_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <utility>

#include "tessera/distributed/resolved_collective.h"
#include "tessera/distributed/store/gather_values.h"
#include "tessera/distributed/transports/connect_error.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/random.h"

namespace tessera::distributed {
namespace {

using Clock = std::chrono::steady_clock;

// What the slots of a rank's segment may take together, as far as the limits of one slot allow.
constexpr std::size_t kSegmentBytes = std::size_t{8} << 20;
constexpr std::size_t kLeastSlotBytes = std::size_t{8} << 10;
constexpr std::size_t kMostSlotBytes = std::size_t{32} << 10;

constexpr const char* kAll = "all";

std::size_t slot_bytes_for(std::size_t peers) {
  const std::size_t bytes = kSegmentBytes / peers / SharedChannel::kSlots;
  constexpr std::size_t kMultiple = 4096;
  return std::clamp(bytes / kMultiple * kMultiple, kLeastSlotBytes, kMostSlotBytes);
}

// What each of the ranks says. By place in `ranks`.
std::vector<std::string> gather(const SharedMemory::Options& options, const char* name,
                                const std::vector<int>& ranks, const std::string& value) {
  GatheredValues gathered = gather_values(*options.store, {.name = name,
                                                           .rank = options.rank,
                                                           .ranks = ranks,
                                                           .value = value,
                                                           .timeout = options.timeout,
                                                           .check = options.check});
  if (gathered.is_taken)
    throw_cannot_connect<CollectiveError>(
        options.rank, options.group,
        fmt::format("another rank {} has joined already", options.rank));
  if (!gathered.missing.empty())
    throw_cannot_connect<CollectiveError>(
        options.rank, options.group,
        fmt::format("{} did not say within {:g} s whether memory can be shared",
                    ranks_text(gathered.missing),
                    std::chrono::duration<double>(options.timeout).count()));
  return std::move(gathered.values);
}

// The number of the channel of `rank` in the segment of `of`: its place among the others that share
// memory.
int channel_of(int rank, int of, const std::vector<int>& sharing) {
  int place = 0;
  for (int other : sharing) place += other < rank && other != of;
  return place;
}

void warn(const SharedMemory::Options& options, const Error& error) {
  fmt::print(stderr,
             "warning: {}; messages between rank {} and others of its host go by TCP, which is "
             "slower\n",
             error.what(), options.rank);
}

}  // namespace

SharedMemory::SharedMemory(const Options& options)
    : segments_(static_cast<std::size_t>(options.size)),
      links_(static_cast<std::size_t>(options.size)) {
  const std::vector<int> sharing = find_ranks_of_host(options);
  if (sharing.size() > 1) map_segments(options, sharing);
}

std::vector<int> SharedMemory::find_ranks_of_host(const Options& options) const {
  const std::string identity = host_identity();
  // Short, since all ranks' values together are one value of the store.
  const std::string host =
      identity.empty()
          ? ""
          : fmt::format("{:016x}", random::named_key(0, identity + " " + options.node).value);
  std::vector<int> all(static_cast<std::size_t>(options.size)), sharing;
  std::iota(all.begin(), all.end(), 0);
  const std::vector<std::string> hosts = gather(options, "host", all, host);
  for (int rank : all) {
    if (rank == options.rank || (!host.empty() && hosts[static_cast<std::size_t>(rank)] == host))
      sharing.push_back(rank);
  }
  return sharing;
}

void SharedMemory::map_segments(const Options& options, const std::vector<int>& sharing) {
  const std::size_t peers = sharing.size() - 1;
  try {
    own_ = std::make_unique<SharedSegment>(
        SharedSegment::create(static_cast<int>(peers), slot_bytes_for(peers)));
  } catch (const Error& error) {
    warn(options, error);
  }
  const std::vector<std::string> addresses =
      gather(options, "memory", sharing, own_ ? own_->address() : "");
  std::string unmapped = " ";  // " 0 2 ", or kAll
  std::size_t count = 0;
  for (std::size_t i = 0; i < sharing.size(); ++i) {
    const int peer = sharing[i];
    if (peer == options.rank) continue;
    try {
      if (own_ && !addresses[i].empty())
        segments_[static_cast<std::size_t>(peer)] =
            std::make_unique<SharedSegment>(SharedSegment::open(addresses[i]));
    } catch (const Error& error) {
      warn(options, error);
    }
    if (segments_[static_cast<std::size_t>(peer)] != nullptr) continue;
    unmapped += std::to_string(peer) + " ";
    ++count;
  }
  // The usual reason holds for all of them, and a list of all would be long in a large world.
  if (count == peers) unmapped = kAll;
  const std::vector<std::string> theirs = gather(options, "unmapped", sharing, unmapped);
  if (own_) own_->close();
  for (std::size_t i = 0; i < sharing.size(); ++i) {
    const int peer = sharing[i];
    const SharedSegment* segment = segments_[static_cast<std::size_t>(peer)].get();
    const bool is_mapped =
        theirs[i] != kAll && theirs[i].find(fmt::format(" {} ", options.rank)) == std::string::npos;
    if (segment == nullptr || !is_mapped) continue;
    links_[static_cast<std::size_t>(peer)] = std::make_unique<SharedLink>(
        SharedLink::Place{segment, channel_of(options.rank, peer, sharing)},
        SharedLink::Place{own_.get(), channel_of(peer, options.rank, sharing)});
  }
}

void SharedMemory::wake() const noexcept {
  if (own_) own_->bell().ring();
}

// The messages of one plan.
class SharedMemory::Exchange {
 public:
  Exchange(const SharedMemory& memory, const ExchangePlan& plan, std::uint64_t group,
           bool all_take_part)
      : all_take_part_(all_take_part) {
    add(memory, plan.sends, group, sends_);
    add(memory, plan.receives, group, receives_);
  }
  ~Exchange() {
    for (Item& item : sends_) item.link->forget(item.message);
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // A chunk of each message, where that is possible. True if something was moved.
  bool advance() {
    bool has_moved = false;
    for (Item& item : sends_) {
      if (item.message.done || !item.link->send(item.message)) continue;
      item.link->notify();
      has_moved = true;
    }
    for (Item& item : receives_) {
      if (item.message.done || !item.link->receive(item.message)) continue;
      item.link->notify();
      has_moved = true;
      if (all_take_part_) expect_sends_to(item.peer);
    }
    return has_moved;
  }

  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (const std::vector<Item>* items : {&sends_, &receives_}) {
      for (const Item& item : *items) {
        if (!item.message.done) ranks.push_back(item.peer);
      }
    }
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    return ranks;
  }

 private:
  struct Item {
    int peer = 0;
    SharedLink* link = nullptr;
    SharedMessage message{};
  };

  // Transfers with one peer under one key are the parts of one message.
  static void add(const SharedMemory& memory, const std::vector<Transfer>& transfers,
                  std::uint64_t group, std::vector<Item>& items) {
    items.reserve(transfers.size());  // messages stay at their addresses
    for (const Transfer& transfer : transfers) {
      if (!memory.reaches(transfer.peer)) continue;
      const MessageKey key{.number = transfer.number, .terms = transfer.terms ^ group};
      auto item = std::find_if(items.rbegin(), items.rend(), [&](const Item& other) {
        return other.peer == transfer.peer && other.message.key == key;
      });
      if (item == items.rend()) {
        items.push_back({.peer = transfer.peer,
                         .link = memory.links_[static_cast<std::size_t>(transfer.peer)].get()});
        item = items.rbegin();
        item->message.key = key;
      }
      item->message.add(transfer.data, transfer.bytes);
    }
  }

  void expect_sends_to(int peer) {
    for (Item& item : sends_) {
      if (item.peer == peer) item.message.expected = true;
    }
  }

  bool all_take_part_;
  std::vector<Item> sends_;
  std::vector<Item> receives_;
};

std::vector<int> SharedMemory::exchange(const ExchangePlan& plan, std::uint64_t group,
                                        bool all_take_part, const Limits& limits) {
  if (!own_) return {};
  Exchange exchange(*this, plan, group, all_take_part);
  // What a rank has sent before it left, or before the deadline, is still received.
  for (bool is_over = false;;) {
    const std::uint32_t seen = own_->bell().count();
    if (exchange.advance()) continue;
    std::vector<int> missing = exchange.missing();
    if (missing.empty() || is_over) return missing;
    is_over = limits.is_over(missing);
    if (is_over) continue;
    own_->bell().wait(seen, std::max(limits.deadline - Clock::now(), Clock::duration::zero()));
  }
}

}  // namespace tessera::distributed
