"""Where the rows of a write come from, and the schema that they get."""
