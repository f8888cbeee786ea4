"""Workflows to begin with, each with one idea."""

from __future__ import annotations

EXAMPLES = {
    "in a row": """\
# Three steps, one after the other, every night. The result of a step is there for those behind it.
kind: Workflow
metadata: {name: nightly}
spec:
  schedule: {cron: "0 2 * * *", timezone: Europe/Berlin}
  defaults: {retries: {max: 2, base: 10s}, timeout: 10m}
  steps:
    extract:
      shell: [echo, "extracting"]
    load:
      shell: [echo, "loading"]
      needs: [extract]
    publish:
      shell: [echo, "publishing"]
      needs: [load]
""",
    "side by side": """\
# Several at once, and one that waits for all of them, whatever became of each.
kind: Workflow
metadata: {name: check-all}
spec:
  params: {region: {type: string, default: eu, enum: [eu, us]}}
  steps:
    web: {shell: [echo, "web in {{params.region}}"]}
    mail: {shell: [echo, "mail in {{params.region}}"]}
    files: {shell: [echo, "files in {{params.region}}"]}
    report:
      shell: [echo, "all looked at"]
      needs: [web, mail, files]
      rule: all_done
""",
    "with approval": """\
# Somebody decides; without an answer within a day it counts as rejected.
kind: Workflow
metadata: {name: release}
spec:
  steps:
    build: {shell: [echo, "building"]}
    sign:
      approval: {expires: 24h, message: "Release it?"}
      needs: [build]
    release:
      shell: [echo, "releasing"]
      needs: [sign]
""",
}
