// The table of statuses against the NCCL that this build uses, and statuses as exceptions. Needs no
// GPU.
#include <nccl.h>

#include <catch2/catch.hpp>
#include <optional>
#include <string>

#include "tessera/distributed/nccl/nccl_communicator.h"
#include "tessera/distributed/nccl/nccl_routes.h"

namespace tessera::distributed {
namespace {

// No default: a status that a newer NCCL adds is a compiler warning here, and warnings are errors.
std::string name_of(ncclResult_t status) {
  switch (status) {
    case ncclSuccess:
      return "ncclSuccess";
    case ncclUnhandledCudaError:
      return "ncclUnhandledCudaError";
    case ncclSystemError:
      return "ncclSystemError";
    case ncclInternalError:
      return "ncclInternalError";
    case ncclInvalidArgument:
      return "ncclInvalidArgument";
    case ncclInvalidUsage:
      return "ncclInvalidUsage";
    case ncclRemoteError:
      return "ncclRemoteError";
    case ncclInProgress:
      return "ncclInProgress";
    case ncclNumResults:
      break;
  }
  return "no status";
}

std::optional<NcclFailure> failure_of(int code) {
  try {
    check_nccl(code, "ncclSomething", nullptr);
  } catch (const NcclFailure& failure) {
    return failure;
  }
  return std::nullopt;
}

}  // namespace

TEST_CASE("the numbers of the table are NCCL's, every one of them") {
  for (int code = 0; code < ncclNumResults; ++code)
    CHECK(nccl_meaning(code).name == name_of(static_cast<ncclResult_t>(code)));
  CHECK(std::string(nccl_meaning(ncclNumResults).name) == "an unknown status");
  CHECK(nccl_meaning(ncclRemoteError).outcome == NcclOutcome::kPeer);
  CHECK(nccl_meaning(ncclSystemError).outcome == NcclOutcome::kCollective);
  CHECK(nccl_meaning(ncclUnhandledCudaError).outcome == NcclOutcome::kDeviceError);
}

TEST_CASE("every status of NCCL that is a failure becomes an exception with its name and text") {
  for (int code = 0; code < ncclNumResults; ++code) {
    const auto status = static_cast<ncclResult_t>(code);
    INFO(name_of(status));
    const std::optional<NcclFailure> failure = failure_of(code);
    if (status == ncclSuccess || status == ncclInProgress) {
      CHECK_FALSE(failure);
      continue;
    }
    REQUIRE(failure);
    const std::string start = "NCCL reports " + name_of(status) + " (code " + std::to_string(code) +
                              ") in ncclSomething: " + ncclGetErrorString(status);
    CHECK(std::string(failure->what()).starts_with(start));
    CHECK(std::string(failure->what()).ends_with(nccl_meaning(code).advice));
    CHECK(failure->outcome() == nccl_meaning(code).outcome);
  }
}

}  // namespace tessera::distributed
