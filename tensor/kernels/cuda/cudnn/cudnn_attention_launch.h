#pragma once

/// The bindings of one attention launch to the tensors of its plan. Includes cuDNN's header: only
/// for .cc files of this folder.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tessera/tensor/kernels/attention.h"
#include "tessera/tensor/kernels/cuda/cudnn/cudnn_graphs.h"

namespace tessera::cuda {

/// Bytes of AttentionIds::dots, which precede the plan's workspace; 0 for forward.
std::size_t attention_dots_bytes(const AttentionProblem& p);

/// The operands of a problem, which one plan computes at once or in slices (cudnn_slices.h).
class AttentionLaunch {
 public:
  /// `whole` is the problem of `a`. `dots` has attention_dots_bytes() of a slice.
  AttentionLaunch(const AttentionIds& ids, const AttentionProblem& whole,
                  const AttentionKernel::Args& a, void* dots);
  AttentionLaunch(const AttentionIds& ids, const AttentionProblem& whole,
                  const AttentionBackwardKernel::Args& a, void* dots);
  AttentionLaunch(const AttentionLaunch&) = delete;
  AttentionLaunch& operator=(const AttentionLaunch&) = delete;

  /// The bindings of the slice that begins at this batch entry and key head. They contain addresses
  /// of members of this object.
  std::vector<CudnnPlan::Binding> bindings(std::int64_t batch, std::int64_t kv_head) const;

 private:
  // An operand and the stride of its slices.
  struct Operand {
    Operand(CudnnGraph::Id id, const void* data, DType dtype,
            const AttentionProblem::Strides& strides);

    CudnnGraph::Id id;
    const void* data;
    std::int64_t batch_bytes, head_bytes;
  };

  AttentionLaunch(const AttentionIds& ids, const AttentionProblem& whole, double scale, void* dots);

  AttentionIds ids_;
  std::int64_t group_;  // query heads per key head
  std::vector<Operand> of_queries_, of_keys_;
  void* dots_;
  // Passed by value.
  float scale_, one_ = 1, never_;
  std::int32_t keys_, queries_;
};

}  // namespace tessera::cuda
