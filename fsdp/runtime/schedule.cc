#include "tessera/fsdp/runtime/schedule.h"

namespace tessera::fsdp {

void Schedule::begin_forward() {
  if (!seen_.empty()) forecast_ = std::move(seen_);
  seen_.clear();
  on_forecast_ = true;
  recorded_before_ = recorded_.size();
}

std::vector<int> Schedule::enter_forward(int group, int depth) {
  const std::size_t place = seen_.size();
  seen_.push_back(group);
  on_forecast_ = on_forecast_ && place < forecast_.size() && forecast_[place] == group;
  std::vector<int> next;
  if (!on_forecast_) return next;
  for (std::size_t i = place + 1; i < forecast_.size(); ++i) {
    if (static_cast<int>(next.size()) == depth) break;
    next.push_back(forecast_[i]);
  }
  return next;
}

void Schedule::leave_forward(int group) {
  recorded_.push_back(group);
  taken_.push_back(false);
}

void Schedule::forget_forward() {
  recorded_.resize(recorded_before_);
  taken_.resize(recorded_before_);
}

std::optional<int> Schedule::enter_backward(int group) {
  for (std::size_t i = recorded_.size(); i-- > 0;) {
    if (recorded_[i] != group || taken_[i]) continue;
    taken_[i] = true;
    if (i == 0) return std::nullopt;
    return recorded_[i - 1];
  }
  return std::nullopt;
}

void Schedule::end_backward() {
  recorded_.clear();
  taken_.clear();
  recorded_before_ = 0;
}

}  // namespace tessera::fsdp
