#pragma once

/// The reference for training in several dtypes: one process that holds the full stored values,
/// runs every rank's rows through a copy in the compute dtype, keeps one gradient per rank in the
/// reduce dtype, adds these in rank order and scales once. Sharded training must equal it bit for
/// bit.

#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/gradient_sink.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/module.h"
#include "tessera/tensor/device.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera::testing {

/// A leaf's gradients, one for each rank, all in one dtype.
class RankSlots final : public GradientSink {
 public:
  /// `written`: kernels may accumulate into them; otherwise finished gradients are added.
  RankSlots(Shape shape, DType dtype, int ranks, bool written)
      : shape_(std::move(shape)),
        dtype_(dtype),
        slots_(static_cast<std::size_t>(ranks)),
        written_(written) {}

  std::optional<GradientSlot> take_slot(DType storable) override {
    if (storable != dtype_ || !written_) return std::nullopt;
    const double beta = prepare();
    return GradientSlot{.tensor = slots_[rank_], .beta = beta};
  }
  void accumulate(const Tensor& gradient) override {
    const double beta = prepare();
    axpby_(slots_[rank_], gradient, {.alpha = 1, .beta = beta});
  }
  void select(int rank) { rank_ = static_cast<std::size_t>(rank); }
  /// Undefined if that rank had no gradient.
  const Tensor& of(int rank) const { return slots_[static_cast<std::size_t>(rank)]; }
  void clear() { slots_.assign(slots_.size(), {}); }

 private:
  double prepare() {
    if (slots_[rank_].defined()) return 1;
    slots_[rank_] = Tensor::empty(shape_, {.dtype = dtype_});
    return 0;
  }
  Shape shape_;
  DType dtype_;
  std::vector<Tensor> slots_;
  bool written_;
  std::size_t rank_ = 0;
};

struct ReferencePrecision {
  DType param = DType::kF32;                           ///< of the copy that computes
  DType reduce = DType::kF32;                          ///< of a rank's gradients and of their sum
  bool keep = false;                                   ///< grad() keeps the reduce dtype
  double divide = 0;                                   ///< divisor of sums; 0: the number of ranks
  std::function<bool(const nn::Module&)> exempt = {};  ///< modules whose own parameters are not
                                                       ///< cast
  /// Parameters whose slots kernels do not write: those sharded along a dim other than 0, whose
  /// slots have gaps. In 16 bits a sum is then rounded once more.
  std::function<bool(const nn::Parameter&)> with_gaps = {};
};
/// replicas x shards ranks; neighbouring ranks are in one replica.
struct ReferenceRanks {
  int shards = 1;
  int replicas = 1;
  int count() const { return shards * replicas; }
};

/// The divisor of f16 gradients before the sum, which keeps the sum from overflowing if the mean
/// does not: a power of two near the square root of `factor`. The rest is divided by afterwards.
inline double pre_divide_factor(double factor, DType reduce) {
  if (reduce != DType::kF16) return 1;
  double pre = 1;
  while (std::fmod(factor, pre) == 0 && pre * pre < factor) pre *= 2;
  return pre;
}

/// The precision of a module's own parameters, by the module's name in the model.
using PrecisionOf = std::function<ReferencePrecision(const std::string& module)>;

template <class Model>
class PrecisionReference {
 public:
  using Make = std::function<std::unique_ptr<Model>()>;
  /// `make` returns a model with its initial values, equal at each call.
  PrecisionReference(const Make& make, const ReferencePrecision& precision, ReferenceRanks ranks)
      : PrecisionReference(
            make, [precision](const std::string&) { return precision; }, ranks) {}
  PrecisionReference(const Make& make, const PrecisionOf& precision_of, ReferenceRanks ranks)
      : ranks_(ranks), master_(make()), shadow_(make()) {
    for (const nn::NamedModule& named : shadow_->named_modules()) {
      const ReferencePrecision precision = precision_of(named.name);
      const bool casts = !precision.exempt || !precision.exempt(*named.module);
      for (nn::NamedParameter& own : named.module->own_parameters()) {
        if (casts) own.parameter.to(default_device(), precision.param);
        const bool written = !precision.with_gaps || !precision.with_gaps(own.parameter);
        sinks_.push_back(std::make_shared<RankSlots>(own.parameter.shape(), precision.reduce,
                                                     ranks.count(), written));
        own.parameter.value_leaf().set_gradient_sink(sinks_.back());
        precisions_.push_back(precision);
      }
    }
  }

