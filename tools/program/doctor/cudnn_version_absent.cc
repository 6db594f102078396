// In a build without CUDA.

#include "tessera/tools/program/doctor/cudnn_version.h"

namespace tessera::tools::doctor {

std::size_t cudnn_version() { return 0; }

}  // namespace tessera::tools::doctor
