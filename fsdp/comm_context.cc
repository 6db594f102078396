#include "tessera/fsdp/comm_context.h"

#include <exception>
#include <utility>

namespace tessera::fsdp {

CommContext::CommContext(Device device)
    : device_(device),
      gather_(Stream::create(device, StreamKind::kQueued, "gather")),
      reduce_(Stream::create(device, StreamKind::kQueued, "reduce")) {}

CommContext::~CommContext() { abandon(); }

namespace {

// What fails on a stream is reported where it happens; here only its end matters.
void wait_quietly(const Event& event) noexcept {
  try {
    event.synchronize();
  } catch (const std::exception&) {
  }
}

}  // namespace

void CommContext::abandon() noexcept {
  for (const Parked& parked : parked_) wait_quietly(parked.released);
  for (const Held& held : held_) wait_quietly(held.done);
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

void CommContext::hold(Event done, std::vector<Block> blocks) {
  held_.push_back({.done = std::move(done), .blocks = std::move(blocks)});
}

void CommContext::finish_reduces(int left) {
  while (static_cast<int>(held_.size()) > left) {
    compute().wait(held_.front().done);
    held_.pop_front();
  }
}

}  // namespace tessera::fsdp
