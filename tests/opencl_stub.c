/* An OpenCL runtime with one device whose compiler refuses every program, as a runtime that is older than the
   processor does. Compile as a shared library and name it in OCL_ICD_VENDORS. */
#include <stdint.h>
#include <string.h>

typedef int32_t cl_int;
typedef uint32_t cl_uint;
typedef uint64_t cl_ulong;

enum {
    SUCCESS = 0, BUILD_PROGRAM_FAILURE = -11, INVALID_VALUE = -30,
    PLATFORM_PROFILE = 0x900, PLATFORM_VERSION, PLATFORM_NAME, PLATFORM_VENDOR, PLATFORM_EXTENSIONS,
    PLATFORM_ICD_SUFFIX = 0x920,
    DEVICE_TYPE = 0x1000, DEVICE_MAX_COMPUTE_UNITS = 0x1002, DEVICE_MAX_WORK_ITEM_DIMENSIONS = 0x1003,
    DEVICE_MAX_WORK_GROUP_SIZE = 0x1004, DEVICE_MAX_WORK_ITEM_SIZES = 0x1005,
    DEVICE_MAX_MEM_ALLOC_SIZE = 0x1010, DEVICE_MEM_BASE_ADDR_ALIGN = 0x1019, DEVICE_GLOBAL_MEM_SIZE = 0x101F,
    DEVICE_LOCAL_MEM_SIZE = 0x1023, DEVICE_COMPILER_AVAILABLE = 0x1028, DEVICE_NAME = 0x102B, DEVICE_VENDOR,
    DRIVER_VERSION, DEVICE_PROFILE, DEVICE_VERSION, DEVICE_EXTENSIONS, DEVICE_PLATFORM,
    DEVICE_OPENCL_C_VERSION = 0x103D,
    CONTEXT_NUM_DEVICES = 0x1083, CONTEXT_DEVICES = 0x1081, QUEUE_DEVICE = 0x1091, PROGRAM_DEVICES = 0x1163,
    PROGRAM_NUM_DEVICES = 0x1162, PROGRAM_BUILD_STATUS = 0x1181, PROGRAM_BUILD_OPTIONS, PROGRAM_BUILD_LOG
};

typedef struct object { void **dispatch; } object;

static void *dispatch[256];
static object platform = {dispatch}, device = {dispatch}, context = {dispatch}, queue = {dispatch}, program = {dispatch};

static cl_int give(const void *value, size_t size, size_t room, void *target, size_t *size_out) {
    if (size_out) *size_out = size;
    if (target) {
        if (room < size) return INVALID_VALUE;
        memcpy(target, value, size);
    }
    return SUCCESS;
}
#define TEXT(words) return give(words, sizeof(words), room, target, size_out)
#define VALUE(type, number) { type value = (number); return give(&value, sizeof value, room, target, size_out); }

