"""What jobs written in Python use; `import mainspring` offers it."""
