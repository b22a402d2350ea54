#!/usr/bin/env bash
# Writes report.md into one comment of the pull request; later runs of the same AOT_NAME replace it. Needs `gh`, GH_TOKEN, GITHUB_REPOSITORY, PULL_REQUEST.
# If the token may not comment (a pull request from a fork), prints a warning: the job's summary also has the table.
set -u
name=$(printf %s "${AOT_NAME:-aot-report}" | tr -c 'A-Za-z0-9._-' _)
mark="<!-- aot report: $name -->"
[ "$name" = aot-report ] && mark="<!-- aot report -->"
report=${AOT_OUTPUT:-aot-report}/report.md
[ -f "$report" ] || exit 0

body=$(mktemp)
trap 'rm -f "$body"' EXIT
{ echo "$mark"; cat "$report"; } >"$body"

comments="repos/$GITHUB_REPOSITORY/issues/$PULL_REQUEST/comments"
old=$(gh api --paginate "$comments" --jq ".[] | select(.body | startswith(\"$mark\")) | .id" | head -n 1)
if [ -n "$old" ]; then
  gh api --silent --method PATCH "repos/$GITHUB_REPOSITORY/issues/comments/$old" --field "body=@$body"
else
  gh api --silent --method POST "$comments" --field "body=@$body"
fi || echo "::warning::could not write the report as a comment; it is in the job's summary"
