// A shared library that only has the name of another (unseen_holders_test.cc), and NVSHMEM's answer
// to whether it is initialized.
#include "weir/weir.h"

namespace {
int status = 0;
}
extern "C" WEIR_API int nvshmemid_init_status() { return status; }
extern "C" WEIR_API void weir_test_initialize() { status = 2; }
