#pragma once

/// Loss scaling for training in f16, with PyTorch's definition: gradients that f16 would lose below
/// 6e-8 are computed of a loss that is multiplied by a large number, and divided by it again in
/// f32. Where one of them is infinite or NaN the number was too large: the step is left out, and
/// the next number is smaller.
///
///     nn::GradScaler scaler;
///     {
///       AutocastGuard autocast(DType::kF16);
///       loss = ...;
///     }
///     backward(scaler.scale(loss));
///     scaler.unscale(optimizer);                            // only if something reads gradients
///     nn::clip_grad_norm(optimizer.parameters(), 1.0);      // before the step
///     scaler.step(optimizer);
///     scaler.update();
///
/// All ranks skip or none. Ranks hold different shards, some of them no rows at all, and perhaps no
/// gradient; so whether anything was infinite is agreed (kMax) over every axis of every mesh that
/// the optimizer's parameters have, and of options.mesh. Each rank gives the scaler the same
/// optimizers in the same order.
///
/// Host reads: step() reads one flag, since an optimizer's step is decided on the host. update()
/// reads only the flags of optimizers that were unscaled and not stepped. The scale itself is a
/// number on the host, equal on all ranks because the flags are. So step() needs a device that can
/// be read: not the null device.
///
/// Used by the thread of its rank.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "tessera/autograd/variable.h"
#include "tessera/nn/mesh/mesh.h"
#include "tessera/nn/optim/optimizer.h"
#include "tessera/nn/state/state_dict.h"

namespace tessera::nn {

struct GradScalerOptions {
  double init_scale = 65536;            ///< > 0
  double growth_factor = 2;             ///< > 1: of the scale after growth_interval good steps
  double backoff_factor = 0.5;          ///< in (0, 1): of the scale after a bad one
  std::int64_t growth_interval = 2000;  ///< >= 1
  bool enabled = true;                  ///< false: everything passes as it is
  /// Ranks that must agree though no parameter of theirs says so: those of pipeline stages, or of
  /// replicas that nothing shards. May be null.
  std::shared_ptr<const Mesh> mesh = {};
};

class GradScaler {
 public:
  /// Throws InvalidArgument for options outside their ranges.
  explicit GradScaler(const GradScalerOptions& options = {});

  /// loss * scale, in the loss's dtype: of f16 it may overflow, so keep losses in f32.
  Variable scale(const Variable& loss) const;
  /// Divides the optimizer's gradients by the scale, in place, and notes whether one was infinite
  /// or NaN before. step() does it where it was not done. Throws StateError the second time before
  /// update(), or after step(); InvalidArgument for parameters of f16, whose gradients would lose
  /// below 6e-8 again: keep parameters in f32 and compute under autocast. For the same reason
  /// step() and update() throw, on all ranks, where some rank had a gradient of f16. Collective.
  void unscale(optim::Optimizer& optimizer);
  /// optimizer.step(options), unless a gradient was infinite or NaN on some rank. Returns whether it was
  /// done. Unlike PyTorch's, it accepts an optimizer whose parameters have no gradients: another
  /// rank may have some. Throws StateError the second time before update(). Collective.
  bool step(optim::Optimizer& optimizer, const optim::StepOptions& options = {});
  /// Ends the iteration: the scale for the next one, from the results of all optimizers since the
  /// last update; or `new_scale` instead, > 0. Scales that f32 does not hold are not taken. Throws
  /// StateError when no optimizer was unscaled or stepped and no scale is given.
  void update(std::optional<double> new_scale = {});

  bool is_enabled() const { return options_.enabled; }
  double get_scale() const { return options_.enabled ? scale_ : 1; }
  /// Good steps since the scale changed last.
  std::int64_t growth_tracker() const { return growth_tracker_; }
  const GradScalerOptions& options() const { return options_; }

  /// "scale", "growth_factor", "backoff_factor", "growth_interval", "growth_tracker"; of a disabled
  /// one nothing. To be called after update().
  StateDict state_dict() const;
  /// A disabled scaler takes nothing. Throws InvalidArgument for names that are missing or unknown,
  /// all in one text, and values outside their ranges; then nothing is changed.
  void load_state_dict(const StateDict& state);

 private:
  enum class Stage : std::uint8_t { kUnscaled, kStepped };
  // Of one optimizer in this iteration; there is none before unscale().
  struct Iteration {
    Stage stage = Stage::kUnscaled;
    Tensor flag;                // 0-d f32: 1 where something was infinite or NaN
    std::optional<bool> found;  // the flag, once it was read
  };
  static bool found_inf(Iteration& iteration);
  Tensor agreed(const Tensor& flag, const optim::Optimizer& optimizer) const;

  GradScalerOptions options_;
  double scale_;
  std::int64_t growth_tracker_ = 0;
  std::map<const optim::Optimizer*, Iteration> iterations_;
};

}  // namespace tessera::nn
