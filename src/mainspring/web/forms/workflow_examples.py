"""Example workflows for the editor."""

from __future__ import annotations

EXAMPLES = {
    "sequence": """\
# Three steps in sequence, every night. Later steps can use the results of earlier ones.
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
    "parallel": """\
# Three steps in parallel, and one that runs after all of them have ended, whatever their outcome.
kind: Workflow
metadata: {name: check-all}
spec:
  params: {region: {type: string, default: eu, enum: [eu, us]}}
  steps:
    web: {shell: [echo, "web in {{params.region}}"]}
    mail: {shell: [echo, "mail in {{params.region}}"]}
    files: {shell: [echo, "files in {{params.region}}"]}
    report:
      shell: [echo, "all checked"]
      needs: [web, mail, files]
      rule: all_done
""",
    "approval": """\
# An approval; without a decision within 24 hours it counts as rejected.
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
