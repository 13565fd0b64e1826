"""A state machine of random operations: the database against a model in plain Python, step by step."""
