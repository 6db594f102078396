#pragma once

/// Exponential moving average of parameters:
///
///     optim::Ema ema(model.parameters(), {.decay = 0.999});
///     optimizer.step();
///     ema.update();                          // average = decay * average + (1 - decay) * p
///     {
///       const optim::EmaScope averaged(ema);  // the model computes with the averages
///       evaluate(model);
///     }                                       // and with its own values again
///
/// Works on local(), so each rank averages its own rows. The first update() takes the values as
/// they are. Averages are f32 for 16-bit parameters, and optimizer memory. Used by the thread of
/// its rank.

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/nn/parameter.h"
#include "tessera/nn/state/state_dict.h"

namespace tessera::nn::optim {

struct EmaOptions {
  double decay = 0.999;  ///< in [0, 1)
  /// Starts with a short memory: update number t (from 0) has decay min(decay, (1 + t) / (10 + t)).
  bool warm_up = false;
};

class Ema {
 public:
  /// Tied parameters count once. Throws InvalidArgument for no parameters, or a decay outside its
  /// range.
  Ema(const std::vector<Parameter>& parameters, const EmaOptions& options);
  Ema(const Ema&) = delete;
  Ema& operator=(const Ema&) = delete;

  /// Throws StateError inside an EmaScope, and for a parameter that was sharded since the first
  /// update.
  void update();
  std::int64_t updates() const { return updates_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }
  /// Undefined before the first update, and for other parameters.
  Tensor average(const Parameter& parameter) const;

  /// Writes the averages into `targets`: the parameters themselves, or those of an equally
  /// constructed model in the same order. Throws StateError before the first update,
  /// InvalidArgument when number or shapes differ.
  void copy_to(const std::vector<Parameter>& targets) const;

  /// "updates", and "average.up.weight" for each parameter. Throws InvalidArgument listing
  /// parameters without a name and names that several have.
  StateDict state_dict() const;
  /// Throws InvalidArgument listing everything that does not fit; then nothing is changed.
  void load_state_dict(const StateDict& saved);

 private:
  friend class EmaScope;
  Tensor make_average(const Parameter& parameter) const;

  std::vector<Parameter> parameters_;
  std::vector<Tensor> averages_;  // in the same order; none before the first update
  EmaOptions options_;
  std::int64_t updates_ = 0;
  bool is_swapped_in_ = false;
};

/// While it lives, the parameters have the averages for values; they get their own back at the end.
/// What was written to them meanwhile is lost. Takes the memory of one copy of the parameters.
class EmaScope {
 public:
  /// Throws StateError before the first update, and inside another scope of the same Ema. `ema`
  /// must outlive the scope.
  explicit EmaScope(Ema& ema);
  EmaScope(const EmaScope&) = delete;
  EmaScope& operator=(const EmaScope&) = delete;
  /// As restore(), but ignores failures.
  ~EmaScope();
  /// Ends the scope early.
  void restore();

 private:
  Ema& ema_;
  std::vector<Tensor> values_;  // in the order of the parameters
  bool active_ = true;
};

}  // namespace tessera::nn::optim
