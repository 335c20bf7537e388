# weir::cuda_headers carries the include path of cuda.h and nothing else: Weir loads the driver at
# run time and links no CUDA library. Looked for, in this order: CUDA_HEADERS (a folder), the
# toolkit, and the headers that tools/install_dependencies takes from a wheel. A folder with headers
# older than CUDA 13.0 is passed over.

function(weir_check_cuda_headers valid folder)
  set(version 0)
  if(EXISTS "${folder}/cuda.h")
    file(STRINGS "${folder}/cuda.h" line REGEX "^#define CUDA_VERSION [0-9]+" LIMIT_COUNT 1)
    string(REGEX MATCH "[0-9]+" version "${line}")
  endif()
  if(version LESS 13000)
    set(${valid} FALSE PARENT_SCOPE)
  endif()
endfunction()

find_path(WEIR_CUDA_INCLUDE_DIR cudaTypedefs.h
  HINTS "${CUDA_HEADERS}" "$ENV{CUDA_HEADERS}" "$ENV{CUDA_HOME}/include" "$ENV{CUDA_PATH}/include"
        "${PROJECT_SOURCE_DIR}/.cache/cuda-headers/include"
  PATHS /usr/local/cuda/include /usr/local/cuda/targets/x86_64-linux/include
        /opt/cuda/include
  VALIDATOR weir_check_cuda_headers)
if(NOT WEIR_CUDA_INCLUDE_DIR)
  message(FATAL_ERROR
    "No CUDA headers of 13.0 or newer found (cuda.h, cudaTypedefs.h). Run "
    "tools/install_dependencies, install the CUDA toolkit, or pass -DCUDA_HEADERS=/folder/with/cuda.h")
endif()
add_library(weir_cuda_headers INTERFACE)
add_library(weir::cuda_headers ALIAS weir_cuda_headers)
target_include_directories(weir_cuda_headers SYSTEM INTERFACE "${WEIR_CUDA_INCLUDE_DIR}")
