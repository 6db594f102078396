#pragma once

/// CUDA events, and the marks that are made from them. Private to this folder.

#include <memory>
#include <mutex>
#include <vector>

#include "tessera/tensor/cuda/capture.h"
#include "tessera/tensor/cuda/queue.h"
#include "tessera/tensor/cuda/queue_failure.h"

namespace tessera::cuda {

/// A cache of the CUDA events of one GPU, which are expensive to create. Thread-safe.
class EventStore {
 public:
  static EventStore& of(int device);
  /// The GPU must be the current one.
  CUevent_st* take();
  /// Waits already issued keep their mark when the event is recorded again.
  void give_back(CUevent_st* event) noexcept;

 private:
  std::mutex mutex_;
  std::vector<CUevent_st*> kept_;
};

class RecordedMark final : public Mark {
 public:
  /// `replays`: of the graph that the stream is being captured into; null: it is not being
  /// captured.
  RecordedMark(EventStore& events, CUstream_st* stream, std::shared_ptr<QueueFailure> failure,
               std::shared_ptr<const Replays> replays);
  ~RecordedMark() override { events_.give_back(event_); }

  bool reached() const override;
  void await() const override;
  void synchronize() const override;
  /// Later work of the stream, which is on the current GPU, runs after the mark.
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
