#include "tessera/tensor/ops/products.h"

#include "tessera/tensor/ops/composed/products.h"

namespace tessera {

Tensor addbmm(const Tensor& c, const Tensor& a, const Tensor& b, const AddmmOptions& options) {
  return composed::addbmm(c, a, b, options);
}
Tensor addmv(const Tensor& c, const Tensor& a, const Tensor& x, const AddmmOptions& options) {
  return composed::addmv(c, a, x, options);
}
Tensor addr(const Tensor& c, const Tensor& a, const Tensor& b, const AddmmOptions& options) {
  return composed::addr(c, a, b, options);
}
Tensor vdot(const Tensor& a, const Tensor& b) { return composed::vdot(a, b); }
Tensor kron(const Tensor& a, const Tensor& b) { return composed::kron(a, b); }
Tensor cross(const Tensor& a, const Tensor& b, int dim) { return composed::cross(a, b, dim); }
Tensor matrix_power(const Tensor& x, std::int64_t power) {
  return composed::matrix_power(x, power);
}
Tensor multi_dot(const std::vector<Tensor>& matrices) { return composed::multi_dot(matrices); }
Tensor cov(const Tensor& x, double correction) { return composed::cov(x, correction); }
Tensor corrcoef(const Tensor& x) { return composed::corrcoef(x); }

namespace composed {

std::vector<std::vector<std::size_t>> cheapest_cuts(const std::vector<double>& extents) {
  const std::size_t n = extents.size() - 1;
  std::vector<std::vector<std::size_t>> cuts(n, std::vector<std::size_t>(n));
  std::vector<std::vector<double>> costs(n, std::vector<double>(n));
  for (std::size_t length = 2; length <= n; ++length) {
    for (std::size_t i = 0; i + length <= n; ++i) {
      const std::size_t j = i + length - 1;
      costs[i][j] = std::numeric_limits<double>::infinity();
      for (std::size_t cut = i; cut < j; ++cut) {
        const double cost =
            costs[i][cut] + costs[cut + 1][j] + extents[i] * extents[cut + 1] * extents[j + 1];
        if (cost < costs[i][j]) costs[i][j] = cost, cuts[i][j] = cut;
      }
    }
  }
  return cuts;
}

}  // namespace composed

}  // namespace tessera
