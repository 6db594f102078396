#include "tessera/fsdp/checkpoint/checkpoint.h"
#include "tessera/fsdp/checkpoint/pending_save.h"

namespace tessera::checkpoint {

void save(const std::string& folder, const State& state) {
  PendingSave pending(folder, state, /*snapshot=*/false);
  pending.write();
  pending.publish();
}

}  // namespace tessera::checkpoint
