#pragma once

/// One group of ranks with a transport for each type of device: what a World holds.

#include <map>
#include <memory>

#include "tessera/distributed/process_group.h"

namespace tessera::distributed {

/// A group that hands each collective to the transport of its tensors' device type; a barrier goes
/// to the CPU's, or where there is none to the first. All transports are of the same ranks, and
/// their collectives are numbered together. Sub-groups have the same transports. An abort reaches
/// all of them. Throws InvalidArgument for no groups, for a null one, for groups that differ in
/// name, rank or ranks, and for one that does not carry the device it is given for.
std::shared_ptr<ProcessGroup> by_device(std::map<DeviceType, std::shared_ptr<ProcessGroup>> groups);

}  // namespace tessera::distributed
