// Events: points of streams, by CUDA's rules. A wait binds to the latest record at the time of the
// call.

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "tessera/tests/support/emulated_gpu/runtime/runtime_errors.h"
#include "tessera/tests/support/emulated_gpu/runtime/runtime_memory.h"
#include "tessera/tests/support/emulated_gpu/runtime/runtime_streams.h"

namespace tessera::emulated {
namespace {

// One recording of an event on a stream that runs.
struct Mark {
  std::shared_ptr<Stream> stream;  // null: of the null stream, which is done at once
  std::uint64_t ticket = 0;
  Order order;
  Clock::time_point time;  // once it is done

  bool done() const {
    if (stream == nullptr || stream->is_done(ticket)) return true;
    stream->demand(ticket);
    return false;
  }
  void wait() const {
    if (stream != nullptr) stream->wait_for(ticket);
  }
};

struct Event {
  int device = 0;
  bool timed = true;
  std::shared_ptr<Mark> mark;  // null: never recorded
  // Recorded by a stream that is being captured:
  std::shared_ptr<Capture> capture;
  Order captured_order;
};

struct Events {
  std::mutex mutex;  // guards the events too
  std::map<const void*, std::unique_ptr<Event>> all;
};
Events& events() {
  static auto* all = new Events;
  return *all;
}

// Runs `body` with the event, locked.
template <class Body>
cudaError_t with_event(cudaEvent_t handle, Body body) {
  const std::lock_guard lock(events().mutex);
  const auto found = events().all.find(handle);
  return found == events().all.end() ? cudaErrorInvalidResourceHandle : body(*found->second);
}

cudaError_t record(Event& event, const std::shared_ptr<Stream>& stream) {
  auto mark = std::make_shared<Mark>();
  if (stream == nullptr) {
    mark->time = Clock::now();
  } else {
    const std::lock_guard lock(capture_mutex());
    if (stream->capturing.capture != nullptr) {
      if (stream->capturing.capture->invalid) return cudaErrorStreamCaptureInvalidated;
      event.capture = stream->capturing.capture;
      event.captured_order = stream->capturing.order;
      event.captured_order.add(stream->id, stream->capturing.operations);
      event.mark = nullptr;
      return cudaSuccess;
    }
    mark->stream = stream;
    mark->ticket = stream->push(
        [weak = std::weak_ptr(mark)] {
          if (const auto self = weak.lock()) self->time = Clock::now();
        },
        Runs::kAlways);
    mark->order = stream->order();
  }
  event.capture = nullptr;
  event.mark = std::move(mark);
  return cudaSuccess;
}

// A stream that waits for an event of a capture becomes a part of it.
cudaError_t join(const std::shared_ptr<Stream>& stream, const Event& event) {
  Capture& capture = *event.capture;
  if (capture.origin == nullptr) return cudaErrorCapturedEvent;  // that capture has ended
  if (capture.invalid) return cudaErrorStreamCaptureInvalidated;
  CaptureMember& member = stream->capturing;
  if (member.capture != nullptr && member.capture != event.capture) {
    member.capture->invalid = capture.invalid = true;
    return cudaErrorStreamCaptureMerge;
  }
  if (member.capture == nullptr) {
    member = {.capture = event.capture};
    capture.streams.push_back(stream);
  }
  member.order.add(event.captured_order);
  return cudaSuccess;
}

cudaError_t wait_event(const std::shared_ptr<Stream>& stream, const Event& event) {
  if (stream == nullptr) {
    if (event.capture != nullptr) return cudaErrorStreamCaptureImplicit;
    if (event.mark != nullptr) event.mark->wait();
    return cudaSuccess;
  }
  {
    const std::lock_guard lock(capture_mutex());
    if (event.capture != nullptr) return join(stream, event);
    if (event.mark == nullptr) return cudaSuccess;
    if (stream->capturing.capture != nullptr) {
      stream->capturing.capture->invalid = true;
      return cudaErrorStreamCaptureIsolation;
    }
  }
  stream->push([mark = event.mark] { mark->wait(); }, Runs::kAlways);
  stream->follow(event.mark->order);
  return cudaSuccess;
}

// The mark that a host asks for; null where the event was never recorded.
struct HostQuestion {
  std::shared_ptr<Mark> mark;
  cudaError_t error = cudaSuccess;
};
HostQuestion ask(cudaEvent_t handle) {
  HostQuestion question;
  question.error = refuse_unsafe_call();
  if (question.error != cudaSuccess) return question;
  question.error = with_event(handle, [&](const Event& event) {
    if (event.capture != nullptr) return cudaErrorCapturedEvent;
    question.mark = event.mark;
    return cudaSuccess;
  });
  return question;
}

cudaError_t failure_at(const Mark& mark) {
  return mark.stream == nullptr ? cudaSuccess : failure_of(mark.stream->device);
}

}  // namespace
}  // namespace tessera::emulated