  /// The stored values and their gradients.
  Model& master() { return *master_; }
  /// Forward and backward of `loss` on the copy; the gradients count as the rank's.
  void run(int rank, const std::function<Variable(Model&)>& loss) {
    for (const auto& sink : sinks_) sink->select(rank);
    backward(loss(*shadow_));
  }
  /// Adds the collected gradients to the stored parameters' gradients.
  void reduce() {
    const std::vector<nn::Parameter> parameters = master_->parameters();
    for (std::size_t i = 0; i < sinks_.size(); ++i) {
      reduce_one(parameters[i], *sinks_[i], precisions_[i]);
      sinks_[i]->clear();
    }
  }
  /// Copies the current stored values into the computing copy, each changed by `as_sent` if it is
  /// set.
  void refresh(const std::function<Tensor(const Tensor& stored)>& as_sent = {}) {
    const std::vector<nn::Parameter> from = master_->parameters(), to = shadow_->parameters();
    for (std::size_t i = 0; i < to.size(); ++i) {
      const Tensor& stored = from[i].local().tensor();
      copy_(to[i].local().tensor(), as_sent ? as_sent(stored) : stored);
    }
  }

 private:
  /// The sum of the parts in order. 16-bit dtypes are added in f32 and rounded once.
  static Tensor sum_of(const std::vector<Tensor>& parts) {
    const DType dtype = parts.front().dtype(), wide = compute_dtype(dtype);
    Tensor total = cast(parts.front(), wide);
    for (std::size_t i = 1; i < parts.size(); ++i) total = add(total, cast(parts[i], wide));
    return cast(total, dtype);
  }

  void reduce_one(nn::Parameter parameter, const RankSlots& slots,
                  const ReferencePrecision& precision) const {
    const double factor = precision.divide != 0 ? precision.divide : ranks_.count();
    const double pre = pre_divide_factor(factor, precision.reduce);
    std::vector<Tensor> replicas;
    for (int replica = 0; replica < ranks_.replicas; ++replica) {
      std::vector<Tensor> parts;
      for (int shard = 0; shard < ranks_.shards; ++shard) {
        const Tensor& part = slots.of(replica * ranks_.shards + shard);
        if (part.defined()) parts.push_back(mul(part, 1 / pre));
      }
      if (!parts.empty()) replicas.push_back(sum_of(parts));
    }
    if (replicas.empty()) return;
    const Tensor reduced = sum_of(replicas);
    const bool adds = parameter.grad().defined();
    const DType kept = precision.keep ? precision.reduce : parameter.dtype();
    const Tensor target =
        adds ? parameter.grad() : Tensor::empty(parameter.shape(), {.dtype = kept});
    axpby_(target, reduced, {.alpha = pre / factor, .beta = adds ? 1.0 : 0.0});
    parameter.set_grad(target);
  }

  ReferenceRanks ranks_;
  std::unique_ptr<Model> master_, shadow_;
  // By parameter, in the order of parameters(); none of them is tied.
  std::vector<std::shared_ptr<RankSlots>> sinks_;
  std::vector<ReferencePrecision> precisions_;
};

/// A loss of one rank's rows, in f32, or in f64 for f64 results.
inline Variable row_loss(const Variable& y) {
  const DType wide = y.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
  return mul(sum(square(cast(y, wide))), 0.25);
}

}  // namespace tessera::testing
