#include "tessera/tensor/kernels/cross_entropy.h"

#include <limits>

#include "tessera/tensor/kernels/cpu/exp_run.h"
#include "tessera/tensor/kernels/cpu/rows.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera {
namespace {

std::int64_t target_at(const ConstView& targets, std::int64_t row) {
  const std::int64_t at = row * targets.strides[0];
  return targets.dtype == DType::kI32 ? targets.as<std::int32_t>()[at]
                                      : targets.as<std::int64_t>()[at];
}

// Checks all targets before anything is computed. Reports the first invalid one.
void check_targets(const CrossEntropyTargets& t) {
  for (std::int64_t row = 0; row < t.targets.shape[0]; ++row) {
    const std::int64_t target = target_at(t.targets, row);
    if ((target < 0 || target >= t.classes) && target != t.ignore_index) {
      t.bad_target(row, target, t.classes);
    }
  }
}

// The weights of classes, and the sums that smoothing needs.
template <class C>
struct ClassWeights {
  explicit ClassWeights(const CrossEntropyTargets& t)
      : weight(t.weight.as<C>()),
        first(t.first),
        on_target(static_cast<C>(1 - t.smoothing)),
        on_each(static_cast<C>(t.smoothing / static_cast<double>(t.classes))) {
    total =
        weight == nullptr
            ? static_cast<C>(t.classes)
            : static_cast<C>(cpu::row_sum<C>(t.classes, [&](std::int64_t c) { return weight[c]; }));
  }
  C of(std::int64_t c) const { return weight == nullptr ? C(1) : weight[c]; }
  C of_column(std::int64_t i) const { return of(first + i); }

  const C* weight;
  std::int64_t first;
  C on_target, on_each;
  C total = 0;  // of all weights
};

template <class C>
struct RowLoss {
  C loss, largest, log_sum;  // log_sum is that of the logits - largest
};

// A column of the logits.
struct Column {
  Column(const CrossEntropyTargets& t, std::int64_t target, std::int64_t n)
      : index(target - t.first), exists(index >= 0 && index < n) {}
  std::int64_t index;
  bool exists;
};

template <class C>
RowLoss<C> row_loss(const C* x, std::int64_t n, const Column& target, const ClassWeights<C>& w,
                    bool is_part) {
  const C largest = cpu::row_max(x, n);
  // All are -inf or NaN. Of a part, only NaN makes the sum NaN.
  const bool is_low = is_part && largest == -std::numeric_limits<C>::infinity();
  const auto total = static_cast<C>(cpu::sum_of_exps(n, x, is_low ? C(0) : largest));
  const C log_sum = scalar::log(total);
  if (total == C(0)) return {C(0), largest, log_sum};
  // Not log_sum_exp - x[target]: for large logits that would lose small differences.
  C loss = C(0);
  if (target.exists)
    loss =
        scalar::mul(w.on_target * w.of_column(target.index), log_sum - (x[target.index] - largest));
  if (w.on_each != C(0)) {
    const double spread = cpu::row_sum<C>(
        n, [&](std::int64_t i) { return scalar::mul(w.of_column(i), log_sum - (x[i] - largest)); });
    loss = scalar::fma(w.on_each, static_cast<C>(spread), loss);
  }
  return {loss, largest, log_sum};
}

// x may be dx.
template <class C>
void backward_row(const C* x, C* dx, std::int64_t n, const Column& target, C dloss, C log_sum_exp,
                  const ClassWeights<C>& w) {
  const C hit = w.on_target * w.of_column(target.index);
  const C all = scalar::fma(w.on_each, w.total, hit) * dloss, each = w.on_each * dloss;
  C d_target = C(0);
  if (target.exists) {
    const C p = scalar::exp(x[target.index] - log_sum_exp);
    // Not p - 1 after the loop: the product would then already be rounded.
    d_target = (p - C(1)) * (hit * dloss) + p * (each * w.total);
  }
  cpu::exp_run(n, x, log_sum_exp, dx);
  for (std::int64_t i = 0; i < n; ++i) dx[i] *= all;
  if (target.exists) dx[target.index] = d_target;
  if (each != C(0)) {
    for (std::int64_t i = 0; i < n; ++i) dx[i] -= scalar::mul(each, w.of_column(i));
  }
}

}  // namespace

void CrossEntropyKernel::cpu(const Args& a, Workspace scratch) {
  const std::int64_t rows = a.logits.shape[0], n = a.logits.shape[1];
  check_targets(a.targets);
  with_floating_type(a.logits.dtype, [&]<class C>() {
    const cpu::RowInput<C> logits(a.logits);
    const ClassWeights<C> weights(a.targets);
    C *loss = a.loss.as<C>(), *log_sum_exp = a.log_sum_exp.as<C>(), *weight = a.row_weight.as<C>();
    C* const largest = a.largest.as<C>();
    const std::size_t bytes = static_cast<std::size_t>(n) * sizeof(C);
    cpu::parallel_buffered_rows<C>(rows, n, scratch, bytes, [&](std::int64_t row, C* buffer) {
      const std::int64_t target = target_at(a.targets.targets, row);
      loss[row] = log_sum_exp[row] = weight[row] = C(0);
      if (largest != nullptr) largest[row] = C(0);
      if (target == a.targets.ignore_index) return;
      const Column column(a.targets, target, n);
      const RowLoss<C> result =
          row_loss(logits.read(row, buffer), n, column, weights, largest != nullptr);
      loss[row] = result.loss;
      if (largest == nullptr) {
        log_sum_exp[row] = result.log_sum + result.largest;
      } else {
        log_sum_exp[row] = result.log_sum;
        largest[row] = result.largest;
      }
      if (column.exists) weight[row] = weights.of(target);
    });
  });
}

void CrossEntropyBackwardKernel::cpu(const Args& a, Workspace scratch) {
  const std::int64_t rows = a.logits.shape[0], n = a.logits.shape[1];
  check_targets(a.targets);
  with_floating_type(a.logits.dtype, [&]<class C>() {
    const cpu::RowInput<C> logits(a.logits);
    const cpu::RowOutput<C> dlogits(a.dlogits);
    const ClassWeights<C> weights(a.targets);
    const C *dloss = a.dloss.as<C>(), *log_sum_exp = a.log_sum_exp.as<C>();
    const std::size_t bytes = 2 * static_cast<std::size_t>(n) * sizeof(C);
    cpu::parallel_buffered_rows<C>(rows, n, scratch, bytes, [&](std::int64_t row, C* buffer) {
      const std::int64_t target = target_at(a.targets.targets, row);
      C* to = dlogits.place(row, buffer);
      if (target == a.targets.ignore_index) {
        std::fill_n(to, n, C(0));
      } else {
        backward_row(logits.read(row, cpu::buffer_row(buffer, 1, n)), to, n,
                     Column(a.targets, target, n), dloss[row * a.dloss.strides[0]],
                     log_sum_exp[row], weights);
      }
      dlogits.commit(row, to);
    });
  });
}

}  // namespace tessera
