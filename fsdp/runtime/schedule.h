#pragma once

/// Which groups to gather ahead: pure decisions from the recorded orders. Groups are numbers.

#include <cstddef>
#include <optional>
#include <vector>

namespace tessera::fsdp {

class Schedule {
 public:
  /// A forward of the root begins. The order of the previous one becomes the forecast.
  void begin_forward();
  /// Group `group` enters its forward. Returns up to `depth` groups that follow it in the forecast,
  /// nearest first, as long as this forward has followed the forecast.
  std::vector<int> enter_forward(int group, int depth = 1);

  /// Group `group` leaves a forward that will have a backward. A group that ran twice is recorded
  /// twice.
  void leave_forward(int group);
  /// The root's forward is over and will have no backward: drops the order it recorded.
  void forget_forward();
  /// Group `group` enters its backward. Marks its last unused position in the recorded order, and
  /// returns the group before that position.
  std::optional<int> enter_backward(int group);
  /// The backward is over: drops the recorded order.
  void end_backward();

 private:
  std::vector<int> forecast_;
  std::vector<int> seen_;
  bool on_forecast_ = false;
  std::size_t recorded_before_ = 0;  ///< number of groups recorded by earlier forwards that still
                                     ///< await backward
  std::vector<int> recorded_;
  std::vector<bool> taken_;
};

}  // namespace tessera::fsdp
