#pragma once

/// Ranks whose data run out at different steps. Every step of sharded training is collective: a
/// rank that simply stops leaves the others waiting. So before each step all say whether they have
/// a batch, and one policy decides for all.
///
///     fsdp::UnevenInputs inputs(world.mesh(), fsdp::UnevenPolicy::kPadWithZeroWeight);
///     while (auto turn = inputs.next(loader.has_batch())) {
///       const Batch batch = turn->has_batch ? loader.batch() : Batch::of_rows(0);
///       Variable sum = loss_sum(model(batch.x), batch.y);             // over this rank's rows
///       backward(nn::global_mean(sum * turn->weight, turn->has_batch ? batch.rows() : 0, mesh));
///       optimizer.step();
///       optimizer.zero_grad();
///     }
///
/// With padding, global_mean's count of 0 and the weight of 0 make the gradient exactly that of the
/// mean over the rows there are, whatever a rank without data runs: a batch of no rows, or any
/// earlier one. (A mean over each rank's own rows would be wrong: it would average over ranks that
/// have nothing.)
///
/// next() is one all-reduce of a byte for each rank, along each axis of a mesh, and the host waits
/// for it, but not for what else is under way on a queued stream. It goes through memory of the
/// CPU. Used by the thread of its rank.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/distributed/mesh/device_mesh.h"
#include "tessera/distributed/process_group.h"
#include "tessera/tensor/streams/stream.h"

namespace tessera::fsdp {

enum class UnevenPolicy : std::uint8_t {
  kStopTogether,       ///< all stop before the first step for which one has no batch; the batches
                       ///< that others still have are left out
  kPadWithZeroWeight,  ///< all go on while one has a batch
  kRefuse,             ///< StateError on all ranks, naming those without a batch
};
/// "stop_together", "pad_with_zero_weight", "refuse".
const char* uneven_policy_name(UnevenPolicy policy);

/// One step that all ranks take.
struct Turn {
  std::int64_t step = 0;  ///< from 1
  bool has_batch = true;  ///< this rank
  double weight = 1;      ///< of this rank's loss: 1, or 0 without a batch
  int ranks = 0;          ///< that have a batch, of all
};

class UnevenInputs {
 public:
  /// Over the ranks of a mesh, or of a group. Throw InvalidArgument for an undefined mesh, and for
  /// a null group.
  UnevenInputs(const distributed::DeviceMesh& mesh, UnevenPolicy policy);
  UnevenInputs(std::shared_ptr<distributed::ProcessGroup> group, UnevenPolicy policy);

  /// The next step; nothing when the epoch is over, after which it throws StateError: make another
  /// one for the next epoch. Collective.
  std::optional<Turn> next(bool have_batch);

 private:
  UnevenInputs(std::vector<std::shared_ptr<distributed::ProcessGroup>> groups,
               std::vector<int> ranks, int rank, UnevenPolicy policy);
  std::vector<int> ranks_without(bool have_batch) const;

  std::vector<std::shared_ptr<distributed::ProcessGroup>> groups_;
  std::vector<int> ranks_;  // in the world
  std::size_t place_;       // of this one
  UnevenPolicy policy_;
  Stream stream_;
  std::int64_t steps_ = 0;
  bool over_ = false;
};

}  // namespace tessera::fsdp
