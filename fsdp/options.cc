#include "tessera/fsdp/options.h"

#include "tessera/nn/layers/batch_norm.h"
#include "tessera/nn/layers/norm.h"

namespace tessera::fsdp {
namespace {

template <class... Types>
bool is_any_of(const nn::Module& module) {
  return ((dynamic_cast<const Types*>(&module) != nullptr) || ...);
}

}  // namespace

bool is_norm(const nn::Module& module) {
  return is_any_of<nn::LayerNorm, nn::RMSNorm, nn::GroupNorm, nn::BatchNorm1d, nn::BatchNorm2d>(
      module);
}

}  // namespace tessera::fsdp
