#include "tessera/nn/optim/line_search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace tessera::nn::optim {
namespace {

constexpr double kDecrease = 1e-4;         // c1: the part of the slope that the loss must fall by
constexpr double kCurvature = 0.9;         // c2: the part of the slope that may stay
constexpr double kToleranceChange = 1e-9;  // of an element: nearer ends are one point

// Where the cubic through both points is smallest, within the bounds.
double cubic_minimum(const LinePoint& a, const LinePoint& b, double low, double high) {
  const double d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t);
  const double square = d1 * d1 - a.slope * b.slope;
  if (!(square >= 0)) return (low + high) / 2;
  const double d2 = std::sqrt(square);
  const double at = a.t <= b.t
                        ? b.t - (b.t - a.t) * ((b.slope + d2 - d1) / (b.slope - a.slope + 2 * d2))
                        : a.t - (a.t - b.t) * ((a.slope + d2 - d1) / (a.slope - b.slope + 2 * d2));
  return std::min(std::max(at, low), high);
}

class StrongWolfe {
 public:
  StrongWolfe(const LinePoint& start, const std::function<LinePoint(double)>& evaluate,
              const LineSearchOptions& options)
      : start_(start), evaluate_(evaluate), options_(options) {}

  LineSearchResult run() {
    bracket();
    zoom();
    return {.point = ends_[low_], .evaluations = evaluations_};
  }

 private:
  LinePoint at(double t) {
    ++evaluations_;
    return evaluate_(t);
  }
  bool is_too_high(const LinePoint& p) const {
    return p.loss > start_.loss + kDecrease * p.t * start_.slope;
  }
  bool is_flat(const LinePoint& p) const { return std::abs(p.slope) <= -kCurvature * start_.slope; }
  void finish_bracket(const LinePoint& a, const LinePoint& b) {
    ends_ = {a, b};
    low_ = a.loss <= b.loss ? 0 : 1;
  }

  // Steps grow until two ends enclose a minimum, or one will do.
  void bracket() {
    LinePoint before = start_, now = at(options_.first);
    for (; iteration_ < options_.iterations; ++iteration_) {
      if (is_too_high(now) || (iteration_ > 1 && now.loss >= before.loss))
        return finish_bracket(before, now);
      if (is_flat(now)) {
        done_ = true;
        return finish_bracket(now, now);
      }
      if (now.slope >= 0) return finish_bracket(before, now);
      const double next = cubic_minimum(before, now, now.t + 0.01 * (now.t - before.t), now.t * 10);
      before = now;
      now = at(next);
    }
    finish_bracket(start_, now);
  }

  // A place between the ends, not too near to either twice in a row.
  double next_place() {
    const auto [low, high] = std::minmax(ends_[0].t, ends_[1].t);
    const double margin = 0.1 * (high - low);
    double t = cubic_minimum(ends_[0], ends_[1], low, high);
    if (!(std::min(high - t, t - low) < margin)) {
      is_slow_ = false;
    } else if (is_slow_ || t >= high || t <= low) {
      t = std::abs(t - high) < std::abs(t - low) ? high - margin : low + margin;
      is_slow_ = false;
    } else {
      is_slow_ = true;
    }
    return t;
  }

  // The ends come closer.
  void zoom() {
    for (; !done_ && iteration_ < options_.iterations; ++iteration_) {
      if (std::abs(ends_[1].t - ends_[0].t) * options_.largest_change < kToleranceChange) return;
      const LinePoint now = at(next_place());
      const std::size_t high = 1 - low_;
      if (is_too_high(now) || now.loss >= ends_[low_].loss) {
        ends_[high] = now;
        low_ = ends_[0].loss <= ends_[1].loss ? 0 : 1;
        continue;
      }
      if (is_flat(now)) {
        done_ = true;
      } else if (now.slope * (ends_[high].t - ends_[low_].t) >= 0) {
        ends_[high] = ends_[low_];
      }
      ends_[low_] = now;
    }
  }

  const LinePoint& start_;
  const std::function<LinePoint(double)>& evaluate_;
  LineSearchOptions options_;
  std::array<LinePoint, 2> ends_;
  std::size_t low_ = 0;  // the end with the smaller loss
  std::int64_t iteration_ = 0;
  std::int64_t evaluations_ = 0;
  bool done_ = false;
  bool is_slow_ = false;
};

}  // namespace

LineSearchResult strong_wolfe(const LinePoint& start,
                              const std::function<LinePoint(double t)>& evaluate,
                              const LineSearchOptions& options) {
  return StrongWolfe(start, evaluate, options).run();
}

}  // namespace tessera::nn::optim
