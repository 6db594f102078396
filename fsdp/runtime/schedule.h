#pragma once

/// Which group to gather ahead: pure decisions from the orders seen so far. Groups are numbers.

#include <cstddef>
#include <optional>
#include <vector>

namespace tessera::fsdp {

class Schedule {
 public:
  /// A forward of the root begins: the order of the last one becomes the forecast.
  void begin_forward();
  /// Group `group` enters its forward. Returns up to `depth` groups that followed it at this place
  /// of the forecast, nearest first, as long as this forward has kept to the forecast.
  std::vector<int> enter_forward(int group, int depth = 1);

  /// Group `group` left a forward that will have a backward. A group that ran twice stands twice.
  void leave_forward(int group);
  /// The forward of the root is over and has no backward: what it recorded is dropped.
  void forget_forward();
  /// Group `group` enters its backward: takes its last place in the recorded order and returns the
  /// group before it.
  std::optional<int> enter_backward(int group);
  /// The backward is over: the recorded order is done with.
  void end_backward();

 private:
  std::vector<int> forecast_;
  std::vector<int> seen_;
  bool on_forecast_ = false;
  std::size_t recorded_before_ = 0;  ///< by forwards whose backward is still to come
  std::vector<int> recorded_;
  std::vector<bool> taken_;
};

}  // namespace tessera::fsdp
