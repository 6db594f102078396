#pragma once

/// Loss parallelism on a mesh: what a column-wise output layer gives is taken as it is.
///
///     // The logits stay in parts:
///     parallelize(model, mesh["tp"], {{"output", ColwiseParallel{}}, ...});
///     Variable loss = parallel_cross_entropy(model(tokens), targets, mesh["tp"],
///                                            {.classes = vocab_size});

#include "tessera/autograd/variable.h"
#include "tessera/distributed/mesh/device_mesh.h"
#include "tessera/nn/mesh/loss_parallel.h"

namespace tessera::distributed {

using nn::LossParallelOptions;

/// nn::parallel_cross_entropy() over the one axis of a mesh. Throws InvalidArgument also for a mesh with
/// other than one axis. Collective.
Variable parallel_cross_entropy(const Variable& logits, const Tensor& targets,
                                const DeviceMesh& mesh, const LossParallelOptions& options);

}  // namespace tessera::distributed
