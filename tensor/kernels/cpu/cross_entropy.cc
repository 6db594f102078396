#include "tessera/tensor/kernels/cross_entropy.h"

#include <algorithm>

#include "tessera/tensor/kernels/cpu/rows.h"
#include "tessera/tensor/kernels/cpu/traversal.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera {
namespace {

// Before anything is computed with them: targets are indices. Reports the first bad one.
void check_targets(const ConstView& targets, std::int64_t classes, BadTarget bad_target) {
  const std::int64_t* target = targets.as<std::int64_t>();
  for (std::int64_t row = 0; row < targets.shape[0]; ++row) {
    if (target[row] < 0 || target[row] >= classes) bad_target(row, target[row], classes);
  }
}

}  // namespace

void CrossEntropyKernel::cpu(const Args& a, Workspace) {
  const std::int64_t n = a.logits.shape[1];
  check_targets(a.targets, n, a.bad_target);
  with_floating_type(a.logits.dtype, [&]<class T>() {
    const T* logits = a.logits.as<T>();
    const std::int64_t* target = a.targets.as<std::int64_t>();
    T* loss = a.loss.as<T>();
    T* log_sum_exp = a.log_sum_exp.as<T>();
    cpu::parallel_rows(a.logits.shape[0], n, [=](std::int64_t row) {
      const T* x = logits + row * n;
      const T largest = cpu::row_max(x, n);
      const T log_sum = scalar::log(
          cpu::lane_sum<T>(n, [=](std::int64_t i) { return scalar::exp(x[i] - largest); }));
      // Not log_sum_exp - x[target]: where the logits are large that would lose what is small.
      loss[row] = log_sum - (x[target[row]] - largest);
      log_sum_exp[row] = log_sum + largest;
    });
  });
}

void CrossEntropyBackwardKernel::cpu(const Args& a, Workspace) {
  const std::int64_t n = a.logits.shape[1];
  check_targets(a.targets, n, a.bad_target);
  with_floating_type(a.logits.dtype, [&]<class T>() {
    const T* dloss = a.dloss.as<T>();
    const T* logits = a.logits.as<T>();
    const std::int64_t* target = a.targets.as<std::int64_t>();
    const T* log_sum_exp = a.log_sum_exp.as<T>();
    T* dlogits = a.dlogits.as<T>();
    cpu::parallel_rows(a.logits.shape[0], n, [=](std::int64_t row) {
      const T* x = logits + row * n;
      T* dx = dlogits + row * n;
      const T scale = dloss[row], shift = log_sum_exp[row];
      for (std::int64_t i = 0; i < n; ++i) dx[i] = scalar::exp(x[i] - shift) * scale;
      const std::int64_t t = target[row];
      dx[t] = (scalar::exp(x[t] - shift) - T(1)) * scale;
    });
  });
}

}  // namespace tessera
