#pragma once

/// CUDA events, and the marks that are made of them. Private to this folder.

#include <memory>
#include <mutex>
#include <vector>

#include "tessera/tensor/cuda/capture.h"
#include "tessera/tensor/cuda/queue.h"
#include "tessera/tensor/cuda/queue_failure.h"

namespace tessera::cuda {

/// The CUDA events of one GPU, which are costly to make, for use again. Thread-safe.
class EventStore {
 public:
  static EventStore& of(int device);
  /// The device is the current one.
  CUevent_st* take();
  /// Waits that were issued keep their mark, whatever the event is recorded for next.
  void give_back(CUevent_st* event) noexcept;

 private:
  std::mutex mutex_;
  std::vector<CUevent_st*> kept_;
};

class RecordedMark final : public Mark {
 public:
  /// `replays`: of the graph that the stream is being captured into; null: it is not.
  RecordedMark(EventStore& events, CUstream_st* stream, std::shared_ptr<QueueFailure> failure,
               std::shared_ptr<const Replays> replays);
  ~RecordedMark() override { events_.give_back(event_); }

  bool reached() const override;
  void await() const override;
  void synchronize() const override;
  /// Later work of the stream, of the current GPU, runs after it.
  void hold_up(CUstream_st* stream) const;

 private:
  bool is_of(const Capture* capture) const {
    return capture != nullptr && capture->replays() == replays_;
  }

  EventStore& events_;
  CUevent_st* const event_;
  const std::shared_ptr<QueueFailure> failure_;
  const std::shared_ptr<const Replays> replays_;
};

}  // namespace tessera::cuda
