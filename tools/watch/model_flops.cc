#include "tessera/tools/watch/model_flops.h"

namespace tessera::tools {

double training_flops_per_token(const ModelFlopsArgs& args) {
  const double attention = 12.0 * static_cast<double>(args.layers) * static_cast<double>(args.dim) *
                           static_cast<double>(args.length);
  return 6.0 * static_cast<double>(args.matmul_parameters) +
         (args.causal ? attention / 2 : attention);
}

}  // namespace tessera::tools
