#include "tessera/nn/recompute.h"

#include "tessera/tensor/check.h"

namespace tessera::nn::detail {

void throw_not_recomputable(const char* why) {
  throw_error<StateError>("nn.recompute",
                          "this module's forward cannot run twice: {}; pass values, or switch "
                          "recompute off",
                          why);
}

void check_still_there(const std::weak_ptr<const void>& module) {
  TESSERA_CHECK_AS(StateError, !module.expired(), "nn.recompute",
                   "backward wants to run the forward of a module that was destroyed: keep the "
                   "model until backward is done");
}

}  // namespace tessera::nn::detail
