#include "tessera/autograd/grad_mode.h"

#include <utility>

#include "tessera/tensor/thread_state.h"

namespace tessera {

bool grad_enabled() { return detail::thread_state().settings.grad_enabled; }

GradModeGuard::GradModeGuard(bool enabled)
    : previous_(std::exchange(detail::thread_state().settings.grad_enabled, enabled)) {}

GradModeGuard::~GradModeGuard() { detail::thread_state().settings.grad_enabled = previous_; }

}  // namespace tessera
