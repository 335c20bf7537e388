"""What the stand-ins' functions do: C text for the functions whose caller relies on more than
"success". Argument positions are those of the libraries' documented interfaces.

The rules: whoever creates gets a handle of his own; whoever asks for a size gets 0; nothing is
computed; what cannot be pretended without harm (cuDNN, reading files) fails with the library's own
error, and the text of the error says what to do. NVRTC looks at no source: it makes images that the
simulated GPU loads as modules, whose kernels do nothing there as all kernels.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Optional

Version = tuple[int, ...]

PRELUDE = """
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
typedef struct { char internal[128]; } UniqueId;
typedef struct { int ranks, rank; } Communicator;
typedef struct { int error, driver_error; } FileError;
typedef struct { char** names; int count, compiled; } Program;
int cudaMalloc(void**, size_t) __attribute__((weak));
int cudaFree(void*) __attribute__((weak));
static int communicator(void** made, int ranks, int rank) {
  Communicator* c = malloc(sizeof *c);
  if (c == NULL) return 2;
  c->ranks = ranks;
  c->rank = rank;
  *made = c;
  return 0;
}
"""

# What the simulated GPU knows an image by (tools/simcuda/modules.h).
_IMAGE = "weir simulated kernel image"

# Where a function writes what the caller reads, by the first pattern that matches the whole name:
# {argument: type that gets 0}, or "handle".
_OUTPUTS: tuple[tuple[str, dict[int, str]], ...] = (
    (r"cublasGet(Math|Pointer)Mode(_v2)?", {1: "int"}),
    (r"cufftCreate", {0: "number"}),
    (r"cufftXtMakePlanMany", {12: "size_t"}),
    (r"cusparseLtMatmulGetWorkspace", {2: "size_t"}),
    (r"cusparseLtSpMMACompressedSize2?", {2: "size_t", 3: "size_t"}),
    (r"cublasLtMatmulAlgoConfigGetAttribute", {4: "size_t"}),
    (r"(cublas|cublasLt|cusparse|cusolverDn)\w*_?[Cc]reate(?!IdentityPermutation)\w*", {0: "handle"}),
    (r"cusparseSpMatGetSize", {1: "int64_t", 2: "int64_t", 3: "int64_t"}),
    (r"cusparseSpGEMM_(workEstimation|compute)", {11: "size_t"}),
    (r"cusparseXcsrgeam2Nnz", {13: "int"}),
    (r"cusparse(SpMV|SpSV)_bufferSize", {9: "size_t"}),
    (r"cusparse(SpMM|SpSM|SDDMM)_bufferSize", {10: "size_t"}),
    (r"cusparse[SDCZ]bsrsv2_bufferSize", {11: "int"}),
    (r"cusparse[SDCZ]bsrsm2_bufferSize", {13: "int"}),
    (r"cusparse[SDCZ]csrgeam2_bufferSizeExt", {19: "size_t"}),
    (r"cusparseXc(oo|sr)sort_bufferSizeExt", {6: "size_t"}),
    (r"cusolverDnXgeev_bufferSize", {17: "size_t", 18: "size_t"}),
    (r"cusolverDnXgeqrf_bufferSize", {10: "size_t", 11: "size_t"}),
    (r"cusolverDnXpotrf_bufferSize", {8: "size_t", 9: "size_t"}),
    (r"cusolverDnX(syevBatched|syevd|sytrs)_bufferSize", {11: "size_t", 12: "size_t"}),
    (r"cusolverDn[SDCZ]gesvd_bufferSize", {3: "int"}),
    (r"cusolverDn[SDCZ]sytrf_bufferSize", {4: "int"}),
    (r"cusolverDn[SDCZ](geqrf|getrf|potrf)_bufferSize", {5: "int"}),
    (r"cusolverDn[SDCZ](sy|he)ev(d|j|jBatched)_bufferSize", {7: "int"}),
    (r"cusolverDn[SDCZ](or|un)gqr_bufferSize", {7: "int"}),
    (r"cusolverDn[SDCZ](or|un)mqr_bufferSize", {11: "int"}),
    (r"cusolverDn[SDCZ]gesvdjBatched_bufferSize", {11: "int"}),
    (r"cusolverDn[SDCZ]gesvdj_bufferSize", {12: "int"}),
    (r"cusolverDn[SDCZ]gesvdaStridedBatched_bufferSize", {16: "int"}),
    (r"cuptiActivityGetNumDroppedRecords", {2: "size_t"}),
    (r"ncclCommGetAsyncError", {1: "int"}),
    (r"ncclCommMemStats", {2: "uint64_t"}),
    (r"ncclRedOpCreatePreMulSum", {0: "int"}),
    (r"ncclCommWindowRegister", {3: "handle"}),
    (r"ncclWinGetUserPtr", {2: "handle"}),
)

# Functions that free what the rule "handle" made. cuSPARSELt's are structures of the caller.
_DESTROYS = re.compile(r"(cublas|cusparse|cusolverDn)(?!Lt(Mat|Matmul)\w*Destroy)\w*_?[Dd]estroy\w*"
                       r"|cublasLt\w*Destroy")

# What fails, with the library's own code.
_ERRORS: tuple[tuple[str, int], ...] = (
    (r"cudnn\w+", 1001),  # NOT_INITIALIZED, the error of a library that cannot be used
    (r"nvrtcGet\w+", 5),  # INVALID_OPTION: no kinds of code but PTX and CUBIN
    (r"cuptiActivityGetNextRecord", 12),  # MAX_LIMIT_REACHED: no more records
    (r"ncclDevCommCreate|ncclCommGrow|ncclGet(Lsa|Peer)\w+", 5),  # INVALID_USAGE
    (r"nvshmemid_hostlib_init_attr|nvshmemx_get_uniqueid|nvshmemx_cumodule_init", 1),
    (r"\w+_bufferSize(Ext)?", 9),  # of functions not listed: no size is better than a random one
)

_TEXTS = {
    "cudnn": "cuDNN is not there on the simulated GPU; set torch.backends.cudnn.enabled = False"
             " and call torch.backends.cuda.enable_cudnn_sdp(False)",
    "nvrtc": "NVRTC is a stand-in on the simulated GPU",
    "nccl": "NCCL is a stand-in on the simulated GPU",
    "cusparse": "cuSPARSE is a stand-in on the simulated GPU",
    "cublas": "cuBLAS is a stand-in on the simulated GPU",
    "cupti": "CUPTI is a stand-in on the simulated GPU",
    "": "a stand-in on the simulated GPU",
}


def _text_of(name: str) -> str:
    return next(text for prefix, text in _TEXTS.items() if name.startswith(prefix))


def _whole_functions(versions: Mapping[str, Version]) -> dict[str, str]:
    """Functions with a signature of their own, by name."""
    def part(library: str, index: int) -> int:
        return (*versions[library], 0, 0, 0)[index]

    def number(library: str, major: int, minor: int) -> int:
        return part(library, 0) * major + part(library, 1) * minor + part(library, 2)

    file_error = "{ FileError e = {5001, 0}; return e; }"  # the driver is not initialized
    whole = {
        "cublasLtGetVersion": f"size_t %s(void) {{ return {number('cuda', 10000, 100)}; }}",
        "cublasLtMatmulAlgoGetHeuristic":
            "int %s(void* a, void* b, void* c, void* d, void* e, void* f, void* g, int wanted,"
            " char* results, int* count) {"
            " if (wanted > 0) memset(results, 0, 96); *count = wanted > 0; return 0; }",
        "cudnnGetVersion": f"size_t %s(void) {{ return {number('cudnn', 10000, 100)}; }}",
        "cudnnGetCudartVersion": f"size_t %s(void) {{ return {number('cuda', 1000, 10)}; }}",
        "cudnnGetProperty":
            f"int %s(int what, int* value) {{ static const int parts[3] = {{{part('cudnn', 0)},"
            f" {part('cudnn', 1)}, {part('cudnn', 2)}}}; if (what < 0 || what > 2) return 2000;"
            " *value = parts[what]; return 0; }",
        "cudnnGetLastErrorString":
            f'void %s(char* to, size_t bytes) {{ static const char text[] = "{_TEXTS["cudnn"]}";'
            " if (bytes > 0) { size_t n = bytes < sizeof text ? bytes : sizeof text;"
            " memcpy(to, text, n); to[n - 1] = 0; } }",
        "cuptiGetVersion": f"int %s(uint32_t* v) {{ *v = {number('cuda', 10000, 100)}; return 0; }}",
        "cuptiGetResultString":
            f'int %s(int r, const char** s) {{ *s = "{_TEXTS["cupti"]}"; return 0; }}',
        "cuptiGetCallbackName":
            'int %s(int domain, uint32_t id, const char** s) { *s = "unknown"; return 0; }',
        "nvrtcVersion":
            f"int %s(int* a, int* b) {{ *a = {part('cuda', 0)}; *b = {part('cuda', 1)}; return 0; }}",
        "ncclGetVersion": f"int %s(int* v) {{ *v = {number('nccl', 10000, 100)}; return 0; }}",
        "ncclMemAlloc":
            "int %s(void** p, size_t n) { return cudaMalloc && cudaMalloc(p, n) == 0 ? 0 : 1; }",
        "ncclMemFree": "int %s(void* p) { return cudaFree && cudaFree(p) == 0 ? 0 : 1; }",
        "ncclCommInitAll":
            "int %s(void** c, int n, const int* d) { int e = 0;"
            " for (int i = 0; i < n && !e; ++i) e = communicator(&c[i], n, i); return e; }",
        "ncclCommInitRankScalable":
            "int %s(void** c, int n, int rank) { return communicator(c, n, rank); }",
        "ncclCommSplit":
            "int %s(Communicator* c, int color, int key, void** made) {"
            " if (color >= 0) return communicator(made, c->ranks, c->rank);"
            " *made = NULL; return 0; }",
        "ncclCommShrink":
            "int %s(Communicator* c, int* excluded, int n, void** made) {"
            " int rank = c->rank; for (int i = 0; i < n; ++i) rank -= excluded[i] < c->rank;"
            " return communicator(made, c->ranks - n, rank); }",
        "ncclCommCount": "int %s(Communicator* c, int* n) { *n = c->ranks; return 0; }",
        "ncclCommUserRank": "int %s(Communicator* c, int* n) { *n = c->rank; return 0; }",
        "nvshmemid_init_status": "int %s(void) { return 0; }",  # not initialized
        "nvshmem_info_get_version":
            f"void %s(int* a, int* b) {{ *a = {part('nvshmem', 0)}; *b = {part('nvshmem', 1)}; }}",
        "cuFileRead": "ptrdiff_t %s() { return -5001; }",
        "cuFileWrite": "ptrdiff_t %s() { return -5001; }",
    }
    whole |= _compiler_functions()
    for name in ("ncclCommInitRank", "ncclCommInitRankConfig"):
        whole[name] = ("int %s(void** c, int n, UniqueId id, int rank)"
                       " { return communicator(c, n, rank); }")
    for name in ("ncclGetUniqueId", "ncclCommGetUniqueId"):
        argument = "id" if name == "ncclGetUniqueId" else "c, UniqueId* id"
        kind = "UniqueId* " if name == "ncclGetUniqueId" else "void* "
        whole[name] = f"int %s({kind}{argument}) {{ memset(id, 1, sizeof *id); return 0; }}"
    for name in ("ncclCommDestroy", "ncclCommAbort"):
        whole[name] = "int %s(void* c) { free(c); return 0; }"
    for name in ("nvshmem_malloc", "nvshmem_ptr", "nvshmemx_mc_ptr"):
        whole[name] = "void* %s() { return NULL; }"
    for name in ("HandleRegister", "HandleDeregister", "BufRegister", "BufDeregister"):
        whole["cuFile" + name] = "FileError %s() " + file_error
    return whole


def _compiler_functions() -> dict[str, str]:
    """NVRTC. The errors are those of calls in the wrong order and of unknown names: 4 is
    INVALID_PROGRAM, 8 NO_NAME_EXPRESSIONS_AFTER_COMPILATION, 9
    NO_LOWERED_NAMES_BEFORE_COMPILATION, 10 NAME_EXPRESSION_NOT_VALID."""
    functions = {
        "nvrtcCreateProgram":
            "int %s(Program** made) { *made = calloc(1, sizeof **made); return *made ? 0 : 1; }",
        "nvrtcDestroyProgram":
            "int %s(Program** p) { if (p == NULL || *p == NULL) return 4;"
            " for (int i = 0; i < (*p)->count; ++i) free((*p)->names[i]);"
            " free((*p)->names); free(*p); *p = NULL; return 0; }",
        "nvrtcAddNameExpression":
            "int %s(Program* p, const char* name) { if (p->compiled) return 8;"
            " char** names = realloc(p->names, (p->count + 1) * sizeof *names);"
            " if (names == NULL) return 1; p->names = names;"
            " if ((names[p->count] = strdup(name)) == NULL) return 1; ++p->count; return 0; }",
        "nvrtcCompileProgram": "int %s(Program* p) { p->compiled = 1; return 0; }",
        "nvrtcGetLoweredName":
            "int %s(Program* p, const char* name, const char** lowered) {"
            " if (!p->compiled) return 9; for (int i = 0; i < p->count; ++i)"
            " if (strcmp(p->names[i], name) == 0) { *lowered = p->names[i]; return 0; }"
            " return 10; }",
        "nvrtcGetProgramLogSize": "int %s(Program* p, size_t* n) { *n = 1; return 0; }",
        "nvrtcGetProgramLog": "int %s(Program* p, char* to) { *to = 0; return 0; }",
    }
    for kind in ("PTX", "CUBIN"):
        functions[f"nvrtcGet{kind}Size"] = (
            "int %s(Program* p, size_t* n) { if (!p->compiled) return 4;"
            f' *n = sizeof "{_IMAGE}"; return 0; }}')
        functions[f"nvrtcGet{kind}"] = (
            "int %s(Program* p, char* to) { if (!p->compiled) return 4;"
            f' memcpy(to, "{_IMAGE}", sizeof "{_IMAGE}"); return 0; }}')
    return functions


def _writes(name: str, outputs: Mapping[int, str]) -> str:
    arguments = ", ".join(f"void* a{i}" for i in range(max(outputs) + 1))
    lines = []
    for index, kind in outputs.items():
        if kind == "handle":
            lines.append(f"*(void**)a{index} = calloc(1, 16);")
        elif kind == "number":
            lines.append(f"static int last; *(int*)a{index} = __atomic_add_fetch(&last, 1, 5);")
        else:
            lines.append(f"if (a{index}) *({kind}*)a{index} = 0;")
    return f"int {name}({arguments}) {{ {' '.join(lines)} return 0; }}"


def _match(table: tuple[tuple[str, object], ...], name: str) -> Optional[object]:
    return next((value for pattern, value in table if re.fullmatch(pattern, name)), None)


class Functions:
    """The C text of each function, for a wheel made for libraries of these versions."""

    def __init__(self, versions: Mapping[str, Version]) -> None:
        self._whole = _whole_functions(versions)

    def define(self, name: str) -> str:
        if name in self._whole:
            return self._whole[name] % name
        if name.endswith(("GetErrorString", "GetErrorName", "GetLastError")):
            return f'const char* {name}() {{ return "{_text_of(name)}"; }}'
        if _DESTROYS.fullmatch(name):
            return f"int {name}(void* handle) {{ free(handle); return 0; }}"
        outputs = _match(_OUTPUTS, name)
        if isinstance(outputs, dict):
            return _writes(name, outputs)
        error = _match(_ERRORS, name)
        return f"int {name}() {{ return {error if isinstance(error, int) else 0}; }}"
