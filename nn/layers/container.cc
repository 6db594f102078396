#include "tessera/nn/layers/container.h"

#include "tessera/nn/layer.h"
#include "tessera/tensor/check.h"

namespace tessera::nn::detail {

void throw_other_type(const char* where, const std::string& name, const Module& found,
                      const std::type_info& wanted) {
  throw_error<InvalidArgument>(where, "\"{}\" is a {}, not a {}", name, found.type_name(),
                               short_type_name(wanted));
}

}  // namespace tessera::nn::detail
