#pragma once

/// What a status of NCCL means for a program: a table, without NCCL and without a GPU. Codes are
/// those of ncclResult_t, which keep their numbers. Private to this folder.

#include <string>
#include <string_view>

namespace tessera::distributed {

enum class NcclOutcome : unsigned char {
  kDone,
  kPending,      ///< a call of a communicator that does not block: ask again
  kDeviceError,  ///< DeviceError: this rank's GPU, driver, or a wrong call
  kCollective,   ///< CollectiveError: the connection between ranks
  kPeer,         ///< CollectiveAborted: another rank failed first
};

struct NcclMeaning {
  const char* name = "";  ///< "ncclSystemError"
  NcclOutcome outcome = NcclOutcome::kDeviceError;
  const char* advice = "";  ///< what to do; empty where nothing is wrong
};

/// Of every code, also those that are not in the table: they are DeviceErrors with general advice.
NcclMeaning nccl_meaning(int code);

/// `NCCL reports NAME (code CODE) in WHAT: TEXT; ADVICE`. `text` is NCCL's own; `detail`, what it
/// says of its last error, follows in parentheses unless it is empty.
std::string nccl_message(int code, std::string_view what, std::string_view text,
                         std::string_view detail);

}  // namespace tessera::distributed
