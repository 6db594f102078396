#pragma once

/// Exception classes of Tessera. This header includes only the standard library, so device code may
/// include it.
///
/// Every message reads `[where] rank R: what, with the numbers; what to do`. The rank is left out
/// in a program that has not entered a world. Use the helpers of check.h to throw: they add the tag
/// and the rank.

#include <cstdint>
#include <stdexcept>
#include <string>

namespace tessera {

/// Base class of all exceptions that Tessera throws.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The caller passed something that can never work: a wrong shape, dtype, device, name or option.
class InvalidArgument : public Error {
 public:
  using Error::Error;
};

/// The call is legal, but not now: released storage, a sharded parameter, an overwritten saved
/// tensor.
class StateError : public Error {
 public:
  using Error::Error;
};

/// The device does not have enough memory for an allocation.
class OutOfMemory : public Error {
 public:
  using Error::Error;
};

/// A device is missing, or its driver or library reported an error.
class DeviceError : public Error {
 public:
  using Error::Error;
};

/// The collective that failed.
struct CollectiveSite {
  int rank = -1;               ///< the rank that reports
  std::string group;           ///< name of the process group
  std::string op;              ///< "all_gather", "barrier", ...
  std::uint64_t sequence = 0;  ///< position among the group's collectives, from 1
  std::string label;           ///< name of the caller, for instance a parameter group; may be empty
};

/// A collective failed: a peer died, the group was aborted, or the ranks disagree.
class CollectiveError : public Error {
 public:
  CollectiveError(const std::string& message, CollectiveSite site)
      : Error(message), site_(std::move(site)) {}
  const CollectiveSite& site() const { return site_; }

 private:
  CollectiveSite site_;
};

/// Something did not happen before its deadline.
class TimeoutError : public Error {
 public:
  using Error::Error;
};

/// A checkpoint cannot be written or read.
class CheckpointError : public Error {
 public:
  using Error::Error;
};

/// A data set is missing, truncated or malformed.
class DataError : public Error {
 public:
  using Error::Error;
};

}  // namespace tessera
