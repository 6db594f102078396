#include "tessera/distributed/nccl/process_group_nccl.h"
#include "tessera/tensor/cuda/machine.h"
#include "tessera/tools/program/doctor/cudnn_version.h"
#include "tessera/tools/program/doctor/read_facts.h"

namespace tessera::tools::doctor {

GpuFacts read_gpus() {
  GpuFacts gpus = {.machine = cuda::this_machine(), .nccl = distributed::nccl_version()};
  if (!cuda::machine_problem(gpus.machine).empty()) return gpus;
  gpus.without_peer_access = cuda::pairs_without_peer_access();
  gpus.cudnn = cudnn_version();
  return gpus;
}

}  // namespace tessera::tools::doctor
