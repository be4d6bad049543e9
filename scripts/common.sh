# shellcheck shell=bash
# What scripts/demo, scripts/test and .ci/run share. Sourced, not run.

set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root"

# The packaged compiler, CMake and Python are the ones the project is tested with; a version manager's shims earlier on
# PATH would hide them.
export PATH="/usr/bin:/bin:/usr/sbin:/sbin:$PATH"
export CMAKE_GENERATOR=Ninja

die() {
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit 1
}

# will_write FILE: ends the script before its work where the result could not be written after it.
will_write() {
  if [[ -e "$1" ]]; then
    [[ ! -d "$1" && -w "$1" ]] || die "$1: cannot be written"
  else
    [[ -d "$(dirname "$1")" && -w "$(dirname "$1")" ]] || die "$1: its folder is not there, or cannot be written"
  fi
}

# configure DIR [CMAKE ARGUMENTS...]
configure() {
  local dir="$1"
  shift
  if command -v ccache >/dev/null; then
    set -- "-DCMAKE_CXX_COMPILER_LAUNCHER=ccache" "$@"
  fi
  cmake -S "$root" -B "$dir" -Wno-dev "$@"
}

# build DIR [TARGETS...]: ninja draws its progress on one line of a terminal and writes a line per step elsewhere.
build() {
  local dir="$1"
  shift
  if (($#)); then
    cmake --build "$dir" --parallel "$(nproc)" --target "$@"
  else
    cmake --build "$dir" --parallel "$(nproc)"
  fi
}

# run_tests DIR [CTEST ARGUMENTS...]: ctest counts programs; the tests inside are counted after it.
run_tests() {
  local dir="$1"
  shift
  ctest --test-dir "$dir" --output-on-failure --no-tests=error --parallel "$(nproc)" "$@"
  awk '/^\[==========\] Running [0-9]+ tests? / { programs++; tests += $3 }
       END { printf "%d of them are GoogleTest programs, which ran %d tests\n", programs, tests }' \
    "$dir/Testing/Temporary/LastTest.log"
}

# make_python DIR REQUIREMENTS: a virtual environment with what the file names.
make_python() {
  local dir="$1" requirements="$2"
  [[ -x "$dir/bin/python" ]] || python3 -m venv "$dir"
  if ! cmp -s "$requirements" "$dir/installed.txt"; then
    "$dir/bin/pip" install -q --disable-pip-version-check -r "$requirements"
    cp "$requirements" "$dir/installed.txt"
  fi
}

# python_build_settings DIR: sets build_settings to what pip is told of a build of the package in DIR. One folder below
# its sources, by the compiler under the name that CMake finds, the library's files are compiled by the same commands as
# in build/, so that ccache knows them.
python_build_settings() {
  export CC="${CC:-cc}" CXX="${CXX:-c++}" CMAKE_BUILD_PARALLEL_LEVEL="${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}"
  build_settings=("--config-settings=build-dir=$1")
  if command -v ccache >/dev/null; then
    build_settings+=(--config-settings=cmake.define.CMAKE_CXX_COMPILER_LAUNCHER=ccache)
  fi
}
