#pragma once

/// One axis of a chart: positions of values, and round values as tick labels.

#include <string>
#include <vector>

namespace tessera::models::watch {

struct AxisTick {
  double value = 0;
  std::string label;
};

struct AxisOptions {
  bool log_scale = false;  ///< low and high are then at least 1e-300
  bool bytes = false;      ///< labels in KiB, MiB ...; else plain, with k, M, G, T from 10,000 on
  bool from_zero = false;  ///< a linear axis then begins at 0 (or below)
  bool whole_numbers = false;  ///< no ticks between them
  bool to_ticks = false;       ///< a linear axis begins and ends with a tick
  int ticks = 5;               ///< approximate number
};

class Axis {
 public:
  /// For values from `low` to `high`, finite, at most 1e300 either way; they may be equal.
  Axis(double low, double high, const AxisOptions& options);

  double low() const { return low_; }
  double high() const { return high_; }
  /// 0 at low(), 1 at high().
  double place(double value) const;
  /// Increasing; at least one, within the axis.
  const std::vector<AxisTick>& ticks() const { return ticks_; }

 private:
  void make_linear(const AxisOptions& options);
  void make_logarithmic(const AxisOptions& options);

  double low_, high_;
  bool log_scale_;
  std::vector<AxisTick> ticks_;
};

/// A number as a label: 4 digits, with k, M, G, T from 10,000 on; or in KiB, MiB ...
std::string plain_label(double value);
std::string bytes_label(double value);

}  // namespace tessera::models::watch
