"""Text formats that the CLI and the web UI share."""
