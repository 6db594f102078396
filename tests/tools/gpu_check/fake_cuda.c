// Replaces the driver, the CUDA runtime and NCCL in a test of the scripts of tools/gpu_check:
// FAKE_GPUS GPUs, versions, and sums that need no other rank. FAKE_NCCL: "refuse" or "wrong".
#include <stdlib.h>
#include <string.h>

typedef struct {
  char bytes[128];
} Id;

static int the_ranks;

static int fakes(const char* what) {
  const char* value = getenv("FAKE_NCCL");
  return value != NULL && strcmp(value, what) == 0;
}

int cuInit(unsigned flags) { return (int)flags; }
int cuDeviceGetCount(int* count) {
  *count = atoi(getenv("FAKE_GPUS"));
  return 0;
}

static int tell(int* to, int version) {
  *to = version;
  return 0;
}
int cuDriverGetVersion(int* version) { return tell(version, 13020); }
int cudaRuntimeGetVersion(int* version) { return tell(version, 13000); }
int ncclGetVersion(int* version) { return tell(version, 22803); }
size_t cudnnGetVersion(void) { return 91905; }
size_t cublasLtGetVersion(void) { return 130102; }

int cudaSetDevice(int device) { return device; }
int cudaMalloc(void** memory, size_t bytes) {
  *memory = malloc(bytes);
  return 0;
}
int cudaMemcpy(void* to, const void* from, size_t bytes, int kind) {
  memcpy(to, from, bytes);
  return kind == 1 || kind == 2 ? 0 : 1;
}
int cudaDeviceSynchronize(void) { return 0; }
const char* cudaGetErrorString(int code) { return code == 0 ? "no error" : "a fault"; }

int ncclGetUniqueId(Id* id) {
  memset(id->bytes, 7, sizeof(id->bytes));
  return 0;
}
// The id is complete, and the rank claims a host of its own.
int ncclCommInitRank(void** communicator, int ranks, Id id, int rank) {
  const char expected[] = {'h', 'o', 's', 't', (char)('0' + rank), 0};
  for (size_t i = 0; i < sizeof(id.bytes); ++i) {
    if (id.bytes[i] != 7) return 4;
  }
  if (strcmp(getenv("NCCL_HOSTID"), expected) != 0 || strcmp(getenv("NCCL_SOCKET_IFNAME"), "lo") != 0) return 4;
  the_ranks = ranks;
  *communicator = &the_ranks;
  return rank == 1 && fakes("refuse") ? 5 : 0;
}
int ncclAllReduce(const void* from, void* to, size_t count, int dtype, int operation, void* communicator, void* stream) {
  if (from != to || dtype != 7 || operation != 0 || communicator != &the_ranks || stream != NULL) return 4;
  for (size_t i = 0; i < count; ++i) ((float*)to)[i] = fakes("wrong") ? 0 : (float)(the_ranks * (the_ranks + 1)) / 2;
  return 0;
}
int ncclCommDestroy(void* communicator) { return communicator == &the_ranks ? 0 : 4; }
const char* ncclGetErrorString(int code) { return code == 5 ? "invalid usage" : "another error"; }
const char* ncclGetLastError(void* communicator) { return communicator == NULL && fakes("refuse") ? "Duplicate GPU detected" : ""; }
