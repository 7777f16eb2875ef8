"""The timeline of a table: active instants, commit metadata, and archived instants."""
