#include "tessera/fsdp/runtime/comm_context.h"

#include <algorithm>
#include <exception>
#include <utility>

namespace tessera::fsdp {

CommContext::CommContext(Device device)
    : device_(device),
      gather_(DeviceStream::create(device, StreamKind::kQueued, "gather")),
      reduce_(DeviceStream::create(device, StreamKind::kQueued, "reduce")) {}

CommContext::~CommContext() { abandon(); }

const DeviceStream& CommContext::all_reduce() {
  if (!all_reduce_.defined())
    all_reduce_ = DeviceStream::create(device_, StreamKind::kQueued, "all_reduce");
  return all_reduce_;
}

namespace {

// An error on a stream is reported elsewhere; only the end of the work matters here.
void wait_quietly(const DeviceEvent& event) noexcept {
  try {
    event.synchronize();
  } catch (const std::exception&) {
  }
}

}  // namespace

void CommContext::abandon() noexcept {
  for (const Parked& parked : parked_) wait_quietly(parked.released);
  // Waits for whole streams, because work that failed while it was issued is in none of the lists.
  // It also clears a stream's error: until the host has seen it, the stream skips all work.
  for (const DeviceStream* stream : {&gather_, &reduce_, &all_reduce_}) {
    try {
      if (stream->defined()) stream->synchronize();
    } catch (const std::exception&) {
      // Reported elsewhere.
    }
  }
  parked_.clear();
  slots_.clear();
  results_.clear();
}

void CommContext::finish_quietly(const DeviceEvent& event) const noexcept {
  try {
    compute().wait(event);
  } catch (const std::exception&) {
    // An inline stream throws the event's error here.
  }
}

void CommContext::wait_for_compute_quietly() const noexcept {
  try {
    gather_.wait(compute().record("released"));
  } catch (const std::exception&) {
    // The stream's own error.
  }
}

void CommContext::park(MemoryBlock block) {
  if (block.empty()) return;
  parked_.push_back({.released = compute().record("released"), .block = std::move(block)});
}

void CommContext::make_room(const GatherRoom& room) {
  while (!parked_.empty() && static_cast<int>(parked_.size()) + room.live > room.depth) {
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

void CommContext::hold_slots(DeviceEvent done, std::vector<MemoryBlock> slots) {
  slots_.push_back({.done = std::move(done), .blocks = std::move(slots)});
}

void CommContext::hold_results(DeviceEvent done, std::vector<MemoryBlock> results) {
  results_.push_back({.done = std::move(done), .blocks = std::move(results)});
}

void CommContext::finish(std::deque<Held>& held, int left) const {
  while (static_cast<int>(held.size()) > left) {
    compute().wait(held.front().done);
    held.pop_front();
  }
}

void CommContext::finish_reduces(int left) {
  finish(slots_, left);
  finish(results_, std::max(1, left));
}

void CommContext::finish_all_reduces() {
  finish(slots_, 0);
  finish(results_, 0);
}

}  // namespace tessera::fsdp
