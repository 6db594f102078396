#include "tessera/fsdp/comm_context.h"

#include <exception>
#include <utility>

namespace tessera::fsdp {

CommContext::CommContext(Device device)
    : device_(device),
      gather_(Stream::create(device, StreamKind::kQueued, "gather")),
      reduce_(Stream::create(device, StreamKind::kQueued, "reduce")) {}

CommContext::~CommContext() { abandon(); }

void CommContext::abandon() noexcept {
  for (const Stream& stream : {compute(), gather_, reduce_}) {
    try {
      stream.record("abandoned").synchronize();
    } catch (const std::exception&) {
      // It was reported where it happened.
    }
  }
  parked_.clear();
  held_.clear();
}

void CommContext::park(Block block) {
  if (block.empty()) return;
  parked_.push_back({.released = compute().record("released"), .block = std::move(block)});
}

void CommContext::make_room(int live) {
  while (!parked_.empty() && static_cast<int>(parked_.size()) + live > kGatherDepth) {
    gather_.wait(parked_.front().released);
    parked_.pop_front();
  }
}

void CommContext::unpark_all() {
  while (!parked_.empty()) {
    gather_.wait(parked_.front().released);
    parked_.pop_front();
  }
}

void CommContext::hold(Event done, std::vector<Block> slots) {
  held_.push_back({.done = std::move(done), .slots = std::move(slots)});
}

void CommContext::finish_reduces(int left) {
  while (static_cast<int>(held_.size()) > left) {
    compute().wait(held_.front().done);
    held_.pop_front();
  }
}

}  // namespace tessera::fsdp
