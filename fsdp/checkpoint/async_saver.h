#pragma once

/// Saves in the background: the training loop waits for a copy of the state, and a thread writes the
/// files.
///
///     checkpoint::AsyncSaver saver;
///     for (...) {
///       ...                                             // a step
///       if (step % 100 == 0) saver.save(checkpoint::step_folder(folder, step), state);
///       saver.poll();
///     }
///     saver.wait();
///
/// The first poll() or wait() after all ranks have written their files publishes the save: it renames the
/// folder to its path. A run that is killed before that loses this save, and no earlier one. All functions
/// are collective: all ranks make the same calls in the same order, from their own threads.

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "tessera/fsdp/checkpoint/checkpoint.h"

namespace tessera::checkpoint {

class PendingSave;

class AsyncSaver {
 public:
  AsyncSaver();
  /// Waits for the thread. A save that was not published may leave its unfinished folder.
  ~AsyncSaver();
  AsyncSaver(const AsyncSaver&) = delete;
  AsyncSaver& operator=(const AsyncSaver&) = delete;

  /// Copies what this rank writes to the CPU and returns; the state may change then. The rank's memory
  /// figures do not count the copies. Waits for the save before it. Throws as checkpoint::save() what is known before the files are written, and the
  /// error of the save before.
  void save(const std::string& folder, const State& state);
  /// Publishes a save that all ranks have written; true if none is under way then. Costs one small
  /// gather while one is. Throws on all ranks the error of the thread of any.
  bool poll();
  /// Waits until the save that is under way is published. Throws as poll().
  void wait();

 private:
  void publish();

  std::shared_ptr<distributed::ProcessGroup> group_;
  std::unique_ptr<PendingSave> pending_;
  std::atomic<bool> written_ = false;
  std::thread thread_;
};

}  // namespace tessera::checkpoint
