# shellcheck shell=bash
# shellcheck disable=SC2154  # roundhouse_root is common.sh's
# Test runs that are counted by case, for deploy/test and .ci/run; sourced
# after common.sh.

passed=0
failed=0

# add_counts PASSED FAILED
add_counts() {
  passed=$((passed + $1))
  failed=$((failed + $2))
}

# bazel_test ARGUMENT...: bazel test, its cases added to the counts. Goes on
# after a failure: the counts say it.
bazel_test() {
  local events status=0 counts
  events=$(mktemp)
  bazel test --keep_going --build_event_json_file="$events" "$@" || status=$?
  read -ra counts < <(/usr/bin/python3 -B \
    "$roundhouse_root/deploy/count_tests.py" "$events")
  rm -f "$events"
  if [[ ${#counts[@]} -ne 2 ]]; then counts=(0 1); fi
  if [[ $status -ne 0 && ${counts[1]} -eq 0 ]]; then
    say "bazel test exited $status"
    counts[1]=1
  fi
  add_counts "${counts[@]}"
}

# Alone on its line, as CI reads it.
print_counts() { printf '%d passed, %d failed\n' "$passed" "$failed"; }
