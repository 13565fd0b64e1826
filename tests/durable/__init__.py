"""Durable functions: steps, waits, signals, children."""
