#!/usr/bin/env bash
# The fuzz driver finds a planted bug, keeps its input, and repeats itself.
set -euo pipefail
driver=$PWD/$1
cd "$(mktemp -d -p "$TEST_TMPDIR")"
printf 'one two' >corpus
unset TEST_UNDECLARED_OUTPUTS_DIR

fail() {
  echo "FAILED: $*"
  exit 1
}

find_bug() {
  rm -f crash-input
  if ROUNDHOUSE_FUZZ_SEED=$1 "$driver" corpus 2>log; then
    fail "seed $1 did not find the bug"
  fi
  grep -q "seed $1, 1 corpus files, 20000 mutations" log || fail "no seed"
  grep -q 'one 9' crash-input || fail "the kept input is not the culprit"
}

find_bug 3
cp crash-input first
find_bug 3
cmp first crash-input || fail "the same seed gave another input"
ROUNDHOUSE_FUZZ_RUNS=0 "$driver" corpus || fail "the corpus alone has no bug"
if ROUNDHOUSE_FUZZ_RUNS=0 "$driver" first 2>log; then
  fail "the kept input did not fail again"
fi
if "$driver" no-such-file 2>log; then fail "a missing file was ignored"; fi
