#pragma once

/// The operations of the hooks on a call's Variables: move, cast, register gradient callbacks.
/// Private to this folder.

#include <functional>

#include "tessera/nn/visit.h"
#include "tessera/tensor/device.h"
#include "tessera/tensor/dtype.h"

namespace tessera::fsdp {

/// Casts floating-point variables to `dtype` with a recorded cast. Others are unchanged.
void cast_variables(const nn::VisitVariables& variables, DType dtype);
/// Moves variables to `device`. Their gradients are moved back to the original device.
void move_variables(const nn::VisitVariables& variables, Device device);
/// Calls `before` ahead of the first gradient that arrives at one of the results. A result that is
/// a leaf is replaced by a recorded copy, since a hook on a leaf would outlive the call.
void before_gradients(const nn::VisitVariables& results, const std::function<void()>& before);
/// Calls `after` once the gradients of all arguments are known, and therefore after the gradients
/// of everything computed from them. Returns false, and does nothing, if no argument requires a
/// gradient.
bool after_gradients(const nn::VisitVariables& arguments, std::function<void()> after);

}  // namespace tessera::fsdp
