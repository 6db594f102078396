#pragma once

/// For ranks whose data run out at different steps. Every step of sharded training is collective:
/// if a rank simply stops, the others wait for it. So before each step the ranks tell each other
/// whether they have a batch, and one policy decides for all.
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
/// With padding, the count of 0 for global_mean and the weight of 0 make the gradient exactly that
/// of the mean over all existing rows, whatever a rank without data runs: a batch of no rows, or an
/// earlier batch. (A mean of each rank's own mean would be wrong, because it would include the
/// ranks without data.)
///
/// next() is one all-reduce along each axis of the mesh, with one byte per rank. It uses CPU
/// memory. The host waits for it, but not for other work on a queued stream. Only the rank's own
/// thread may use it.

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
  kStopTogether,       ///< all ranks stop before the first step for which one of them has no batch;
                       ///< the other ranks' remaining batches are dropped
  kPadWithZeroWeight,  ///< all ranks continue while one of them has a batch
  kRefuse,             ///< throw StateError on all ranks, naming those without a batch
};
/// "stop_together", "pad_with_zero_weight", "refuse".
const char* uneven_policy_name(UnevenPolicy policy);

/// One step of all ranks.
struct Turn {
  std::int64_t step = 0;  ///< from 1
  bool has_batch = true;  ///< whether this rank has a batch
  double weight = 1;      ///< weight of this rank's loss: 1, or 0 without a batch
  int ranks = 0;          ///< number of ranks that have a batch
};

class UnevenInputs {
 public:
  /// Over the ranks of a mesh or of a process group. Throws InvalidArgument for an undefined mesh
  /// and for a null group.
  UnevenInputs(const distributed::DeviceMesh& mesh, UnevenPolicy policy);
  UnevenInputs(std::shared_ptr<distributed::ProcessGroup> group, UnevenPolicy policy);

  /// Collective. Returns the next step, or nullopt at the end of the epoch. After that it throws
  /// StateError: construct a new object for the next epoch.
  std::optional<Turn> next(bool have_batch);

 private:
  UnevenInputs(std::vector<std::shared_ptr<distributed::ProcessGroup>> groups,
               std::vector<int> ranks, int rank, UnevenPolicy policy);
  std::vector<int> ranks_without(bool have_batch) const;

  std::vector<std::shared_ptr<distributed::ProcessGroup>> groups_;
  std::vector<int> ranks_;  // world ranks
  std::size_t place_;       // index of this rank
  UnevenPolicy policy_;
  DeviceStream stream_;
  std::int64_t steps_ = 0;
  bool over_ = false;
};

}  // namespace tessera::fsdp
