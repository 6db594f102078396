#include "tessera/fsdp/wrap_defaults.h"

#include <algorithm>
#include <utility>

#include "tessera/fsdp/fully_shard.h"
#include "tessera/fsdp/wrap_options.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/thread_state.h"

namespace tessera::fsdp {
WrapDefaults::WrapDefaults(FullyShardOptions options) : options_(std::move(options)) {
  TESSERA_CHECK_AS(StateError, tessera::detail::thread_state().wrap_defaults == nullptr,
                   "fsdp.WrapDefaults",
                   "there is a scope of defaults on this thread already, and scopes do not nest; "
                   "end it first, or give wrap_here() overrides");
  tessera::detail::thread_state().wrap_defaults = &options_;
}

WrapDefaults::~WrapDefaults() { tessera::detail::thread_state().wrap_defaults = nullptr; }

void detail::wrap_here(nn::Module& module, const WrapOverrides& overrides) {
  const FullyShardOptions* scope_options = tessera::detail::thread_state().wrap_defaults;
  if (scope_options == nullptr) return;
  const std::vector<nn::Module*>& ignored = scope_options->ignored_modules;
  if (std::find(ignored.begin(), ignored.end(), &module) != ignored.end()) return;
  FullyShardOptions options = *scope_options;
  if (overrides) overrides(options);
  fully_shard(module, options_inside(module, options, {}));
}

}  // namespace tessera::fsdp
