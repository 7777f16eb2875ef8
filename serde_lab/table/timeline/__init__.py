"""The instants of a table: active, completed with their metadata, archived."""
