#!/usr/bin/env bash
# Compiles the library with clang's lock annotations as errors, without making code, and proves with
# a wrong program that the check is awake.   thread_safety_test.sh CLANGXX CUDA_INCLUDE
set -uo pipefail
clang=$1
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
flags=(-std=c++20 -fsyntax-only -Wthread-safety -Werror=thread-safety -I. -Iallocator/include
       -isystem "$2" '-DWEIR_VERSION="none"')

if "$clang" "${flags[@]}" -x c++ - 2>/dev/null <<'CODE'
#include "allocator/base/mutex.h"
struct Counter {
  weir::Mutex mutex;
  int value ABSL_GUARDED_BY(mutex) = 0;
  void Add() { ++value; }
};
CODE
then
  echo "clang accepted a guarded field that is used without its lock"
  exit 1
fi

# The PyTorch plugin needs PyTorch's headers, which are compiled where it is installed.
find allocator -path allocator/torch -prune -o -name '*.cc' -print0 | sort -z |
  xargs -0 -r -n 4 -P 2 "$clang" "${flags[@]}"
