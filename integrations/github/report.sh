#!/usr/bin/env bash
# Runs `aot report` with options from the environment, adds the table to the job's summary, and ends with aot's exit code.
# AOT_MODELS: paths or patterns. AOT_REFERENCE: if empty, the compiler's own interpreter is accepted as the reference.
# AOT_OPTIONS: further options, separated by spaces.
# AOT_BOARDS AOT_OPT AOT_ORACLE AOT_BASELINE AOT_BUDGET AOT_ALLOW AOT_JOBS AOT_OUTPUT: options.
set -u
shopt -s nullglob globstar

# Split and expand the patterns.
# shellcheck disable=SC2206
models=(${AOT_MODELS:-})
if [ "${#models[@]}" -eq 0 ]; then
  echo "no file matches '${AOT_MODELS:-}'" >&2
  exit 2
fi

output=${AOT_OUTPUT:-aot-report}
options=(--output "$output" --jobs "${AOT_JOBS:-2}")
[ -n "${AOT_BOARDS:-}" ] && options+=(--board "$AOT_BOARDS")
[ -n "${AOT_OPT:-}" ] && options+=(--opt "$AOT_OPT")
[ -n "${AOT_ORACLE:-}" ] && options+=(--oracle "$AOT_ORACLE")
[ -n "${AOT_BASELINE:-}" ] && options+=(--baseline "$AOT_BASELINE")
[ -n "${AOT_BUDGET:-}" ] && options+=(--budget "$AOT_BUDGET")
[ "${AOT_REFERENCE-set}" = "" ] && options+=(--no-require-reference)
for part in ${AOT_ALLOW:-}; do options+=(--allow "$part"); done
# Use the words literally: nothing in them is expanded or run.
read -r -d '' -a words <<<"${AOT_OPTIONS:-}" || true
options+=(${words[@]+"${words[@]}"})

code=0
aot report "${options[@]}" -- "${models[@]}" || code=$?
if [ -n "${GITHUB_STEP_SUMMARY:-}" ] && [ -f "$output/report.md" ]; then
  cat "$output/report.md" >>"$GITHUB_STEP_SUMMARY"
fi
exit "$code"
