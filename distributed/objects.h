#pragma once

/// Small structured data between ranks: JSON values, and texts of any bytes. For names, options and
/// verdicts; tensors go through collectives.h.
///
/// Collective, and the host waits. Sizes are exchanged first, so they may differ. Works over groups
/// that carry CPU tensors. Throws what the collectives throw, and InvalidArgument for a root that
/// is not in the group; CollectiveError naming the rank it came from for data that is not JSON.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tessera/distributed/process_group.h"

namespace tessera::distributed {

/// Keeps the order of keys.
using Json = nlohmann::ordered_json;

/// The root's, on every rank; what the others pass does not count.
std::string broadcast_text(ProcessGroup& group, const std::string& text, int root);
Json broadcast_object(ProcessGroup& group, const Json& value, int root);
/// Every rank's, in rank order: on the root, or on all. The other ranks get none.
std::vector<std::string> gather_texts(ProcessGroup& group, const std::string& text, int root);
std::vector<Json> gather_objects(ProcessGroup& group, const Json& value, int root);
std::vector<std::string> all_gather_texts(ProcessGroup& group, const std::string& text);
std::vector<Json> all_gather_objects(ProcessGroup& group, const Json& value);

}  // namespace tessera::distributed
