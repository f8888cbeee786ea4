"""Workflow runs: starting and advancing them. Settling, intake and the duties share this, so it is below the stages."""
