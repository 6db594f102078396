#pragma once

#include <cstddef>

namespace tessera::tools::doctor {

/// 91400 is 9.14; 0 in a build without cuDNN. Needs a GPU.
std::size_t cudnn_version();

}  // namespace tessera::tools::doctor
