/* A stand-in for the CUDA driver (libcuda.so.1) while cuDNN makes plans for a described GPU: it
   "loads" the kernels that cuDNN compiles, and cannot execute anything. cuDNN finds it by its name,
   because it is loaded already. */

enum { kSuccess = 0, kNoDevice = 100 };

static int give_object(void** out) {
  static int object;
  *out = &object;
  return kSuccess;
}

/* Functions that create or find an object. */
#define GIVES(name)     \
  int name(void** out); \
  int name(void** out) { return give_object(out); }
GIVES(cuLibraryLoadData)
GIVES(cuModuleLoadData)
GIVES(cuLibraryGetKernel)
GIVES(cuLibraryGetModule)
GIVES(cuModuleGetFunction)
GIVES(cuKernelGetFunction)
GIVES(cuCtxGetCurrent)

/* Functions that have no effect. */
#define SUCCEEDS(name) \
  int name(void);      \
  int name(void) { return kSuccess; }
SUCCEEDS(cuFuncSetAttribute)
SUCCEEDS(cuKernelSetAttribute)
SUCCEEDS(cuLibraryUnload)
SUCCEEDS(cuModuleUnload)

/* Functions that need a GPU. */
#define REFUSES(name) \
  int name(void);     \
  int name(void) { return kNoDevice; }
REFUSES(cuInit)
REFUSES(cuGetErrorName)
REFUSES(cuGetErrorString)
REFUSES(cuCtxGetLimit)
REFUSES(cuCtxPopCurrent)
REFUSES(cuCtxPushCurrent)
REFUSES(cuStreamGetCtx)
REFUSES(cuDriverGetVersion)
REFUSES(cuLinkCreate)
REFUSES(cuLinkAddData)
REFUSES(cuLinkComplete)
REFUSES(cuLinkDestroy)
REFUSES(cuLaunchKernel)
REFUSES(cuLaunchCooperativeKernel)
REFUSES(cuLaunchKernelEx)
REFUSES(cuDeviceGetCount)
REFUSES(cuDeviceGet)
REFUSES(cuLibraryLoadFromFile)
REFUSES(cuKernelGetAttribute)
REFUSES(cuOccupancyMaxPotentialClusterSize)
