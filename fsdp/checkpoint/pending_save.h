#pragma once

/// One save, in the steps that a synchronous and an asynchronous one share.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/distributed/process_group.h"
#include "tessera/fsdp/checkpoint/checkpoint.h"
#include "tessera/fsdp/checkpoint/write_plan.h"
#include "tessera/tensor/rank_context.h"

namespace tessera::checkpoint {

/// The state dict of all members, under the prefixes "model.", "optimizer.", "scheduler.", "scaler."
/// and "values.".
nn::StateDict state_dict_of(const State& state);

class PendingSave {
 public:
  /// Plans the save and makes the unfinished folder. With `snapshot` the tensors are copied to the CPU, into
  /// memory that its counters count, and the state may change afterwards; null: they are not copied.
  /// Collective. Throws as save().
  PendingSave(std::string folder, const State& state, const std::shared_ptr<RankContext>& snapshot);
  /// Removes the unfinished folder unless publish() succeeded (the first rank's).
  ~PendingSave();
  PendingSave(const PendingSave&) = delete;
  PendingSave& operator=(const PendingSave&) = delete;

  const std::string& folder() const { return folder_; }
  /// Writes this rank's file. No communication, any thread. An error is kept for publish().
  void write();
  /// After write(): agrees on the outcome, writes the index and renames the folder. Collective. Throws
  /// as save().
  void publish();

 private:
  int rank() const;
  void create_folder();
  void check_space() const;
  std::string file_path(int rank) const;
  Index whole_index(const std::vector<std::string>& written) const;

  std::string folder_;
  std::shared_ptr<distributed::ProcessGroup> group_;
  WritePlan plan_;
  std::vector<std::pair<std::string, Tensor>> tensors_;
  std::string unfinished_;  // folder in which files are written
  bool owns_ = false;       // this rank removes it
  StoredFile file_;
  std::vector<std::int64_t> begins_;  // of the tensors
  std::string error_;                 // of write()
};

}  // namespace tessera::checkpoint
