# shellcheck shell=bash
# shellcheck disable=SC2034  # what is unused here is used by who sources this
# What the scripts of deploy/ and .ci/ share; sourced, never run.

# The project's root, whatever folder the caller is in.
roundhouse_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# HOME is missing in a Bazel test and in a bare service environment.
if [[ -z ${HOME:-} ]]; then
  HOME=$(getent passwd "$(id -u)" | cut -d: -f6)
  export HOME
fi

# Where install-deps puts what Debian has no package for.
roundhouse_cache=${XDG_CACHE_HOME:-$HOME/.cache}/roundhouse
roundhouse_wheels=${ROUNDHOUSE_WHEELS:-$roundhouse_cache/wheels}
roundhouse_python=${ROUNDHOUSE_PYTHON:-$roundhouse_cache/venv/bin/python}

# Where install-deps --test puts what only our tests import.
roundhouse_test_modules=$roundhouse_cache/test-modules

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }

die() {
  say "$*"
  exit 1
}
