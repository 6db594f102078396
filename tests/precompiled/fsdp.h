// What tests of fsdp include.
#include "tessera/distributed/collectives.h"
#include "tessera/distributed/launch/world.h"
#include "tessera/distributed/parameters/mesh_impl.h"
#include "tessera/distributed/parameters/parameters.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/fsdp/replicate.h"
#include "tessera/tests/support/ranks.h"
