# Helpers that every folder uses: warnings, sanitizers, and one way to declare a test.

add_library(weir_build_flags INTERFACE)
target_compile_options(weir_build_flags INTERFACE
  -Wall -Wextra -Wconversion -Wshadow
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>
  # GCC 12 and 13 report std::string's operator+ at -O3 (GCC bug 105651).
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
  $<$<BOOL:${WEIR_WERROR}>:-Werror>)

if(WEIR_SANITIZE STREQUAL "address")
  set(weir_sanitizer_flags -fsanitize=address,undefined -fno-sanitize-recover=undefined
                           -fno-omit-frame-pointer)
elseif(WEIR_SANITIZE STREQUAL "thread")
  set(weir_sanitizer_flags -fsanitize=thread -fno-omit-frame-pointer)
elseif(WEIR_SANITIZE)
  message(FATAL_ERROR "WEIR_SANITIZE is '${WEIR_SANITIZE}': use address or thread, or leave it empty")
endif()
if(WEIR_SANITIZE)
  # For the whole tree, so that inline code of every library is instrumented alike.
  add_compile_options(${weir_sanitizer_flags})
  # GCC reports false positives inside Abseil and the standard library when it instruments.
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  add_link_options(${weir_sanitizer_flags})
endif()

# weir_cc_test(NAME SOURCES... [LIBS...]) declares a Catch2 program and its CTest case.
function(weir_cc_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LIBS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE weir_build_flags weir_test_support ${ARG_LIBS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
  add_test(NAME ${name} COMMAND ${name})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
endfunction()
