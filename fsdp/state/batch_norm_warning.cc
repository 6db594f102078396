#include "tessera/fsdp/state/batch_norm_warning.h"

#include <cstdio>
#include <mutex>
#include <vector>

#include <fmt/format.h>

#include "tessera/fsdp/state/state.h"
#include "tessera/nn/layers/batch_norm.h"
#include "tessera/tensor/check.h"

namespace tessera::fsdp {

std::string local_batch_norm_warning(nn::Module& module, const std::string& where) {
  const std::vector<std::string> norms = nn::batch_norms_with_local_batches(module);
  if (norms.empty()) return {};
  return error_text(where,
                    fmt::format("{} batch norm(s), \"{}\" the first, trained with the batches of "
                                "each rank alone: the running statistics that are saved are rank "
                                "0's, and other ranks evaluate with others; call "
                                "nn::synchronize_batch_norms(model, mesh) before training",
                                norms.size(), norms.front()));
}

void warn_of_local_batch_norms(nn::Module& module, const std::string& where) {
  const std::string warning = local_batch_norm_warning(module, where);
  static std::once_flag warned;
  if (!warning.empty())
    std::call_once(warned, [&] { fmt::print(stderr, "warning: {}\n", warning); });
}

}  // namespace tessera::fsdp
