"""A worker dies, or its database fails, at every single round trip of one workflow that uses everything."""