static cl_int platform_ids(cl_uint count, void **platforms, cl_uint *found) {
    if (platforms && count) platforms[0] = &platform;
    if (found) *found = 1;
    return SUCCESS;
}
static cl_int platform_info(void *of, cl_uint name, size_t room, void *target, size_t *size_out) {
    switch (name) {
    case PLATFORM_PROFILE: TEXT("FULL_PROFILE");
    case PLATFORM_VERSION: TEXT("OpenCL 1.2 stub");
    case PLATFORM_NAME: TEXT("Refusing Runtime");
    case PLATFORM_VENDOR: TEXT("nobody");
    case PLATFORM_EXTENSIONS: TEXT("cl_khr_icd");
    case PLATFORM_ICD_SUFFIX: TEXT("STUB");
    }
    return INVALID_VALUE;
}
static cl_int device_ids(void *of, cl_ulong type, cl_uint count, void **devices, cl_uint *found) {
    if (devices && count) devices[0] = &device;
    if (found) *found = 1;
    return SUCCESS;
}
static cl_int device_info(void *of, cl_uint name, size_t room, void *target, size_t *size_out) {
    switch (name) {
    case DEVICE_TYPE: VALUE(cl_ulong, 1 << 1)
    case DEVICE_MAX_COMPUTE_UNITS: VALUE(cl_uint, 2)
    case DEVICE_MAX_WORK_ITEM_DIMENSIONS: VALUE(cl_uint, 3)
    case DEVICE_MAX_WORK_GROUP_SIZE: VALUE(size_t, 256)
    case DEVICE_MAX_WORK_ITEM_SIZES: {
        size_t sizes[3] = {256, 256, 256};
        return give(sizes, sizeof sizes, room, target, size_out);
    }
    case DEVICE_MAX_MEM_ALLOC_SIZE: case DEVICE_GLOBAL_MEM_SIZE: VALUE(cl_ulong, 1 << 30)
    case DEVICE_LOCAL_MEM_SIZE: VALUE(cl_ulong, 1 << 15)
    case DEVICE_MEM_BASE_ADDR_ALIGN: VALUE(cl_uint, 1024)
    case DEVICE_COMPILER_AVAILABLE: VALUE(cl_uint, 1)
    case DEVICE_NAME: TEXT("processor of tomorrow");
    case DEVICE_VENDOR: TEXT("nobody");
    case DRIVER_VERSION: TEXT("1");
    case DEVICE_PROFILE: TEXT("FULL_PROFILE");
    case DEVICE_VERSION: TEXT("OpenCL 1.2 stub");
    case DEVICE_OPENCL_C_VERSION: TEXT("OpenCL C 1.2 stub");
    case DEVICE_EXTENSIONS: TEXT("");
    case DEVICE_PLATFORM: VALUE(void *, &platform)
    }
    VALUE(cl_ulong, 0)
}
static void *create_context(void *properties, cl_uint n, void **devices, void *notify, void *data, cl_int *error) {
    if (error) *error = SUCCESS;
    return &context;
}
static cl_int context_info(void *of, cl_uint name, size_t room, void *target, size_t *size_out) {
    if (name == CONTEXT_DEVICES) VALUE(void *, &device)
    if (name == CONTEXT_NUM_DEVICES) VALUE(cl_uint, 1)
    return INVALID_VALUE;
}
static void *create_queue(void *of, void *on, cl_ulong properties, cl_int *error) {
    if (error) *error = SUCCESS;
    return &queue;
}
static cl_int queue_info(void *of, cl_uint name, size_t room, void *target, size_t *size_out) {
    VALUE(void *, name == QUEUE_DEVICE ? &device : &context)
}
static void *create_program(void *of, cl_uint count, const char **texts, const size_t *lengths, cl_int *error) {
    if (error) *error = SUCCESS;
    return &program;
}
static cl_int build_program(void *of, cl_uint n, void **devices, const char *options, void *notify, void *data) {
    return BUILD_PROGRAM_FAILURE;
}
static cl_int program_info(void *of, cl_uint name, size_t room, void *target, size_t *size_out) {
    if (name == PROGRAM_DEVICES) VALUE(void *, &device)
    if (name == PROGRAM_NUM_DEVICES) VALUE(cl_uint, 1)
    return INVALID_VALUE;
}
static cl_int build_info(void *of, void *on, cl_uint name, size_t room, void *target, size_t *size_out) {
    switch (name) {
    case PROGRAM_BUILD_STATUS: VALUE(cl_int, -2)
    case PROGRAM_BUILD_OPTIONS: TEXT("");
    case PROGRAM_BUILD_LOG: TEXT("error: unknown target CPU 'generic'\n");
    }
    return INVALID_VALUE;
}
static cl_int nothing(void *of) { return SUCCESS; }
static cl_int refuse(void) { return INVALID_VALUE; }

static void fill(void) {
    for (int i = 0; i < 256; i++) dispatch[i] = (void *)refuse;
    dispatch[0] = (void *)platform_ids; dispatch[1] = (void *)platform_info;
    dispatch[2] = (void *)device_ids; dispatch[3] = (void *)device_info;
    dispatch[4] = (void *)create_context; dispatch[8] = (void *)context_info;
    dispatch[9] = (void *)create_queue; dispatch[12] = (void *)queue_info;
    dispatch[26] = (void *)create_program; dispatch[30] = (void *)build_program;
    dispatch[32] = (void *)program_info; dispatch[33] = (void *)build_info;
    static const int counted[] = {6, 7, 10, 11, 17, 18, 28, 29};
    for (int i = 0; i < 8; i++) dispatch[counted[i]] = (void *)nothing;
}
cl_int clIcdGetPlatformIDsKHR(cl_uint count, void **platforms, cl_uint *found) {
    fill();
    return platform_ids(count, platforms, found);
}
cl_int clGetPlatformInfo(void *of, cl_uint name, size_t room, void *target, size_t *size_out) {
    return platform_info(of, name, room, target, size_out);
}
void *clGetExtensionFunctionAddress(const char *name) {
    return strcmp(name, "clIcdGetPlatformIDsKHR") == 0 ? (void *)clIcdGetPlatformIDsKHR
         : strcmp(name, "clGetPlatformInfo") == 0 ? (void *)clGetPlatformInfo : 0;
}
