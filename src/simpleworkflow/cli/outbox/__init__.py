"""Commands about the outbox: its state, its events, its rules, and a dispatcher that takes events to a sink."""
