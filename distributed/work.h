#pragma once

/// A collective that was issued: when it is complete, and how to order work after it. Callers need
/// not keep it: later work of the stream that the collective was issued on runs after it anyway.
///
///     Work gathered;
///     {
///       StreamGuard guard(comm);
///       gathered = all_gather(group, inputs, outputs);   // runs on comm
///     }
///     gathered.wait();                                   // the current stream goes on after it
///
/// A shared handle, for the thread that issued the collective.

#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include "tessera/tensor/error.h"
#include "tessera/tensor/streams/stream.h"

namespace tessera::distributed {

class Work {
 public:
  /// Done: nothing was to do.
  Work() = default;
  /// What `stream` holds now; `site` names it in errors.
  Work(const DeviceStream& stream, CollectiveSite site);

  /// True also when it failed.
  bool is_done() const;
  /// Later work of the current stream of its device runs after the collective; a failure poisons
  /// that stream too. On an inline stream the host waits here.
  void wait() const;
  /// The host waits until it is done, and rethrows its failure. Throws TimeoutError naming the
  /// collective when that takes longer than `timeout`; it then goes on undisturbed.
  void synchronize(std::optional<std::chrono::milliseconds> timeout = std::nullopt) const;
  /// Calls `function` when the collective is complete, on its stream, so before work that is issued
  /// there later; on inline streams, and if there was nothing to do, at once on the caller. Skipped
  /// if the stream has failed. synchronize() does not wait for it; the stream's synchronize() does.
  void then(std::function<void()> function) const;
  /// Recorded behind it. Throws StateError for work without a stream.
  const DeviceEvent& event() const;

 private:
  struct State;
  std::shared_ptr<const State> state_;  // null: done
};

}  // namespace tessera::distributed
