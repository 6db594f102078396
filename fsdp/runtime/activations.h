#pragma once

/// What hooks do to the Variables of a call: move, cast, watch. Private to this folder.

#include <functional>

#include "tessera/nn/visit.h"
#include "tessera/tensor/device.h"
#include "tessera/tensor/dtype.h"

namespace tessera::fsdp {

/// Floating variables become `dtype`, by a recorded cast. The others stay.
void cast_variables(const nn::VisitVariables& variables, DType dtype);
/// Variables come to `device`; gradients go back to where they were.
void move_variables(const nn::VisitVariables& variables, Device device);
/// Calls `before` ahead of the first gradient that arrives at any of them. Leaves among them are
/// replaced, since a hook on a leaf would outlive the call.
void before_gradients(const nn::VisitVariables& results, const std::function<void()>& before);
/// Calls `after` once the gradients of all of them are known, and so after every gradient of what
/// was computed from them. False, and nothing, where none needs a gradient.
bool after_gradients(const nn::VisitVariables& arguments, std::function<void()> after);

}  // namespace tessera::fsdp
