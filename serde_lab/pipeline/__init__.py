"""Writes and reads Hudi tables: stages and exchanges, the coordinator, reads and table services."""
