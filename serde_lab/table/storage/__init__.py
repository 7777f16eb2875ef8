"""The files of a table: local folders and object stores, the lock, markers."""
