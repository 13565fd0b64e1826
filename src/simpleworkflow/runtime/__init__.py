"""The stage: user code runs here, and what it did is made durable."""
