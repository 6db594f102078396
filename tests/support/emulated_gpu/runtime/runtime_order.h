#pragma once

/// What work runs behind, as far as streams, events and hosts that wait have ordered it: for each
/// stream the last ticket. Private to the emulated runtime.

#include <algorithm>
#include <cstdint>
#include <map>

namespace tessera::emulated {

class Order {
 public:
  bool has(std::uint64_t stream, std::uint64_t ticket) const {
    const auto found = last_.find(stream);
    return found != last_.end() && found->second >= ticket;
  }
  void add(std::uint64_t stream, std::uint64_t ticket) {
    std::uint64_t& last = last_[stream];
    last = std::max(last, ticket);
  }
  void add(const Order& other) {
    for (const auto& [stream, ticket] : other.last_) add(stream, ticket);
  }

 private:
  std::map<std::uint64_t, std::uint64_t> last_;
};

}  // namespace tessera::emulated
