#pragma once

/// The bindings of one attention launch to the tensors of its plan. Includes cuDNN's header: only
/// for .cc files of this folder.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tessera/tensor/kernels/attention.h"
#include "tessera/tensor/kernels/cuda/cudnn/cudnn_graphs.h"

namespace tessera::cuda {

/// Bytes of AttentionIds::dots and dq_sums, which precede the plan's workspace; 0 for forward.
std::size_t attention_scratch_bytes(const AttentionProblem& p);

/// The plan's name for benchmarks, with the graph that it computes.
std::string attention_plan_name(const AttentionProblem& p, const CudnnPlan& plan);

/// The operands of a problem, which one plan computes at once or in slices (cudnn_slices.h).
class AttentionLaunch {
 public:
  /// `whole` is the problem of `a`. `scratch` has attention_scratch_bytes() of `slice`.
  AttentionLaunch(const AttentionIds& ids, const AttentionProblem& whole,
                  const AttentionProblem& slice, const AttentionKernel::Args& a, void* scratch);
  AttentionLaunch(const AttentionIds& ids, const AttentionProblem& whole,
                  const AttentionProblem& slice, const AttentionBackwardKernel::Args& a,
                  void* scratch);
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

  AttentionLaunch(const AttentionIds& ids, const AttentionProblem& whole,
                  const AttentionProblem& slice, double scale, void* scratch);

  AttentionIds ids_;
  std::int64_t group_;  // query heads per key head
  std::vector<Operand> of_queries_, of_keys_;
  void* dots_;
  void* dq_sums_;
  // Passed by value.
  float scale_, one_ = 1, never_;
  std::int32_t keys_, queries_;
};

}  // namespace tessera::cuda
