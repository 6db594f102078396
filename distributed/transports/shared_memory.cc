#include "tessera/distributed/transports/shared_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "tessera/distributed/resolved_collective.h"
#include "tessera/tensor/check.h"

namespace tessera::distributed {
namespace {

using Clock = std::chrono::steady_clock;

// What the slots of a rank's segment may take together, as far as the limits of one slot allow.
constexpr std::size_t kSegmentBytes = std::size_t{8} << 20;
constexpr std::size_t kLeastSlotBytes = std::size_t{8} << 10;
constexpr std::size_t kMostSlotBytes = std::size_t{32} << 10;

std::size_t slot_bytes_for(std::size_t peers) {
  const std::size_t bytes = kSegmentBytes / peers / SharedChannel::kSlots;
  constexpr std::size_t kMultiple = 4096;
  return std::clamp(bytes / kMultiple * kMultiple, kLeastSlotBytes, kMostSlotBytes);
}

std::string key_of(const char* name, int rank) { return fmt::format("{}-{}", name, rank); }

// By place in `ranks`.
std::vector<std::string> values_of(const SharedMemory::Options& options, const char* name,
                                   const std::vector<int>& ranks) {
  std::vector<std::string> keys, values;
  for (int rank : ranks) keys.push_back(key_of(name, rank));
  const std::vector<std::string> absent = options.store->wait(keys, options.timeout);
  std::vector<int> missing;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (std::find(absent.begin(), absent.end(), keys[i]) != absent.end())
      missing.push_back(ranks[i]);
    else
      values.push_back(options.store->get(keys[i]).value_or(""));
  }
  if (missing.empty()) return values;
  CollectiveSite site;
  site.rank = options.rank;
  site.group = options.group;
  site.op = "connect";
  const std::string what = fmt::format(
      "group \"{}\": {} did not say within {:g} s whether memory can be shared", options.group,
      ranks_text(missing), std::chrono::duration<double>(options.timeout).count());
  throw CollectiveError(error_text("connect", what), site);
}

// The place of a rank among the neighbours of `of`, which is the number of its channel there.
int channel_of(int rank, int of, const std::vector<int>& neighbours_and_self) {
  int place = 0;
  for (int other : neighbours_and_self) place += other < rank && other != of;
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
  const std::vector<int> neighbours = find_neighbours(options);
  if (!neighbours.empty()) map_segments(options, neighbours);
}

std::vector<int> SharedMemory::find_neighbours(const Options& options) const {
  const std::string identity = host_identity();
  const std::string host = identity.empty() ? "" : identity + " " + options.node;
  options.store->set(key_of("host", options.rank), host);
  std::vector<int> others, neighbours;
  for (int rank = 0; rank < options.size; ++rank) {
    if (rank != options.rank) others.push_back(rank);
  }
  const std::vector<std::string> hosts = values_of(options, "host", others);
  for (std::size_t i = 0; i < others.size(); ++i) {
    if (!host.empty() && hosts[i] == host) neighbours.push_back(others[i]);
  }
  return neighbours;
}

void SharedMemory::map_segments(const Options& options, const std::vector<int>& neighbours) {
  try {
    own_ = std::make_unique<SharedSegment>(SharedSegment::create(
        static_cast<int>(neighbours.size()), slot_bytes_for(neighbours.size())));
  } catch (const Error& error) {
    warn(options, error);
  }
  options.store->set(key_of("memory", options.rank), own_ ? own_->address() : "");
  const std::vector<std::string> addresses = values_of(options, "memory", neighbours);
  std::string mapped = " ";  // " 0 2 "
  for (std::size_t i = 0; i < neighbours.size(); ++i) {
    if (!own_ || addresses[i].empty()) continue;
    try {
      const int peer = neighbours[i];
      segments_[static_cast<std::size_t>(peer)] =
          std::make_unique<SharedSegment>(SharedSegment::open(addresses[i]));
      mapped += std::to_string(peer) + " ";
    } catch (const Error& error) {
      warn(options, error);
    }
  }
  options.store->set(key_of("mapped", options.rank), mapped);
  const std::vector<std::string> theirs = values_of(options, "mapped", neighbours);
  if (own_) own_->close();
  std::vector<int> all = neighbours;
  all.push_back(options.rank);
  for (std::size_t i = 0; i < neighbours.size(); ++i) {
    const int peer = neighbours[i];
    const SharedSegment* segment = segments_[static_cast<std::size_t>(peer)].get();
    if (segment == nullptr || theirs[i].find(fmt::format(" {} ", options.rank)) == theirs[i].npos)
      continue;
    links_[static_cast<std::size_t>(peer)] = std::make_unique<SharedLink>(
        SharedLink::Place{segment, channel_of(options.rank, peer, all)},
        SharedLink::Place{own_.get(), channel_of(peer, options.rank, all)});
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
