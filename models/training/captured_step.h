#pragma once

/// Forward and backward of a training step as a CUDA graph, including the communication of shards.
/// A Trainer with cuda_graphs replays it with one launch.
///
/// A step is captured if the step before had the same number of samples at the same address on the
/// GPU, because that step has made the preparations that a capture needs. Steps of other shapes,
/// such as the last one of an epoch, run without the graph and keep it. Two steps in a row of
/// another shape replace the graph.

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

/// The losses of a step's passes: 0-d, on the device.
struct PassLosses {
  std::vector<Tensor> sums;
  std::vector<Tensor> auxiliaries;
};

/// The costs of a replay that the host's counters do not include.
struct UnseenCost {
  std::int64_t comm_bytes = 0;
  std::int64_t collectives = 0;
  std::int64_t peak_bytes = 0;
  std::int64_t gathered_peak_bytes = 0;
};

/// Only the rank's own thread may use it, like the trainer.
class CapturedStep {
 public:
  /// `prepare` is called before a capture: it frees memory that the step would free in the capture,
  /// which the graph would then keep. Throws InvalidArgument if the world is not on a GPU, or if its
  /// ranks' collectives block the host.
  CapturedStep(distributed::World& world, std::vector<nn::Parameter> parameters,
               std::function<void()> prepare);

  /// Returns the losses, and writes the gradients, that `body` computes for the share at `inputs`.
  PassLosses run(const BatchShare& share, const std::vector<Tensor>& inputs,
                 const std::function<PassLosses()>& body);
  /// Costs of the last run's replay; zeros if that run captured a graph or ran without one.
  const UnseenCost& unseen() const { return unseen_; }
  /// Number of replayed steps.
  std::int64_t replays() const { return replays_; }

 private:
  struct Shape {
    BatchShare share;
    std::vector<Tensor> inputs;  // kept alive as long as the graph may be replayed
    bool equals(const Shape& other) const;
  };
  struct Captured {
    Shape shape;
    PassLosses losses;
    std::vector<Tensor> gradients;  // of each parameter; undefined if it has none
    UnseenCost cost;
    cuda::CudaGraph graph;  // destroyed first
  };

  bool has_no_gradients() const;
  void capture(const Shape& shape, const std::function<PassLosses()>& body);
  PassLosses replay();

  distributed::World& world_;
  std::vector<nn::Parameter> parameters_;
  std::function<void()> prepare_;
  std::optional<Shape> last_;  // shape of the previous step, if that was not a replay
  std::unique_ptr<Captured> captured_;
  UnseenCost unseen_;
  std::int64_t replays_ = 0;
};

}  // namespace tessera::models
