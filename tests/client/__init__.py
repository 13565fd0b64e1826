"""A package, so that test files may share their names with those of other rooms."""
