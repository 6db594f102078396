#pragma once

/// The annotations that FSDP writes into a trace (tensor/trace.h): their domain is "fsdp", their
/// name is the group's (Handle::group_name), and their phase is one of those below. A call that
/// does nothing, such as gathering a group that is already unsharded, writes none.

namespace tessera::fsdp {

inline constexpr const char* kAnnotationDomain = "fsdp";

/// The group's all-gather was issued, just before its use or prefetched.
inline constexpr const char* kUnshardPhase = "unshard";
/// The group's gathered values were released: all of them, or all but the 1/n that
/// ReshardAfterForward(n) keeps for backward.
inline constexpr const char* kReshardPhase = "reshard";
/// The backward of the group's modules is done and its reductions were issued. Written at the end
/// of the backward pass if the group's modules were not seen to end before.
inline constexpr const char* kPostBackwardPhase = "post_backward";

}  // namespace tessera::fsdp
