"""Storage of a table's files: local folders and object stores, the lock, markers."""
