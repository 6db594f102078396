#pragma once

/// Forward and backward of a training step as a CUDA graph: what a Trainer with cuda_graphs repeats
/// with one call, communication of shards included.
///
/// A step is captured when the one before had equally many samples at the same place on the GPU:
/// that one has prepared what a capture must find prepared. Steps of other shapes, such as the last
/// one of an epoch, run as they are, and leave the graph alone; two of another shape in a row
/// replace it.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "tessera/distributed/launch/world.h"
#include "tessera/models/training/task.h"
#include "tessera/nn/parameter.h"
#include "tessera/tensor/cuda/graph.h"

namespace tessera::models {

/// What the passes of a step have lost, on the device: 0-d.
struct PassLosses {
  std::vector<Tensor> sums;
  std::vector<Tensor> auxiliaries;
};

/// What counters of the host do not see of a replay.
struct UnseenCost {
  std::int64_t comm_bytes = 0;
  std::int64_t collectives = 0;
  std::int64_t peak_bytes = 0;
  std::int64_t gathered_peak_bytes = 0;
};

/// Used by the thread of its rank, like the trainer.
class CapturedStep {
 public:
  /// Throws InvalidArgument where the world is on no GPU, or its ranks meet on the host.
  CapturedStep(distributed::World& world, std::vector<nn::Parameter> parameters);

  /// The losses and gradients that `body` computes of the share, which is at `inputs`.
  PassLosses run(const BatchShare& share, const std::vector<Tensor>& inputs,
                 const std::function<PassLosses()>& body);
  /// Of the last run: zeros unless it was a replay alone.
  const UnseenCost& unseen() const { return unseen_; }
  /// Steps that were replayed.
  std::int64_t replays() const { return replays_; }

 private:
  struct Shape {
    BatchShare share;
    std::vector<Tensor> inputs;  // alive as long as there may be replays
    bool equals(const Shape& other) const;
  };
  struct Captured {
    Shape shape;
    PassLosses losses;
    std::vector<Tensor> gradients;  // of each parameter; undefined: it has none
    UnseenCost cost;
    cuda::CudaGraph graph;  // goes first
  };

  bool has_no_gradients() const;
  void capture(const Shape& shape, const std::function<PassLosses()>& body);
  PassLosses replay();

  distributed::World& world_;
  std::vector<nn::Parameter> parameters_;
  std::optional<Shape> last_;  // of the step before, where that was no replay
  std::unique_ptr<Captured> captured_;
  UnseenCost unseen_;
  std::int64_t replays_ = 0;
};

}  // namespace tessera::models
