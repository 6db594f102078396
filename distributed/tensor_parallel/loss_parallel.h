#pragma once

/// Loss parallelism: the cross entropy of logits whose classes lie in parts on the ranks of an
/// axis, without ever gathering them. What a column-wise output layer gives is taken as it is.
///
///     // The logits stay in parts:
///     parallelize(model, mesh["tp"], {{"output", ColwiseParallel{}}, ...});
///     Variable loss = parallel_cross_entropy(model(tokens), targets, mesh["tp"],
///                                            {.classes = vocab_size});

#include <cstdint>

#include "tessera/autograd/variable.h"
#include "tessera/distributed/mesh/device_mesh.h"
#include "tessera/tensor/ops/nn.h"

namespace tessera::distributed {

struct LossParallelOptions {
  std::int64_t classes = 0;       ///< required: of all ranks together
  CrossEntropyOptions loss = {};  ///< as cross_entropy's; weight is that of all classes
};

/// The cross_entropy of tensor/ops/nn.h of logits [..., this rank's classes], chunk `rank` of
/// `classes` by the rule of torch.chunk, with class indices [...] that all ranks have alike. The
/// loss is the same on every rank; the gradient is that of this rank's logits. Forward: three
/// all-reduces of one number a row (the largest logit, the sum of exponentials, the target's
/// logit; label smoothing adds a second number to the third). Backward: none. Twice.
///
/// Made of plain differentiable operations, so the gradient has memory of its own, and so have the
/// steps between: cross_entropy's derivative, which may write over the logits, does not apply.
///
/// Computed in f32 for 16-bit logits, the result rounded once. Throws InvalidArgument as
/// cross_entropy does, for a mesh with other than one axis, and for logits whose last dim is not
/// this rank's chunk: parts of another dim are not for this. Collective.
Variable parallel_cross_entropy(const Variable& logits, const Tensor& targets,
                                const DeviceMesh& mesh, const LossParallelOptions& options);

}  // namespace tessera::distributed
