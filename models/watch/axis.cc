#include "tessera/models/watch/axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>

namespace tessera::models::watch {
namespace {

// The unit of a number: 3 of {1e6, "M"} is "3M".
struct Scale {
  double factor = 1;
  const char* suffix = "";
};
constexpr std::array<Scale, 5> kDecimal = {
    {{1, ""}, {1e3, "k"}, {1e6, "M"}, {1e9, "G"}, {1e12, "T"}}};
constexpr std::array<Scale, 6> kBinary = {{{1, " B"},
                                           {0x1p10, " KiB"},
                                           {0x1p20, " MiB"},
                                           {0x1p30, " GiB"},
                                           {0x1p40, " TiB"},
                                           {0x1p50, " PiB"}}};
// Thousands are written with k from here on.
constexpr double kFirstScaled = 1e4;
// Below and above these, numbers are written as 2e-4, 3e+20.
constexpr double kTooSmall = 1e-3, kTooLarge = 1e17;
// Values whose relative difference is smaller count as equal: labels would need too many digits.
constexpr double kSmallestRange = 1e-9;

Scale scale_of(double largest, bool bytes) {
  const std::span<const Scale> scales = bytes ? std::span<const Scale>(kBinary) : kDecimal;
  Scale best = scales[0];
  if (!bytes && largest < kFirstScaled) return best;
  for (const Scale& scale : scales)
    if (largest >= scale.factor) best = scale;
  return best;
}

// The next number above `step` that is 1, 2 or 5 times a power of ten.
double round_step(double step) {
  const double power = std::pow(10.0, std::floor(std::log10(step)));
  for (const double digit : {1.0, 2.0, 5.0})
    if (digit * power >= step * (1 - 1e-9)) return digit * power;
  return 10 * power;
}

// 2e-4, not 2e-04.
std::string exponent_label(double value, int exponent, int decimals) {
  return fmt::format("{:.{}f}e{}", value / std::pow(10.0, exponent), decimals, exponent);
}

// The exponent of the largest power of ten that is not above `value`.
int exponent_of(double value) {
  return static_cast<int>(std::floor(std::log10(std::abs(value)) + 1e-9));
}

// A tick's label if all ticks are multiples of `step` and at most `largest`.
std::string step_label(double value, double step, double largest, bool bytes) {
  if (value == 0) return bytes ? "0 B" : "0";
  if (largest < kTooSmall || largest >= kTooLarge) {
    const int exponent = exponent_of(largest);
    return exponent_label(value, exponent, std::max(0, exponent - exponent_of(step))) +
           (bytes ? " B" : "");
  }
  const Scale scale = scale_of(largest, bytes);
  return fmt::format("{:.{}f}{}", value / scale.factor,
                     std::max(0, -exponent_of(step / scale.factor)), scale.suffix);
}

double magnitude(double low, double high) { return std::max(std::abs(low), std::abs(high)); }

// The leading digits of ticks on a logarithmic axis, for the number of decades it spans.
std::vector<double> log_digits(double decades) {
  if (decades > 3.5) return {1};
  if (decades > 2.2) return {1, 3};
  if (decades > 1.3) return {1, 2, 5};
  return {1, 1.5, 2, 3, 4, 5, 7};
}

double linear_step(double low, double high, const AxisOptions& options) {
  const double unit =
      options.bytes ? scale_of(magnitude(low, high), true).factor : 1.0;  // round in MiB
  const double step = round_step((high - low) / options.ticks / unit) * unit;
  return options.whole_numbers ? std::max(step, 1.0) : step;
}

}  // namespace

std::string plain_label(double value) {
  const double size = std::abs(value);
  if (!std::isfinite(value)) return "not finite";
  if (size == 0) return "0";
  if (size < kTooSmall || size >= kTooLarge) {
    const int exponent = exponent_of(value);
    return fmt::format("{:.3g}e{}", value / std::pow(10.0, exponent), exponent);
  }
  const Scale scale = scale_of(size, false);
  return fmt::format("{:.4g}{}", value / scale.factor, scale.suffix);
}

std::string bytes_label(double value) {
  if (std::abs(value) >= kTooLarge || (value != 0 && std::abs(value) < kTooSmall))
    return plain_label(value) + " B";
  const Scale scale = scale_of(std::abs(value), true);
  return fmt::format("{:.4g}{}", value / scale.factor, scale.suffix);
}

Axis::Axis(double low, double high, const AxisOptions& options)
    : low_(low), high_(high), log_scale_(options.log_scale) {
  if (log_scale_)
    make_logarithmic(options);
  else
    make_linear(options);
}

double Axis::place(double value) const {
  if (log_scale_) return (std::log(value) - std::log(low_)) / (std::log(high_) - std::log(low_));
  return (value - low_) / (high_ - low_);
}

void Axis::make_linear(const AxisOptions& options) {
  if (options.from_zero) {
    low_ = std::min(low_, 0.0);
    high_ = std::max(high_, 0.0);
  }
  if (high_ - low_ <= kSmallestRange * magnitude(low_, high_)) {
    const double margin = high_ == 0 ? 1.0 : 0.5 * magnitude(low_, high_);
    low_ -= options.from_zero && low_ == 0 ? 0 : margin;
    high_ += margin;
  }
  const double step = linear_step(low_, high_, options);
  // Tolerates rounding of a small fraction of a step.
  const double first =
      options.to_ticks ? std::floor(low_ / step + 1e-6) : std::ceil(low_ / step - 1e-6);
  const double last =
      options.to_ticks ? std::ceil(high_ / step - 1e-6) : std::floor(high_ / step + 1e-6);
  if (options.to_ticks) {
    low_ = first * step;
    high_ = last * step;
  }
  for (double i = first; i <= last; ++i)
    ticks_.push_back({i * step, step_label(i * step, step, magnitude(low_, high_), options.bytes)});
  if (ticks_.empty()) ticks_.push_back({low_, plain_label(low_)});
}

void Axis::make_logarithmic(const AxisOptions& options) {
  if (high_ <= 1.02 * low_) {
    low_ /= 1.5;
    high_ *= 1.5;
  }
  const double decades = std::log10(high_) - std::log10(low_);
  const double margin = std::pow(10.0, std::min(0.04 * decades, 1.0));
  low_ /= margin;
  high_ *= margin;
  if (decades < 0.5) {  // nearly linear: uses its ticks
    const Axis linear(low_, high_, {.bytes = options.bytes, .ticks = options.ticks});
    ticks_ = linear.ticks_;
    return;
  }
  const auto stride = static_cast<int>(std::ceil(decades / 7));
  const auto first = static_cast<int>(std::floor(std::log10(low_)));
  for (int exponent = first; exponent <= std::log10(high_) + 1e-9; ++exponent) {
    if (decades > 3.5 && exponent % stride != 0) continue;
    for (const double digit : log_digits(decades)) {
      const double value = digit * std::pow(10.0, exponent);
      if (value >= low_ && value <= high_)
        ticks_.push_back({value, options.bytes ? bytes_label(value) : plain_label(value)});
    }
  }
}

}  // namespace tessera::models::watch