using namespace tessera::emulated;

extern "C" {

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned flags) {
  return call([&] {
    const unsigned known = cudaEventBlockingSync | cudaEventDisableTiming | cudaEventInterprocess;
    if (out == nullptr || (flags & ~known) != 0) return cudaErrorInvalidValue;
    auto event = std::make_unique<Event>();
    event->device = current_device();
    event->timed = (flags & cudaEventDisableTiming) == 0;
    *out = reinterpret_cast<cudaEvent_t>(event.get());
    const std::lock_guard lock(events().mutex);
    events().all[event.get()] = std::move(event);
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreate(cudaEvent_t* out) { return cudaEventCreateWithFlags(out, 0); }

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  return call([&] {
    const std::lock_guard lock(events().mutex);
    return events().all.erase(handle) == 0 ? cudaErrorInvalidResourceHandle : cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t to) {
  return call([&] {
    const Handle resolved = resolve(to);
    if (!resolved.valid) return cudaErrorInvalidResourceHandle;
    return with_event(handle, [&](Event& event) {
      const int device = resolved.stream ? resolved.stream->device : current_device();
      if (event.device != device) return cudaErrorInvalidResourceHandle;
      return record(event, resolved.stream);
    });
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t waits, cudaEvent_t handle, unsigned flags) {
  return call([&] {
    if (flags != cudaEventWaitDefault) return cudaErrorNotSupported;
    const Handle resolved = resolve(waits);
    if (!resolved.valid) return cudaErrorInvalidResourceHandle;
    Event event;
    const cudaError_t error = with_event(handle, [&](const Event& found) {
      event = found;
      return cudaSuccess;
    });
    return error != cudaSuccess ? error : wait_event(resolved.stream, event);
  });
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  return call([&] {
    const HostQuestion question = ask(handle);
    if (question.error != cudaSuccess || question.mark == nullptr) return question.error;
    if (!question.mark->done()) return cudaErrorNotReady;
    host_has_seen(question.mark->order);
    return failure_at(*question.mark);
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  return call([&] {
    const HostQuestion question = ask(handle);
    if (question.error != cudaSuccess || question.mark == nullptr) return question.error;
    question.mark->wait();
    host_has_seen(question.mark->order);
    return failure_at(*question.mark);
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return call([&] {
    if (milliseconds == nullptr) return cudaErrorInvalidValue;
    std::shared_ptr<Mark> marks[2];
    for (int i = 0; i < 2; ++i) {
      const cudaError_t error = with_event(i == 0 ? start : end, [&](const Event& event) {
        if (event.capture != nullptr) return cudaErrorCapturedEvent;
        marks[i] = event.timed ? event.mark : nullptr;
        return marks[i] == nullptr ? cudaErrorInvalidResourceHandle : cudaSuccess;
      });
      if (error != cudaSuccess) return error;
    }
    if (!marks[0]->done() || !marks[1]->done()) return cudaErrorNotReady;
    *milliseconds =
        std::chrono::duration<float, std::milli>(marks[1]->time - marks[0]->time).count();
    return cudaSuccess;
  });
}

}  // extern "C"
