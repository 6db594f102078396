#pragma once

namespace tessera {

/// A list of kernel structs as a type.
template <class... K>
struct KernelList {};

}  // namespace tessera
