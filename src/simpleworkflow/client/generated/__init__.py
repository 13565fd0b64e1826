"""Files that a tool writes: do not edit them. `make gen` writes them anew, and a test compares."""
