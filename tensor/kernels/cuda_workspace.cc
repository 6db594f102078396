// Scratch of kernels on a GPU. In every build, because a launch selects it by the device's type.

#include "tessera/tensor/kernels/argsort.h"
#include "tessera/tensor/kernels/channel_norm.h"
#include "tessera/tensor/kernels/plans/argsort_plan.h"
#include "tessera/tensor/kernels/plans/channel_chunks.h"
#include "tessera/tensor/kernels/plans/scatter_plan.h"
#include "tessera/tensor/kernels/scatter.h"

namespace tessera {

std::size_t ScatterKernel::cuda_workspace(const Args& a) {
  const ScatterPlan plan = scatter_plan(a.walk);
  return plan.sorted ? plan.radix().bytes() : 0;
}

std::size_t ArgsortKernel::cuda_workspace(const Args& a) {
  const ArgsortPlan plan = argsort_plan(a);
  return plan.in_blocks ? 0 : plan.radix().bytes();
}

std::size_t ChannelStatisticsKernel::cuda_workspace(const Args& a) {
  return ChannelChunks(a.shape).bytes(a.shape);
}
std::size_t ChannelSumsKernel::cuda_workspace(const Args& a) {
  return ChannelChunks(a.shape).bytes(a.shape);
}

}  // namespace tessera
