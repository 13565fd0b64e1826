"""How commands print for people: safe text, instants, lengths of time, tables. Imports rich, so `--help` must not."""
