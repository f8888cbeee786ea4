"""The SDK for jobs written in Python; `import mainspring` exports its names."""
