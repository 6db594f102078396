// A build without cuDNN offers no plans.

#include "tessera/tensor/kernels/cuda/cudnn/cudnn_attention_offers.h"

namespace tessera::cuda {

std::vector<AttentionOffer> attention_offers(CudaStream, const AttentionKernel::Args&) {
  return {};
}
std::vector<AttentionOffer> attention_offers(CudaStream, const AttentionBackwardKernel::Args&) {
  return {};
}

}  // namespace tessera::cuda
