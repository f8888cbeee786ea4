"""What moves runs on. Settling, intake and the duties share it, so it lies below the stages."""
