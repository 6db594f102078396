#include "tessera/distributed/work.h"

#include <thread>
#include <utility>

#include "tessera/distributed/process_group.h"
#include "tessera/tensor/check.h"

namespace tessera::distributed {
namespace {

constexpr std::chrono::microseconds kLook{200};

}  // namespace

struct Work::State {
  DeviceStream stream;
  DeviceEvent event;
  CollectiveSite site;
};

Work::Work(const DeviceStream& stream, CollectiveSite site)
    : state_(std::make_shared<State>(State{stream, stream.record("work"), std::move(site)})) {}

bool Work::is_done() const { return state_ == nullptr || state_->event.is_ready(); }

void Work::wait() const {
  if (state_ == nullptr) return;
  const DeviceStream& current = current_stream(state_->stream.device());
  if (!(current == state_->stream)) current.wait(state_->event);
}

void Work::synchronize(std::optional<std::chrono::milliseconds> timeout) const {
  if (state_ == nullptr) return;
  const auto deadline =
      std::chrono::steady_clock::now() + timeout.value_or(std::chrono::milliseconds(0));
  while (timeout && !is_done()) {
    TESSERA_CHECK_AS(TimeoutError, std::chrono::steady_clock::now() < deadline, "work.synchronize",
                     "{} is not done after {} ms", site_text(state_->site), timeout->count());
    std::this_thread::sleep_for(kLook);
  }
  state_->event.synchronize();
}

void Work::then(std::function<void()> function) const {
  TESSERA_CHECK(function != nullptr, "work.then", "the function is empty");
  if (state_ == nullptr) return function();
  state_->stream.enqueue("work.then", std::move(function));
}

const DeviceEvent& Work::event() const {
  TESSERA_CHECK_AS(StateError, state_ != nullptr, "work.event",
                   "this work was done when it was made: it has no stream and no event");
  return state_->event;
}

}  // namespace tessera::distributed
