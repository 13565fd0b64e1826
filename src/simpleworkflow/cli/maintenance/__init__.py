"""Commands that look after an installation: examine it, delete old runs."""
