"""Commands about what has happened: the history of one run, and the audit trail of all."""
