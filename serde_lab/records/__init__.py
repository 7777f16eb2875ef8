"""Records: column types, schemas and their evolution, key generation, ordering values."""
