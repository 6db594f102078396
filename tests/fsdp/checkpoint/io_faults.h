#pragma once

// System calls that fail on request. A binary that links this has its own open, write, fsync, rename
// and mkdir, which note the calls and let one of them fail.

#include <string>
#include <vector>

namespace tessera::testing {

enum class IoFault {
  kNone,
  kKill,     // the process is killed before the call
  kNoSpace,  // ENOSPC
  kIoError,  // EIO
  kShort,    // a write writes half of its bytes; other calls are as always
};
std::string io_fault_name(IoFault fault);

// Lets the call-th call from now on fail, counted from 1.
void arm_io_fault(IoFault fault, int call);
// Calls since arm_io_fault().
int io_calls();
// These calls: "write PATH", "fsync PATH", "rename FROM TO", "mkdir PATH"; openings are left out.
std::vector<std::string> io_log();

}  // namespace tessera::testing
