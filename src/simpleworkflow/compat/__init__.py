"""The seeds' spellings, thin: they build on App alone. New code has no need of them."""
