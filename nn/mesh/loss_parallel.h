#pragma once

/// Loss parallelism: the cross entropy of logits whose classes lie in parts on the ranks of an
/// axis, without ever gathering them.

#include <cstdint>
#include <memory>
#include <string>

#include "tessera/autograd/variable.h"
#include "tessera/nn/mesh/mesh.h"
#include "tessera/tensor/ops/nn.h"

namespace tessera::nn {

struct LossParallelOptions {
  std::int64_t classes = 0;       ///< required: of all ranks together
  CrossEntropyOptions loss = {};  ///< as cross_entropy's; weight is that of all classes
};

/// The cross_entropy of tensor/ops/nn.h of logits [..., this rank's classes], chunk `rank` of
/// `classes` by the rule of torch.chunk, with class indices [...] that all ranks have alike. The
/// loss is the same on every rank and counts once; the gradient is that of this rank's logits.
/// Forward: two all-reduces, of one number a row and of three. Backward: none. Twice, with
/// collectives in the second pass.
///
/// One kernel each way reads the logits, and the gradient may be written over them, as that of
/// cross_entropy (autograd/ops/nn.h): so leave them to the loss. 16-bit logits are computed in f32,
/// and give a loss in f32.
///
/// Throws InvalidArgument as cross_entropy does, for a null mesh, and for logits whose last dim is
/// not this rank's chunk: parts of another dim are not for this. Collective. The graph holds the
/// mesh.
Variable parallel_cross_entropy(const Variable& logits, const Tensor& targets,
                                const std::shared_ptr<const Mesh>& mesh, const std::string& axis,
                                const LossParallelOptions& options);

}  // namespace tessera::nn
