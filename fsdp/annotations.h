#pragma once

/// What a trace tells of parameter groups: annotations of domain "fsdp" (tensor/trace.h), whose
/// name is the group's (Handle::group_name). There are no other phases. A call that
/// does nothing, such as gathering an unsharded group, records none.

namespace tessera::fsdp {

inline constexpr const char* kAnnotationDomain = "fsdp";

/// The group's gather was issued: at its own place, or ahead of its use.
inline constexpr const char* kUnshardPhase = "unshard";
/// Its gathered value was let go of: all of it, or all but the 1/n that is kept for backward.
inline constexpr const char* kReshardPhase = "reshard";
/// The backward of its modules is done; what it had to reduce has been issued. A group that had no
/// such moment of its own has it at the end of the backward pass.
inline constexpr const char* kPostBackwardPhase = "post_backward";

}  // namespace tessera::fsdp
