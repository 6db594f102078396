#include "tessera/models/training/rank_figures.h"

#include "tessera/distributed/collectives.h"
#include "tessera/tensor/ops/ops.h"

namespace tessera::models {

std::vector<double> gather_figures(distributed::ProcessGroup& group,
                                   std::span<const double> values) {
  const auto count = static_cast<std::int64_t>(values.size());
  const Tensor mine = Tensor::from_vector(std::vector(values.begin(), values.end()), {count}, kCpu);
  const Tensor all = Tensor::empty({count * group.size()}, {.dtype = DType::kF64, .device = kCpu});
  distributed::all_gather(group, {&mine, 1}, {&all, 1}, "metrics");
  return all.to_vector<double>();
}

double host_value(const Tensor& tensor) { return cast(tensor, DType::kF64).item<double>(); }

}  // namespace tessera::models
