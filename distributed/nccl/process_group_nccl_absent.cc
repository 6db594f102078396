// The interface in a build without NCCL.

#include "tessera/distributed/nccl/process_group_nccl.h"
#include "tessera/tensor/check.h"

namespace tessera::distributed {

bool has_nccl() { return false; }
int nccl_version() { return 0; }

std::shared_ptr<ProcessGroup> make_nccl_group(const std::string& name, const NcclOptions&) {
  throw_error<DeviceError>("make_nccl_group",
                           "group \"{}\" cannot be made: this build has no NCCL; start threads "
                           "(--launch threads), or build where CUDA and NCCL are installed",
                           name);
}

}  // namespace tessera::distributed
