"""What is measured, one question per module. Each has `measure(ground) -> list[Finding]`."""
