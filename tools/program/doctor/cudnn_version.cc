#include "tessera/tools/program/doctor/cudnn_version.h"

#include "tessera/tensor/kernels/cuda/cudnn/cudnn_kernels.h"

namespace tessera::tools::doctor {

std::size_t cudnn_version() { return cuda::cudnn_facts().version; }

}  // namespace tessera::tools::doctor
