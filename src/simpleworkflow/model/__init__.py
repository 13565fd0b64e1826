"""The law: states, moves, records, policies, payload rules and errors.

Pure by contract (import-linter watches): nothing here reads a clock, a file, a socket or a random number, so every
rule of the product can be tested in microseconds and means the same on every database.
"""
