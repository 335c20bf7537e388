#!/usr/bin/env bash
# Installs Weir into a folder, moves it, and builds and runs the recipes of tests/recipes against it
# by find_package and by pkg-config, with the shared and the static library, on the simulated device.
#
#   install_test.sh BUILD_FOLDER CXX CC
set -euo pipefail
build=$1 cxx=$2 cc=$3
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export WEIR_CONF=device:sim

# A static Weir is part of the program, so it finds the simulated device on the search path.
run() {
  case $1 in
    *static*) LD_LIBRARY_PATH=$lib "$2" ;;
    *) "$2" ;;
  esac
}

cmake --install "$build" --prefix "$work/first" >"$work/install.log"
prefix=$work/moved
mv "$work/first" "$prefix"
library=$(find "$prefix" -name libweir.so)
lib=$(dirname "$library")

step() { echo "== $*"; }

step "no installed text names the place it was installed to, or the source tree"
! grep -rlIF -e "$work/first" "$prefix" || exit 1
# As a whole path: a tree in /weir is not what include/weir names, but -I/weir/x would be.
in_source="(?<![\\w.}-])\\Q$source\\E(?![\\w.-])|-[IL]\\Q$source\\E(?![\\w.-])"
grep -qP -e "$in_source" <<<"-I$source/x" && grep -qP -e "$in_source" <<<"\"$source\""
! grep -rlIP -e "$in_source" "$prefix" || exit 1

step "the library needs no CUDA library and exports only the C interface"
if readelf -d "$library" | grep -E 'NEEDED.*(libcuda|libcudart)'; then exit 1; fi
foreign=$(nm -D --defined-only "$library" | awk '$NF !~ /^weir_/ { print $NF }')
if [[ -n $foreign ]]; then
  echo "$foreign"
  exit 1
fi

step "the simulated device lies beside the library"
test -f "$lib/libsimcuda.so"

step "the recipes by find_package"
cmake -S "$source/tests/install/consumer" -B "$work/consumer" -G Ninja \
  -DCMAKE_PREFIX_PATH="$prefix" -DRECIPES="$source/tests/recipes" \
  -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_C_COMPILER="$cc" >"$work/configure.log" ||
  { cat "$work/configure.log"; exit 1; }
cmake --build "$work/consumer" --parallel 2
for program in "$work"/consumer/*_allocator "$work"/consumer/*_allocator_static; do
  echo "- $(basename "$program")"
  run "$program" "$program"
done

step "the recipes by pkg-config"
export PKG_CONFIG_PATH=$lib/pkgconfig
for package in weir weir-static; do
  for recipe in "$source"/tests/recipes/*.{c,cc}; do
    [[ -e $recipe ]] || continue
    compiler=("$cc" -std=c11)
    [[ $recipe == *.cc ]] && compiler=("$cxx" -std=c++20)
    # shellcheck disable=SC2046  # the flags are words
    "${compiler[@]}" -Wall -Wextra -Werror "$recipe" -o "$work/program" \
      $(pkg-config --cflags --libs "$package")
    echo "- $(basename "$recipe"), $package"
    LD_LIBRARY_PATH=$lib "$work/program"
  done
done

step "the weir command, whose own options win over WEIR_CONF"
"$prefix/bin/weir" --version
"$prefix/bin/weir" replay "$source/bench/traces/resnet50_offline.weirtrace" --json "$work/replay.json"
python3 - "$work/replay.json" <<'PYTHON'
import json, sys
(run,) = json.load(open(sys.argv[1]))["runs"]
assert run["completed"] and run["ratio"] >= 1, run
PYTHON
echo "installed Weir works"
